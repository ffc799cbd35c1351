"""Everything that clients can see of a history, for comparison with the broker's files."""

from typing import Any, NamedTuple, cast

from broker_core.wire import messages as m
from tests.support.clients import ISOLATIONS, READ_COMMITTED, READ_UNCOMMITTED, Kafka, end_offset, read_to_end
from tests.support.log_history import GROUPS, PARTITIONS, TRANSACTIONAL_IDS, History
from tests.support.messages import filled
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession

_READ_COMMITTED_LEVEL = 1
_UNSTABLE_OFFSET_COMMIT = 88
_TIME_STEP = 10


class SeenRecord(NamedTuple):
    """One record as a consumer received it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class SeenPartition(NamedTuple):
    """One partition as its clients see it.

    By isolation level: its records, its end, and the offset and timestamp found for a timestamp. In addition, the
    aborted transactions as (producer id, first offset), and the producers.
    """

    records: dict[str, list[SeenRecord]]
    ends: dict[str, int]
    found_by_time: dict[str, dict[int, tuple[int, int]]]
    aborted: set[tuple[int, int]]
    producers: set["SeenProducer"]


class SeenProducer(NamedTuple):
    """One producer of a partition as DescribeProducers returns it; the last field is -1 without a transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


class SeenTransaction(NamedTuple):
    """One transactional id as DescribeTransactions returns it."""

    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: frozenset[tuple[str, int]]


class SeenGroup(NamedTuple):
    """One group: offset, leader epoch and metadata by partition; the pending partitions; its description."""

    offsets: dict[tuple[str, int], tuple[int, int, str]]
    pending: set[tuple[str, int]]
    state: str
    protocol_type: str
    protocol: str
    members: set[tuple[Any, ...]]


class Witness(NamedTuple):
    """All that clients can see."""

    partitions: list[SeenPartition]
    transactions: dict[str, SeenTransaction]
    groups: dict[str, SeenGroup]


def see(kafka: Kafka, history: History) -> Witness:
    """Request everything."""
    with RawClient(kafka.bootstrap_servers) as client:
        return Witness(
            [see_partition(kafka, client, history.topic, number, PARTITIONS) for number in range(PARTITIONS)],
            {name: _transaction(client, name) for name in TRANSACTIONAL_IDS},
            {name: _group(client, name) for name in GROUPS},
        )


def see_partition(kafka: Kafka, client: RawClient, topic: str, number: int, partitions: int) -> SeenPartition:
    """Request everything about one partition of a topic that has this number of partitions."""
    records = {
        isolation: [
            SeenRecord(
                cast(int, message.offset()),
                message.timestamp()[1],
                message.key(),
                message.value(),
                tuple(cast(list[Any], message.headers() or [])),
            )
            for message in read_to_end(kafka, topic, isolation=isolation, partitions=partitions)
            if message.partition() == number
        ]
        for isolation in ISOLATIONS
    }
    ends = {isolation: end_offset(kafka, topic, isolation=isolation, partition=number) for isolation in ISOLATIONS}
    aborted = _aborted(client, topic, number, records[READ_UNCOMMITTED], ends[READ_COMMITTED])
    times = [record.timestamp_ms for record in records[READ_UNCOMMITTED][::_TIME_STEP]]
    found = {
        isolation: {time_ms: _find(client, topic, number, time_ms, level) for time_ms in times}
        for level, isolation in enumerate(ISOLATIONS)
    }
    return SeenPartition(records, ends, found, aborted, _producers(client, topic, number))


def _aborted(client: RawClient, topic: str, number: int, records: list[SeenRecord], end: int) -> set[tuple[int, int]]:
    """Collect the aborted transactions from fetches along the whole partition; a fetch ends with its segment."""
    session = RawSession(client, None)
    found = set()
    for offset in [record.offset for record in records if record.offset < end]:
        answer = session.fetch(topic, offset, isolation=_READ_COMMITTED_LEVEL, partition=number)
        assert answer.error_code == 0
        found |= {(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()}
    return found


def _find(client: RawClient, topic: str, number: int, timestamp_ms: int, level: int) -> tuple[int, int]:
    part = {"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp_ms}
    topics = [{"name": topic, "partitions": [part]}]
    answer = client.send(filled(m.ListOffsetsRequest, replica_id=-1, isolation_level=level, topics=topics), 5)
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset, found.timestamp


def _producers(client: RawClient, topic: str, number: int) -> set[SeenProducer]:
    topics = [{"name": topic, "partition_indexes": [number]}]
    answer = client.send(filled(m.DescribeProducersRequest, topics=topics), 0)
    part = answer.topics[0].partitions[0]
    assert part.error_code == 0
    return {
        SeenProducer(
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in part.active_producers
    }


def _transaction(client: RawClient, transactional_id: str) -> SeenTransaction:
    answer = client.send(m.DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states[0]
    assert answer.error_code == 0
    return SeenTransaction(
        answer.transaction_state,
        answer.transaction_timeout_ms,
        answer.transaction_start_time_ms,
        answer.producer_id,
        answer.producer_epoch,
        frozenset((topic.topic, number) for topic in answer.topics for number in topic.partitions),
    )


def _group(client: RawClient, group: str) -> SeenGroup:
    described = client.send(m.DescribeGroupsRequest(groups=[group], include_authorized_operations=False), 5).groups[0]
    assert described.error_code == 0
    return SeenGroup(
        {
            where: (part.committed_offset, part.committed_leader_epoch, part.metadata)
            for where, part in fetch_offsets(client, group).items()
        },
        {
            where
            for where, part in fetch_offsets(client, group, require_stable=True).items()
            if part.error_code == _UNSTABLE_OFFSET_COMMIT
        },
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        {
            (
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                bytes(one.member_metadata),
                bytes(one.member_assignment),
            )
            for one in described.members
        },
    )


def fetch_offsets(client: RawClient, group: str, *, require_stable: bool = False) -> dict[tuple[str, int], Any]:
    """Send one OffsetFetch request for all partitions of a group and return its parts."""
    answer = client.send(m.OffsetFetchRequest(group_id=group, topics=None, require_stable=require_stable), 7)
    assert answer.error_code == 0
    return {(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions}
