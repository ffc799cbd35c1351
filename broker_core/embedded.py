"""The broker inside a test process: `EmbeddedBroker`."""

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, Self, TypeVar, Unpack

from broker_core.broker.apis import served_apis
from broker_core.broker.endpoints import PLAINTEXT
from broker_core.broker.fault_injection import Action, Fault, Moment, Throttle, Wanted, report
from broker_core.broker.purgatory import Purgatory
from broker_core.broker.request_log import RequestLog
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.installed import Service, part
from broker_core.ports import Storage
from broker_core.security.sasl_oauthbearer import TokenValidator
from broker_core.server.clock import RealTimePurgatory, SystemClock, SystemEntropy, VirtualClock
from broker_core.server.cluster_controls import ClockHandle
from broker_core.server.disk import open_data_folder
from broker_core.server.listeners import check_used, joined_addresses, listener_settings, plan_listeners
from broker_core.server.socket_server import SocketServer
from broker_core.server.thread import ServerThread
from broker_core.simulation.disk import MemoryStorage
from broker_core.simulation.entropy import SeededEntropy
from broker_core.testing.arguments import check_cluster, check_topic, settings_of, topics_of
from broker_core.testing.data_controls import DataControls
from broker_core.testing.local_client import LocalClient
from broker_core.testing.observers import OBSERVERS
from broker_core.testing.producing import LocalProducer
from broker_core.testing.snapshots import Snapshot
from broker_core.types import INTERNAL_TOPICS, check_text
from broker_core.wire.api_names import ApiName
from broker_core.wire.kafka_versions import version_settings

T = TypeVar("T")


