"""One transaction on a cluster whose leaders move, with time and markers under the test's control."""

from collections.abc import Collection
from typing import Any

import pytest

from broker_core.broker.cluster import Cluster
from broker_core.broker.journals import TopicJournal
from broker_core.broker.marker_writer import MarkerWriter
from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.coordinator.transactions.records import encode_key, encode_value
from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.header import BatchHeader, iter_headers
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ProducerIdentity, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core.requests import (
    end_transaction,
    fetch_request,
    init_producer,
    of,
    offset_commit,
    produced,
)
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import filled

GROUP, TOPIC = "group", "t"
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
CLASSIC, V2 = 1, 2
# Produce, EndTxn and TxnOffsetCommit as the newest client of each generation sends them.
PRODUCE, END, OFFSETS = {CLASSIC: 11, V2: 12}, {CLASSIC: 4, V2: 5}, {CLASSIC: 4, V2: 5}
protocols = pytest.mark.parametrize("protocol", [CLASSIC, V2])
ends = pytest.mark.parametrize("commit", [True, False])


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
        self.clients = {broker: DirectClient(self.cluster, broker) for broker in self.cluster.brokers}
        self.state_partition = self.cluster.controller.coordinator_partition_of(
            TRANSACTION_STATE_TOPIC, transactional_id
        )
        self.offsets_partition = self.cluster.controller.coordinator_partition_of(CONSUMER_OFFSETS_TOPIC, GROUP)
        self.identity = ProducerIdentity(-1, -1)
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
        self.identity = image.identity
        self.move(self.state_partition)

    def set_level(self, level: int) -> None:
        """Change the cluster's `transaction.version` while it runs."""
        kind = 1 if level > self.cluster.metadata.transaction_version else 2
        answer = self.clients[1].ask(
            filled(
                m.UpdateFeaturesRequest,
                validate_only=False,
                feature_updates=[{"feature": "transaction.version", "max_version_level": level, "upgrade_type": kind}],
            ),
            2,
        )
        assert answer.error_code == 0, answer

    # Requests; each goes to the current leader unless it names a broker

    def ask_coordinator(self, request: Any, version: int, broker: int | None = None) -> Any:
        return self.clients[broker or self.coordinator].ask(request, version)

    def init(self, broker: int | None = None, timeout_ms: int = 60_000) -> ErrorCode:
        answer = init_producer(self.clients[broker or self.coordinator], self.transactional_id, timeout_ms)
        if answer.error_code == 0:
            self._hold(answer)
        return ErrorCode(answer.error_code)

    def _hold(self, answer: Any) -> None:
        self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        self._sequences = dict.fromkeys(PARTITIONS, 0)

    def add(self, topic_partition: TopicPartition, broker: int | None = None) -> ErrorCode:
        request = m.AddPartitionsToTxnRequest
        answer = self.ask_coordinator(
            filled(
                request,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.identity.producer_id,
                v3_and_below_producer_epoch=self.identity.producer_epoch,
                v3_and_below_topics=[{"name": topic_partition.topic, "partitions": [topic_partition.partition]}],
            ),
            3,
            broker,
        )
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(
        self, topic_partition: TopicPartition, broker: int | None = None, sequence: int | None = None
    ) -> tuple[ErrorCode, int]:
        """Write one record in the transaction; return error code and offset."""
        used = self._sequences.get(topic_partition, 0) if sequence is None else sequence
        batch = build_batch(
            [NewRecord(None, b"x", (), self.cluster.now_ms)],
            base_sequence=used,
            is_transactional=True,
            **of(self.identity),
        )
        part = produced(
            self.clients[broker or self.leader(topic_partition)],
            batch,
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            transactional_id=self.transactional_id,
            version=PRODUCE[self.protocol],
        )
        if part.error_code == 0:
            self._sequences[topic_partition] = used + 1
        return ErrorCode(part.error_code), part.base_offset

    def write(self, *topic_partitions: TopicPartition) -> None:
        """Write a record to each partition, as the client's protocol requires."""
        for topic_partition in topic_partitions or PARTITIONS:
            if self.protocol == CLASSIC:
                assert self.add(topic_partition) is ErrorCode.NONE
            assert self.produce(topic_partition)[0] is ErrorCode.NONE

    def commit_offset(self, offset: int, broker: int | None = None) -> ErrorCode:
        """Commit an offset of partition 0 in the transaction."""
        if self.protocol == CLASSIC:
            fields = {"transactional_id": self.transactional_id, "group_id": GROUP, **of(self.identity)}
            assert self.ask_coordinator(m.AddOffsetsToTxnRequest(**fields), 3).error_code == 0
        answer = self.clients[broker or self.leader(self.offsets_partition)].ask(
            offset_commit(self.identity, offset, group=GROUP, transactional_id=self.transactional_id),
            OFFSETS[self.protocol],
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def committed(self, broker: int | None = None) -> tuple[ErrorCode, int]:
        """Return the committed offset that a consumer with require_stable gets."""
        request = m.OffsetFetchRequest
        answer = self.clients[broker or self.leader(self.offsets_partition)].ask(
            filled(request, group_id=GROUP, topics=[{"name": TOPIC, "partition_indexes": [0]}], require_stable=True), 7
        )
        if answer.error_code:
            return ErrorCode(answer.error_code), -1
        part = answer.topics[0].partitions[0]
        return ErrorCode(part.error_code), part.committed_offset

    def end(self, *, commit: bool, broker: int | None = None) -> tuple[ErrorCode, ProducerIdentity]:
        """End the transaction; the producer id and epoch of the response, if any, are not used yet."""
        client = self.clients[broker or self.coordinator]
        fields = {"version": END[self.protocol], "transactional_id": self.transactional_id}
        answer = end_transaction(client, self.identity, commit=commit, **fields)
        return ErrorCode(answer.error_code), ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def go_on_as(self, identity: ProducerIdentity) -> None:
        """Use the producer id and epoch of an EndTxn response, if the protocol has them."""
        if identity.producer_id >= 0:
            self.identity = identity
            self._sequences = dict.fromkeys(PARTITIONS, 0)

    def state(self, broker: int | None = None) -> str:
        """Return the state of the id, or the name of the error code."""
        request = m.DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        [found] = self.ask_coordinator(request, 0, broker).transaction_states
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
            filled(
                m.ListOffsetsRequest,
                replica_id=-1,
                isolation_level=isolation,
                topics=[
                    {
                        "name": topic_partition.topic,
                        "partitions": [
                            {"partition_index": topic_partition.partition, "current_leader_epoch": -1, "timestamp": -1}
                        ],
                    }
                ],
            ),
            4,
        )
        part = answer.topics[0].partitions[0]
        return ErrorCode(part.error_code), part.offset

    def described_open(self, topic_partition: TopicPartition, broker: int) -> list[int]:
        """Return the first offsets of the open transactions in a partition according to a broker."""
        answer = self.clients[broker].ask(
            filled(
                m.DescribeProducersRequest,
                topics=[{"name": topic_partition.topic, "partition_indexes": [topic_partition.partition]}],
            ),
            0,
        )
        producers = answer.topics[0].partitions[0].active_producers
        return [each.current_txn_start_offset for each in producers if each.current_txn_start_offset >= 0]

    # What readers see

    def fetched(self, topic_partition: TopicPartition, isolation: int, broker: int | None = None) -> Any:
        fields = {"isolation_level": isolation, "min_bytes": 0}
        request = fetch_request(topic_partition.topic, {"partition": topic_partition.partition}, **fields)
        return self.clients[broker or self.leader(topic_partition)].ask(request, 11).responses[0].partitions[0]

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
        return [entry.coordinator_epoch for entry in log.producers()]


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
