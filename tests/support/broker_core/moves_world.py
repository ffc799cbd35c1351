"""One transaction on a cluster whose leaders move, with time and markers under the test's control."""

from collections.abc import Collection
from typing import Any, cast

import pytest

from broker_core.broker.cluster import Cluster
from broker_core.broker.journals import TopicJournal
from broker_core.broker.marker_writer import MarkerWriter
from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.coordinator.transactions.records import encode_key, encode_value
from broker_core.errors import ErrorCode
from broker_core.records.header import BatchHeader, iter_headers
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core.kip_world import Connection, Session
from tests.support.broker_core.requests import fetch_request
from tests.support.direct import direct_cluster
from tests.support.messages import levels_request, offsets_request
from tests.support.protocols import CLASSIC, END, PRODUCE, TXN_OFFSET_COMMIT, V2, both_ends, both_protocols
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, Identity, record_batch

GROUP, TOPIC = "group", "t"
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
protocols, ends = both_protocols, both_ends


class MovesWorld:
    """A cluster of several brokers, and the transactional id under test."""

    def __init__(
        self,
        *,
        protocol: int = V2,
        level: int = 2,
        brokers: int = 2,
        settings: dict[str, str] | None = None,
        beside: "MovesWorld | None" = None,
        transactional_id: str = "id",
    ) -> None:
        """Create a cluster, or share the one of another world for another transactional id."""
        self.protocol = protocol
        self.transactional_id = transactional_id
        self.cluster: Cluster = (
            beside.cluster
            if beside
            else direct_cluster(brokers=brokers, settings={"transaction.version": str(level), **(settings or {})})
        )
        if beside is None:
            self.cluster.controller.create_topic(TOPIC, len(PARTITIONS))
        connections = {broker: Connection(self.cluster, broker) for broker in self.cluster.brokers}
        self.clients = {broker: connection.direct for broker, connection in connections.items()}
        self.sessions = {
            broker: Session(cast(RawClient, connection), transactional_id) for broker, connection in connections.items()
        }
        self.state_partition = self.cluster.controller.coordinator_partition_of(
            TRANSACTION_STATE_TOPIC, transactional_id
        )
        self.offsets_partition = self.cluster.controller.coordinator_partition_of(CONSUMER_OFFSETS_TOPIC, GROUP)
        self.identity = NOBODY
        self._sequences = dict.fromkeys(PARTITIONS, 0)

    # Leaders

    def leader(self, topic_partition: TopicPartition) -> int:
        return self.cluster.metadata.leadership(topic_partition).leader

    @property
    def coordinator(self) -> int:
        return self.leader(self.state_partition)

    def move(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Move the partition's leader to the next broker id; return the old one and the new one."""
        old = self.leader(topic_partition)
        new = old % len(self.clients) + 1
        self.cluster.controller.move_leader(topic_partition, new)
        self.cluster.settle(self.cluster.now_ms)
        return old, new

    def move_leaving_a_zombie(self, topic_partition: TopicPartition, patch: pytest.MonkeyPatch) -> tuple[int, int]:
        """Move the transaction coordinator; the old one does not learn that it no longer leads."""
        with patch.context() as deaf:
            deaf.setattr(self.cluster.brokers[self.leader(topic_partition)].transactions, "resign", lambda _: None)
            return self.move(topic_partition)

    def rewrite(self, *, producer_epoch: int) -> None:
        """Set the id to another producer epoch, as after long use."""
        broker = self.cluster.brokers[self.coordinator]
        leadership = self.cluster.metadata.leadership(self.state_partition)
        image = broker.transactions.images()[self.transactional_id]._replace(producer_epoch=producer_epoch)
        journal = TopicJournal(
            TRANSACTION_STATE_TOPIC,
            broker.broker_id,
            self.cluster.metadata,
            self.cluster.logs,
            lambda: self.cluster.now_ms,
        )
        journal.append(
            self.state_partition.partition,
            leadership.leader_epoch,
            [JournalRecord(encode_key(self.transactional_id), encode_value(image, 1))],
            self.cluster.now_ms,
        )
        self.identity = Identity(*image.identity)
        self.move(self.state_partition)

    def set_level(self, level: int) -> None:
        """Change the cluster's `transaction.version` while it runs."""
        kind = 1 if level > self.cluster.metadata.transaction_version else 2
        answer = self.clients[1].ask(levels_request(("transaction.version", level, kind)), 2)
        assert answer.error_code == 0, answer

    # Requests; each goes to the current leader unless it names a broker

    def session(self, broker: int | None = None) -> Session:
        """Return the session with a broker, by default with the transaction coordinator."""
        return self.sessions[broker or self.coordinator]

    def init(self, broker: int | None = None, timeout_ms: int = 60_000) -> ErrorCode:
        error, identity = self.session(broker).init(timeout_ms=timeout_ms)
        self.go_on_as(identity)
        return ErrorCode(error)

    def add(self, topic_partition: TopicPartition, broker: int | None = None) -> ErrorCode:
        [code] = self.session(broker).add(self.identity, topic_partition.topic, topic_partition.partition)
        return ErrorCode(code)

    def produce(
        self, topic_partition: TopicPartition, broker: int | None = None, sequence: int | None = None
    ) -> tuple[ErrorCode, int]:
        """Write one record in the transaction; return error code and offset."""
        used = self._sequences.get(topic_partition, 0) if sequence is None else sequence
        batch = record_batch([b"x"], self.identity, used, timestamp_ms=self.cluster.now_ms)
        error, offset = self.session(broker or self.leader(topic_partition)).produce(
            topic_partition.topic, batch, version=PRODUCE[self.protocol], partition=topic_partition.partition
        )
        if not error:
            self._sequences[topic_partition] = used + 1
        return ErrorCode(error), offset

    def write(self, *topic_partitions: TopicPartition) -> None:
        """Write a record to each partition, as the client's protocol requires."""
        for topic_partition in topic_partitions or PARTITIONS:
            if self.protocol == CLASSIC:
                assert self.add(topic_partition) is ErrorCode.NONE
            assert self.produce(topic_partition)[0] is ErrorCode.NONE

    def commit_offset(self, offset: int, broker: int | None = None) -> ErrorCode:
        """Commit an offset of partition 0 in the transaction."""
        if self.protocol == CLASSIC:
            assert self.session().add_offsets(self.identity, GROUP) == 0
        session, version = self.session(broker or self.leader(self.offsets_partition)), TXN_OFFSET_COMMIT[self.protocol]
        return ErrorCode(session.commit_in_transaction(self.identity, GROUP, TOPIC, offset, version=version))

    def committed(self, broker: int | None = None) -> tuple[ErrorCode, int]:
        """Return the committed offset that a consumer with require_stable gets."""
        session = self.session(broker or self.leader(self.offsets_partition))
        error, offset = session.committed(GROUP, TOPIC, require_stable=True)
        return ErrorCode(error), offset

    def end(self, *, commit: bool, broker: int | None = None) -> tuple[ErrorCode, Identity]:
        """End the transaction; the producer id and epoch of the response, if any, are not used yet."""
        error, following = self.session(broker).end(self.identity, commit=commit, version=END[self.protocol])
        return ErrorCode(error), following

    def go_on_as(self, identity: Identity) -> None:
        """Use the producer id and epoch of a response, if it has them."""
        if identity.producer_id >= 0:
            self.identity = identity
            self._sequences = dict.fromkeys(PARTITIONS, 0)

    def state(self, broker: int | None = None) -> str:
        """Return the state of the id, or the name of the error code."""
        found = self.session(broker).describe()
        return ErrorCode(found.error_code).name if found.error_code else str(found.transaction_state)

    def found_coordinators(self, broker: int) -> list[tuple[ErrorCode, int]]:
        """Return a broker's FindCoordinator responses for the group and for the id."""
        answers = [
            self.clients[broker].ask(m.FindCoordinatorRequest(key=key, key_type=key_type), 3)
            for key_type, key in enumerate((GROUP, self.transactional_id))
        ]
        return [(ErrorCode(answer.error_code), answer.node_id) for answer in answers]

    def described_leader(self, topic_partition: TopicPartition, broker: int) -> tuple[ErrorCode, int, int]:
        """Return a partition in a broker's metadata: error code, leader and leader epoch."""
        asked = m.MetadataRequest.MetadataRequestTopic(name=topic_partition.topic)
        [topic] = self.clients[broker].ask(m.MetadataRequest(topics=[asked], allow_auto_topic_creation=False), 9).topics
        part = topic.partitions[topic_partition.partition]
        return ErrorCode(part.error_code), part.leader_id, part.leader_epoch

    def described_end(self, topic_partition: TopicPartition, broker: int, isolation: int = 1) -> tuple[ErrorCode, int]:
        """Return the end of a partition according to a broker."""
        answer = self.clients[broker].ask(
            offsets_request(topic_partition.topic, partitions=[topic_partition.partition], isolation=isolation), 4
        )
        part = answer.topics[0].partitions[0]
        return ErrorCode(part.error_code), part.offset

    def described_open(self, topic_partition: TopicPartition, broker: int) -> list[int]:
        """Return the first offsets of the open transactions in a partition according to a broker."""
        producers = self.session(broker).producers(topic_partition.topic, topic_partition.partition).active_producers
        return [each.current_txn_start_offset for each in producers if each.current_txn_start_offset >= 0]

    # What readers see

    def fetched(self, topic_partition: TopicPartition, isolation: int, broker: int | None = None) -> Any:
        session = self.session(broker or self.leader(topic_partition))
        return session.fetch(topic_partition.topic, 0, isolation=isolation, partition=topic_partition.partition)

    def markers(self, topic_partition: TopicPartition) -> list[BatchHeader]:
        """Return the headers of the markers in a partition."""
        records = bytes(self.fetched(topic_partition, 0).records or b"")
        return [header for _, header in iter_headers(records) if header.is_control]

    def outcome(self, topic_partition: TopicPartition) -> tuple[bool, int]:
        """Return whether no transaction is open in the partition, and how many were aborted in it."""
        seen = self.fetched(topic_partition, 1)
        return seen.last_stable_offset == seen.high_watermark, len(seen.aborted_transactions or ())

    def coordinator_epochs(self, topic_partition: TopicPartition) -> list[int]:
        """Return the coordinator epoch of each producer's last marker in the partition."""
        log = self.cluster.logs.get(topic_partition, self.cluster.now_ms)
        return [entry.coordinator_epoch for entry in log.producer_state.entries]


def waiting_fetch(topic_partition: TopicPartition, offset: int = 0) -> Any:
    """Build a read_committed fetch that waits up to a minute for records."""
    wanted = {"partition": topic_partition.partition, "fetch_offset": offset}
    return fetch_request(topic_partition.topic, wanted, max_wait_ms=60_000, isolation_level=1)


def holding_markers(patch: pytest.MonkeyPatch, let_through: Collection[TopicPartition] = ()) -> list[MarkerOrder]:
    """Hold markers back, except in some partitions; return the list that collects the held requests."""
    held: list[MarkerOrder] = []

    deliver = MarkerWriter.deliver

    def hold(self: MarkerWriter, sender: Any, order: MarkerOrder, now_ms: int) -> None:
        held.append(order)
        written = order.partitions & frozenset(let_through)
        if written:
            deliver(self, sender, order._replace(partitions=written), now_ms)

    patch.setattr(MarkerWriter, "deliver", hold)
    return held


def complete(commit: bool) -> str:
    """Return the name of a completed transaction's state."""
    return "CompleteCommit" if commit else "CompleteAbort"


def prepared(commit: bool) -> str:
    """Return the name of a prepared transaction's state."""
    return "PrepareCommit" if commit else "PrepareAbort"


def open_world(protocol: int, **options: Any) -> MovesWorld:
    """Create a world in which the id has its first producer id and epoch."""
    world = MovesWorld(protocol=protocol, **options)
    assert world.init() is ErrorCode.NONE
    return world


def finish_one_more(world: MovesWorld, *, aborted_before: int = 0) -> None:
    """Run a whole transaction after the move, to show that the id works as before."""
    world.write()
    assert world.fetched(PARTITIONS[0], 1).last_stable_offset < world.fetched(PARTITIONS[0], 1).high_watermark
    error, following = world.end(commit=True)
    assert error is ErrorCode.NONE
    world.go_on_as(following)
    assert world.state() == "CompleteCommit"
    assert [world.outcome(one) for one in PARTITIONS] == [(True, aborted_before)] * 2
