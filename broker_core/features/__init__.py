"""The features that the core of the broker does not know.

Owns: one package for each feature. A feature joins the core by these modules, which `broker_core.installed` finds:

- `service.py`: a server beside the broker. `add_options(parser)` adds options to the command; `NAME` is printed before
  the address; `start(arguments, access)` returns the running server, or None if no option asks for it. `access()`
  returns a function that calls something in the broker's thread, and a function that writes records.
- `command.py`: another broker for the command. `add_options(parser)` adds its options; `start(arguments, settings)`
  returns what starts the broker, as `broker_core.__main__.Start`, or None if no option asks for it.
- `apis.py`: `APIS` are served like the core's own.
- `records.py`: types of records in the cluster's metadata. `SHAPES` has the fields of each type and what their values
  have to be, `REPLAY` applies it. `ClusterMetadata.state` keeps what the records lead to.
- `broker_parts.py`: what is kept in each broker. `PART(broker)` returns a `broker_core.broker.controller.BrokerPart`.
- `group_settings.py`: settings of groups. `check(key, value)` raises Kafka's error for a wrong value.
- `group_types.py`: a type of groups of which the group coordinator keeps the records. `GROUP_TYPE` is a
  `broker_core.coordinator.groups.group_types.GroupType`.
- `metrics.py`: `take(cluster)` is the attribute `NAME` of `BrokerMetrics`, `ROWS` are its rows for Prometheus.
- `internal_topics.py`: the topic of a coordinator. `INTERNAL_TOPIC` is a
  `broker_core.broker.partitions.InternalTopic`. FindCoordinator finds it by keys of the type `KEY_TYPE`, which
  `check_key(context, key)` may refuse, for example without the right `KEY_RIGHT`.
- `jobs.py`: what is done at some times. `job(metadata, settings, now_ms)` returns a `broker_core.broker.cluster.Job`.
- `logins.py`: `token_logins(metadata, settings, entropy)` returns what finds the SCRAM login with a token.
- `limits.py`: how long clients are throttled. `client_limits` and `connection_limits` take the metadata and the
  settings of a broker; see `broker_core.broker.limits`.

Public names of `EmbeddedBroker` and `broker_core` lead to `schema_registry/service.py`, `recording/recordings.py` and
`recording/replay.py`; they raise an error without the feature.

Uses: the core, at these places.

Never: is imported by the core, or by another feature. Deleting a feature's folder leaves a broker without it.
"""
