"""The topic `_schemas`: the registry's log."""

import weakref
from collections.abc import Callable
from typing import Any

from broker_core.broker.cluster import Cluster
from broker_core.broker.monitoring.inspection import record_views
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.schema_registry.errors import RegistryError
from broker_core.features.schema_registry.state import State
from broker_core.types import IsolationLevel, TopicPartition

TOPIC = "_schemas"
_PLACE = TopicPartition(TOPIC, 0)


# Writes the records of a topic: `EmbeddedBroker.produce` does.
Producer = Callable[[str, Any], Any]


class SchemaTopic:
    """The records of `_schemas`, and the state they lead to.

    `call` runs a function in the broker's thread. The state is read again when the log is another one: after a
    restored snapshot, a restart, or the deletion of the topic.
    """

    def __init__(self, call: Callable[[Callable[[Cluster], Any]], Any], produce: Producer) -> None:
        self._call = call
        self._produce = produce
        self._state = State()
        self._read: tuple[weakref.ref[Cluster], Any] | None = None
        self._next_offset = 0

    def state(self) -> State:
        for record in self._call(self._new_records):
            self._state.replay(record.key, record.value)
        return self._state

    def write(self, *records: tuple[bytes, bytes | None]) -> None:
        """Append records, durably; raises `RegistryError` if the broker refuses them."""
        try:
            self._call(
                lambda cluster: (
                    TOPIC in cluster.metadata.topics
                    or cluster.controller.create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
                )
            )
            self._produce(TOPIC, list(records))
        except KafkaError as error:
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                raise RegistryError(42209, "Register operation failed because schema is too large") from error
            raise RegistryError(50001, f"Error while writing to the topic {TOPIC}: {error}") from error

    def cluster_id(self) -> str:
        return str(self._call(lambda cluster: cluster.metadata.cluster_id))

    def _new_records(self, cluster: Cluster) -> list[Any]:
        if TOPIC not in cluster.metadata.topics:
            self._read, self._state = None, State()
            return []
        topic_id = cluster.metadata.topic(TOPIC).topic_id
        if self._read is None or self._read[0]() is not cluster or self._read[1] != topic_id:
            self._read, self._state, self._next_offset = (weakref.ref(cluster), topic_id), State(), 0
        log = cluster.logs.get(_PLACE, cluster.now_ms)
        if log.last_stable_offset <= self._next_offset:
            return []
        start = max(self._next_offset, log.log_start_offset)
        found = record_views(cluster, _PLACE, IsolationLevel.READ_COMMITTED, start)
        self._next_offset = log.last_stable_offset
        return found
