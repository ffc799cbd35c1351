"""A cluster without sockets that takes one request at a time, at a time that the test chooses."""

from collections.abc import Mapping
from typing import Any, cast

from broker_core.broker.cluster import Cluster
from broker_core.errors import ErrorCode
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from broker_core.wire.messages import AddPartitionsToTxnRequest
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import filled
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession, record_batch

NONE = ErrorCode.NONE
TOPIC, OTHER = "topic", "other"
PARTITIONS = 2
START_MS = 1_000_000
# One partition each, so that a test can move a coordinator without a lookup.
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
STATE_PARTITION = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


def batch(
    identity: Identity, sequence: int, values: tuple[bytes, ...] = (b"x",), *, transactional: bool = True
) -> bytes:
    """Build one batch with the start time of every cluster here."""
    return record_batch(values, identity, sequence, transactional=transactional, timestamp_ms=START_MS)


class Connection:
    """One client's connection to one broker."""

    def __init__(self, cluster: Cluster, broker_id: int = 1, **options: Any) -> None:
        self.direct = DirectClient(cluster, broker_id, **options)

    def send(self, request: Any, version: int) -> Any:
        """Send a request and return its response, which must be there at once."""
        return self.direct.ask(request, version)

    def close(self) -> None:
        """Close nothing."""


class Session(RawSession):
    """One transactional id; it does not retry."""

    @staticmethod
    def _retry(call: Any, codes: Any) -> Any:
        return call()

    def write(
        self,
        identity: Identity,
        topic: str = TOPIC,
        *,
        sequence: int = 0,
        version: int = 12,
        values: tuple[bytes, ...] = (b"x",),
        partition: int = 0,
    ) -> int:
        """Write one transactional batch and return its base offset; older versions add the partition first."""
        if version < 12:
            assert self.add(identity, topic, partition) == {NONE}
        error, offset = self.produce(topic, batch(identity, sequence, values), version=version, partition=partition)
        assert error == NONE, ErrorCode(error).name
        return offset

    def add_batched(self, identity: Identity, *, verify_only: bool, version: int = 5) -> list[int]:
        """Send one AddPartitionsToTxn for both partitions, as brokers do, and return their error codes."""
        topics = [{"name": TOPIC, "partitions": list(range(PARTITIONS))}]
        named = {"transactional_id": self.transactional_id, "verify_only": verify_only, "topics": topics}
        transactions = [named | {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}]
        answer = self.client.send(filled(AddPartitionsToTxnRequest, transactions=transactions), version)
        [topic] = answer.results_by_transaction[0].topic_results
        return [part.partition_error_code for part in topic.results_by_partition]

    def state(self) -> str:
        """Return the state of the transaction."""
        return str(self.describe().transaction_state)

    def stable(self, topic: str = TOPIC, partition: int = 0) -> int:
        """Return the last stable offset."""
        return int(self.fetch(topic, 0, isolation=1, partition=partition).last_stable_offset)


class World:
    """A cluster with two topics, its coordinators and its clients."""

    def __init__(self, *, storage: Any = None, brokers: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self.cluster = direct_cluster(
            storage, brokers=brokers, settings=SETTINGS | dict(settings or {}), now_ms=START_MS
        )
        for name in (TOPIC, OTHER):
            if name not in self.cluster.metadata.topics:
                self.cluster.controller.create_topic(
                    name, PARTITIONS, replicas=[list(self.cluster.brokers)] * PARTITIONS
                )
        for name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            self.cluster.controller.ensure_topic(name)

    def session(self, transactional_id: str | None = "id", broker_id: int = 1) -> Session:
        """Return a new connection with a transactional id."""
        return Session(cast(RawClient, Connection(self.cluster, broker_id)), transactional_id)

    def pass_ms(self, duration_ms: int) -> None:
        """Advance the clock."""
        self.cluster.advance(self.cluster.now_ms + duration_ms)

    def reload(self, broker_id: int = 1) -> None:
        """Elect the leader of the state topic again, as a failover does: the coordinator loads its state again."""
        self.cluster.controller.move_leader(STATE_PARTITION, broker_id)
        self.cluster.settle(self.cluster.now_ms)

    def hold_markers(self) -> None:
        """Write no markers from now on, so that a transaction stays prepared."""
        for broker in self.cluster.brokers.values():
            vars(broker.transactions.completion)["take"] = list

    def release_markers(self) -> None:
        """Let a new coordinator load the prepared transactions and write their markers."""
        for broker in self.cluster.brokers.values():
            del vars(broker.transactions.completion)["take"]
        self.reload()