class EmbeddedBroker(DataControls):
    """A Kafka-compatible cluster in a background thread of this process.

    It speaks Kafka's protocol on loopback ports, so any client can use it, and keeps its logs in memory unless it is
    given a folder. It runs between `start` and `close`, or for a `with` or `async with` block:

    >>> from broker_core import EmbeddedBroker
    >>> from confluent_kafka import Producer
    >>> with EmbeddedBroker(topics={"lines": 4}) as kafka:
    ...     producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "writer"})
    ...     producer.init_transactions()
    ...     producer.begin_transaction()
    ...     producer.produce("lines", b"one line", partition=0)
    ...     producer.commit_transaction()
    ...     kafka.records("lines").values
    ...     kafka.transaction("writer").state
    [b'one line']
    'CompleteCommit'

    Several brokers share one set of logs, as if each were a replica in sync. `broker` stops, crashes and starts single
    brokers, `crash` and `restart` all of them; `move_leader`, `without_leader`, `move_coordinator`,
    `without_coordinator` and `stale_broker` change who leads and coordinates. `fault` breaks requests that match:

    >>> from broker_core import Disconnect
    >>> with EmbeddedBroker() as kafka:
    ...     with kafka.fault(api="EndTxn", when="after_apply", action=Disconnect(), times=1) as fault:
    ...         fault.hits
    0

    With `clock="virtual"` time stands still until `clock.advance` moves it; only the waits of clients, such as a
    fetch's `max_wait_ms`, follow real time:

    >>> with EmbeddedBroker(clock="virtual", seed=7) as kafka:
    ...     kafka.clock.advance(seconds=3600)

    Listeners have a security protocol each. Users sign in with SASL, PLAIN or SCRAM; `tls` serves the encrypted ones:

    >>> with EmbeddedBroker(listeners={"SECURE": "SASL_PLAINTEXT"}, users={"alice": "secret"}) as kafka:
    ...     kafka.bootstrap("SECURE").split(":")[0]
    '127.0.0.1'

    `produce` writes records and `records` returns them, without a Kafka client; a broker without listeners has no other
    one, and opens no port:

    >>> with EmbeddedBroker(listeners={}) as kafka:
    ...     _ = kafka.produce("orders", ["one"])
    ...     kafka.records("orders").values
    [b'one']

    `transaction`, `partition`, `group`, `requests`, `topics` and `metrics` show the state; `wait_for`,
    `wait_for_records` and `assert_quiescent` help to check it. Threads may share a broker; calls that start, stop,
    crash, copy or restore it wait for each other. In tests with pytest the fixture `kafka` provides an
    `EmbeddedBroker`.

    Args:
        brokers: The number of brokers. Their ids count from the setting `node.id`, which is 1 by default.
        topics: Topics to create, with their numbers of partitions; existing ones in a `data_dir` or a copy are
            left as they are.
        transaction_version: The feature level of transactions: 2 for KIP-890, 0 or 1 for the protocol before it. By
            default the highest that the `kafka_version` has.
        kafka_version: The version of Kafka, 3.6 to 4.4, whose APIs and features are served, and with whose feature
            levels a new cluster starts; by default the newest.
        config: Kafka's broker settings by their own names, over all other arguments; see `conf/broker.properties`.
        data_dir: The folder for the logs; by default they are kept in memory and lost at `close`.
        copy_of: A `Snapshot`, or the folder of a `data_dir`, that the broker starts with a copy of, in memory.
        host: The address to listen on.
        port: The first of as many ports in a row as there are listeners times brokers; 0 for free ports.
        listeners: Names of listeners with their protocols: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. Every broker has
            each of them; by default one, PLAINTEXT. With an empty dictionary there is none: no port is opened, and only
            the methods of this class read and write.
        users: Names with the passwords that PLAIN and SCRAM accept. A SCRAM credential that a `data_dir` already
            contains keeps its password; one that was deleted there is created again.
        tls: A server-side context for SSL and SASL_SSL; it decides about client certificates, too. Without it, the
            `ssl.*` settings in `config` apply.
        token_validator: Enables OAUTHBEARER: `token_validator(token, now_ms)` returns a `ValidToken` or raises
            `InvalidToken`. It runs in the broker's thread and must not block.
        clock: "real" or "virtual".
        seed: Makes the ids that the broker generates (member ids, UUIDs) repeatable.
        requests_kept: The number of newest requests that `requests` returns.

    Raises:
        ConfigError: An argument or a setting cannot be used, or another broker uses the `data_dir` (raised by `start`).
        OSError: A port is taken (raised by `start`).
        DamageError: The `data_dir` cannot be read, for example if a newer version wrote it (raised by `start`).
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        transaction_version: int | None = None,
        kafka_version: str | None = None,
        config: Mapping[str, str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        copy_of: Snapshot | str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        listeners: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        token_validator: TokenValidator | None = None,
        clock: Literal["real", "virtual"] = "real",
        seed: int | None = None,
        requests_kept: int = 1000,
    ) -> None:
        if clock not in ("real", "virtual"):
            raise ConfigError(f"clock={clock!r}: expected one of real, virtual")
        check_cluster(
            brokers=brokers,
            requests_kept=requests_kept,
            port=port,
            host=host,
            data_dir=data_dir,
            copy_of=copy_of,
            listeners=listeners,
            users=users,
            tls=tls,
            token_validator=token_validator,
        )
        settings = version_settings(kafka_version, transaction_version)
        if clock == "virtual":
            # Clients use connections in real time; a move of the broker's clock must not make them idle.
            settings["connections.max.idle.ms"] = "-1"
        if listeners:
            settings |= listener_settings(listeners, host, port, brokers)
        if token_validator is not None:
            settings["sasl.enabled.mechanisms"] = f"{BrokerConfig().sasl_enabled_mechanisms},OAUTHBEARER"
        self._config = BrokerConfig().override(settings | settings_of(config))
        self._topics = topics_of(topics)
        if data_dir is not None and copy_of is not None:
            raise ConfigError("data_dir and copy_of exclude each other: a copy is kept in memory")
        self._data_dir, self._brokers = data_dir, brokers
        self._copy_of = Snapshot.read(copy_of) if isinstance(copy_of, str | os.PathLike) else copy_of
        self._plans = plan_listeners(self._config, brokers=brokers, host=host, port=port)
        if listeners is not None and not listeners and not self._config.listeners:
            self._plans = []
        self._users, self._tls, self._token_validator = dict(users or {}), tls, token_validator
        check_used(self._plans, users=users, tls=tls, port=port)
        self._clock = VirtualClock() if clock == "virtual" else SystemClock()
        self._entropy = SystemEntropy() if seed is None else SeededEntropy(seed)
        self._requests = RequestLog(requests_kept)
        self._faults_lock, self._registry_lock = threading.Lock(), threading.Lock()
        self._after = ExitStack()
        self._thread = ServerThread(self._make, self._prepare, self._after.close)
        self._registry: Service | None = None
        self._producer = LocalProducer(LocalClient(self._thread), self._call)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the first listener, separated by commas, for clients to connect to.

        Raises RuntimeError for a broker without listeners.
        """
        return self.bootstrap(self._plans[0].name if self._plans else PLAINTEXT)

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings with which a librdkafka client connects; on a real cluster, security settings too."""
        return {"bootstrap.servers": self.bootstrap_servers}

    @property
    def schema_registry_url(self) -> str:
        """The address of a schema registry, which starts when it is first asked for and ends with the broker.

        It serves the REST API of Confluent Schema Registry, and keeps its schemas in the topic `_schemas`. It needs the
        extra `registry`.

        >>> from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
        >>> with EmbeddedBroker() as kafka:
        ...     client = SchemaRegistryClient({"url": kafka.schema_registry_url})
        ...     client.register_schema("orders-value", Schema('"string"', "AVRO"))
        1

        Raises RuntimeError if the broker is not running, and `MissingExtraError` if a library is not installed.
        """
        with self._registry_lock:
            self._thread.running()
            if self._registry is None:
                registry: Service = part("schema_registry", "service").start_registry(self._call, self.produce)
                self._registry = registry
            return self._registry.url

    def bootstrap(self, listener: str) -> str:
        """Return the addresses of one listener, separated by commas; ValueError if there is no such listener."""
        listeners = self.listeners
        if not listeners:
            raise RuntimeError(
                "this broker has no listener, because of listeners={}: Kafka clients cannot connect to it, while "
                "produce(), records() and group() need none; omit the argument for clients"
            )
        if listener.upper() not in listeners:
            raise ValueError(f"there is no listener {listener!r}; there are {', '.join(listeners)}")
        return listeners[listener.upper()]

    @property
    def listeners(self) -> dict[str, str]:
        """The addresses of each listener, separated by commas."""
        # A forked process may ask too, to connect a client.
        return joined_addresses(self._thread.known().addresses)

    def start(self) -> Self:
        """Start the cluster, and return when clients can connect; it cannot be started again after `close`."""
        self._thread.start()
        for observer in tuple(OBSERVERS):
            observer.started(self)
        return self

    def close(self) -> None:
        """Stop the cluster and close its logs cleanly; no effect when it is not running, or in a forked process.

        Raises RuntimeError in the function of a fault, which runs in the broker's thread, and what such a function
        raised, unless its `Fault` has raised it; errors of further functions are its notes.
        """
        self.__exit__(None, None, None)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._thread.check_can_wait()
        if self._thread.is_elsewhere:
            return
        server = self._thread.server
        for observer in tuple(OBSERVERS):
            observer.closing(self)
        with self._registry_lock:
            if self._registry is not None:
                # First, because its requests wait for the broker's thread.
                self._registry.close()
                self._registry = None
        self._thread.stop()
        if server is not None and server.fault_injector is not None:
            report(server.fault_injector.take_raised(), error)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with partitions, of which all brokers are replicas, and with settings, by Kafka's names.

        Raises `KafkaError`, for example with TOPIC_ALREADY_EXISTS, and TypeError for an argument of another type.
        """
        check_topic(name, partitions)
        settings = settings_of(config)
        self._call(lambda cluster: cluster.controller.create_topic(name, partitions, settings))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, at once; raises `KafkaError` with UNKNOWN_TOPIC_OR_PARTITION.

        >>> with EmbeddedBroker(topics={"in": 4}) as kafka:
        ...     kafka.delete_topic("in")
        ...     kafka.topics
        {}
        """
        check_text("name", name)
        if name in INTERNAL_TOPICS:
            raise ValueError(f"{name} is an internal topic: only the topics of users can be deleted")
        self._call(lambda cluster: cluster.controller.delete_topic(name))

    # Time and faults

    @property
    def clock(self) -> ClockHandle:
        """The clock of a cluster with `clock="virtual"`; RuntimeError for any other.

        >>> with EmbeddedBroker(clock="virtual") as kafka:
        ...     before = kafka.clock.now_ms()
        ...     kafka.clock.advance(60)
        ...     kafka.clock.now_ms() - before
        60000
        """
        if not isinstance(self._clock, VirtualClock):
            raise RuntimeError('the clock is real: create the broker with clock="virtual" to advance it')
        return ClockHandle(self._thread, self._clock)

    def fault(
        self,
        *,
        api: ApiName | None = None,
        when: Moment = "before",
        action: Action,
        times: int | None = None,
        nth: int | None = None,
        version: int | None = None,
        client_id: str | None = None,
        principal: str | None = None,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> Fault:
        """Inject a fault into requests that match all the given arguments, until `remove()` or the end of its block.

        >>> from broker_core import Error
        >>> with EmbeddedBroker() as kafka:
        ...     with kafka.fault(api="Metadata", action=Error("BROKER_NOT_AVAILABLE"), times=1) as fault:
        ...         fault.hits
        0

        Args:
            api: Kafka's name of the request's API, such as "Produce".
            when: The moment: "before" the request is handled; "after_apply", when it has taken effect durably and only
                its answer is missing (requests that were refused do not match); "mid", for each marker that the end of
                a transaction has to write, when the transaction is prepared.
            action: `Error`, `Delay`, `Drop`, `Disconnect`, `Hold` or `Throttle`; or a function. The broker's thread
                calls it with the `RequestSeen` before the request continues; it may use `move_leader` and the like.
            times: How many requests at most; by default all.
            nth: Only the nth request that matches, counted from 1.
            version: The API version.
            client_id: The client's `client.id`.
            principal: The user, with or without "User:".
            broker: The id of the broker that receives the request.
            topic: A topic in the request, or in the session of a Fetch; of several, one has to match.
            partition: A partition in the request, likewise.
            group: A consumer group in the request, likewise.
            transactional_id: A transactional id in the request, likewise.

        Raises:
            ValueError: The arguments can never match: an API names no topic, a version is not served, a marker has no
                client.
            TypeError: An argument is of another type, and would never match.
        """
        _ = None if broker is None else self.broker(broker)
        fault_injector = self._thread.running().fault_injector
        assert fault_injector is not None
        fault = Fault(
            partial(self._change_faults, fault_injector.remove),
            api=api,
            when=when,
            action=action,
            times=times,
            nth=nth,
            served=served_apis(self._config.kafka_version),
            version=version,
            client_id=client_id,
            principal=principal,
            broker=broker,
            topic=topic,
            partition=partition,
            group=group,
            transactional_id=transactional_id,
        )
        self._change_faults(fault_injector.add, fault)
        return fault

    def _change_faults(self, change: Callable[[Fault], T], fault: Fault) -> T:
        with self._faults_lock:
            return change(fault)

    def throttle(self, seconds: float, **wanted: Unpack[Wanted]) -> Fault:
        """Throttle the clients of matching requests as a quota does, until `remove()` or the end of its block.

        A client's next request waits `seconds` of the broker's clock after an answer. `wanted` are the arguments of
        `fault` without `when` and `action`.
        """
        return self.fault(action=Throttle(seconds), **wanted)

    @property
    def _server(self) -> SocketServer | None:
        return self._thread.server

    @property
    def broker_ids(self) -> range:
        """Return the ids of all brokers, whether they run or not."""
        return range(self._config.broker_id, self._config.broker_id + self._brokers)

    def _memory(self) -> Storage:
        return MemoryStorage()

    def _make(self) -> SocketServer:
        storage: Storage
        clock, lose_unsynced = self._clock, None
        if self._data_dir is None:
            storage = memory = MemoryStorage() if self._copy_of is None else self._copy_of.to_memory()
            lose_unsynced = memory.crash
        else:
            storage = open_data_folder(self._data_dir, self._after.callback)
        return SocketServer(
            storage=storage,
            entropy=self._entropy,
            clock=clock,
            config=self._config,
            listeners=self._plans,
            brokers=self._brokers,
            tls=self._tls,
            users=self._users,
            token_validator=self._token_validator,
            purgatory=(lambda: RealTimePurgatory(clock)) if isinstance(clock, VirtualClock) else Purgatory,
            request_log=self._requests,
            lose_unsynced=lose_unsynced,
        )

    def _prepare(self, server: SocketServer) -> None:
        for name, partitions in self._topics.items():
            if name not in server.cluster.metadata.topics:
                server.cluster.controller.create_topic(name, partitions)

    def __enter__(self) -> Self:
        return self.start()

    async def __aenter__(self) -> Self:
        start = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            # There will be no `__aexit__`.
            await asyncio.wait([start])
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.__exit__, *error)
