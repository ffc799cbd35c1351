"""Views of a cluster for tests: transactions, partitions, records and pending work."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker_core.broker.cluster import Cluster
from broker_core.log.indexes import AbortedEntry
from broker_core.log.partition_log import PartitionLog
from broker_core.log.producer_entry import ProducerStateEntry
from broker_core.log.producer_state import OngoingTransaction
from broker_core.records.batch import Record
from broker_core.records.control import control_type_of
from broker_core.records.header import BatchHeader
from broker_core.types import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, IsolationLevel, TopicPartition, counted

_SHOWN_BYTES = 40
_SHOWN_RECORDS = 5
_MAX_OFFSET = 2**63 - 1
_ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


@dataclass(frozen=True, slots=True)
class TransactionView:
    """The state of a transactional id at one moment.

    `state` is Kafka's name of the state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort;
    `partitions` are those without a marker yet; `start_ms` is -1 if no transaction was begun.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    timeout_ms: int
    start_ms: int
    coordinator: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The state of a partition at one moment: its offsets, its leader, its producers and their transactions."""

    topic_partition: TopicPartition
    leader: int
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    open_transactions: tuple[OngoingTransaction, ...]
    aborted_transactions: tuple[AbortedEntry, ...]
    producers: tuple[ProducerStateEntry, ...]
    _listing: tuple[str, ...]

    def dump(self) -> str:
        """Return a readable listing: the offsets, then a line for each batch with its first few records."""
        marks = (
            f"{self.topic_partition}: log start {self.log_start_offset}, LSO {self.last_stable_offset}, "
            f"HW {self.high_watermark}, log end {self.log_end_offset}, leader {self.leader} at epoch "
            f"{self.leader_epoch}"
        )
        return "\n".join([marks, *(f"  {line}" for line in self._listing)])


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record in a partition's log.

    `topic` and `partition` name its partition. `producer_id` and `producer_epoch` are -1 for a producer that is not
    idempotent. A control record has `is_control`; if it ends a transaction, `marker` is "COMMIT" or "ABORT".
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_control: bool
    marker: str | None
    topic: str
    partition: int


def transaction_view(cluster: Cluster, transactional_id: str) -> TransactionView | None:
    """Return the state of a transactional id, None if its coordinator does not know it."""
    if TRANSACTION_STATE_TOPIC not in cluster.metadata.topics:
        return None
    partition = cluster.controller.coordinator_partition_of(TRANSACTION_STATE_TOPIC, transactional_id)
    broker = cluster.controller.leader_of(partition)
    if broker is None:
        return None
    image = broker.transactions.images().get(transactional_id)
    if image is None:
        return None
    found = broker.transactions.describe(transactional_id)
    return TransactionView(
        transactional_id,
        image.state.label,
        image.producer_id,
        image.producer_epoch,
        image.partitions if isinstance(found, int) else found.partitions,
        image.timeout_ms,
        image.start_ms,
        broker.broker_id,
    )


def transaction_views(cluster: Cluster) -> list[TransactionView]:
    """Return the state of each transactional id that has a coordinator, sorted by id."""
    ids = {name for broker in cluster.brokers.values() for name in broker.transactions.images()}
    return [view for name in sorted(ids) if (view := transaction_view(cluster, name)) is not None]


def partition_view(cluster: Cluster, topic_partition: TopicPartition, from_offset: int | None = None) -> PartitionView:
    """Return the state of a partition, with a listing from an offset on; raises UNKNOWN_TOPIC_OR_PARTITION."""
    leadership = cluster.metadata.leadership(topic_partition)
    log = cluster.logs.get(topic_partition, cluster.now_ms)
    return PartitionView(
        topic_partition,
        leadership.leader,
        leadership.leader_epoch,
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.log_end_offset,
        tuple(log.producer_state.open_transactions),
        tuple(log.aborted_transactions()),
        tuple(log.producer_state.entries),
        tuple(_listing(log, from_offset)),
    )


def record_views(
    cluster: Cluster,
    topic_partition: TopicPartition,
    isolation: IsolationLevel | None = None,
    from_offset: int | None = None,
    *,
    control: bool = False,
) -> list[RecordView]:
    """Return the records of a partition that a reader of that isolation level gets; raises UNKNOWN_TOPIC_OR_PARTITION.

    With `control` the control records among them are returned too. Without an isolation level all records in the log
    are returned.
    """
    log = cluster.logs.get(topic_partition, cluster.now_ms)
    found = log.read_journal(from_offset)
    if isolation is None:
        return [_record_view(topic_partition, *each) for each in found]
    bound = log.bound(isolation)
    aborted = _AbortedOffsets(log.aborted_transactions() if isolation is IsolationLevel.READ_COMMITTED else ())
    return [
        _record_view(topic_partition, offset, header, record)
        for offset, header, record in found
        if offset < bound
        and (control if header.is_control else not (header.is_transactional and aborted.covers(offset, header)))
    ]


class _AbortedOffsets:
    """The offset ranges of aborted transactions, by producer."""

    def __init__(self, entries: Iterable[AbortedEntry]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for entry in entries:
            self._ranges.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))
        for ranges in self._ranges.values():
            ranges.sort()

    def covers(self, offset: int, header: BatchHeader) -> bool:
        ranges = self._ranges.get(header.producer_id)
        if ranges is None:
            return False
        # Transactions of one producer do not overlap, so only the last that begins at or before the offset matters.
        index = bisect_right(ranges, (offset, _MAX_OFFSET)) - 1
        return index >= 0 and offset <= ranges[index][1]


def _record_view(topic_partition: TopicPartition, offset: int, header: BatchHeader, record: Record) -> RecordView:
    marker = control_type_of(record.key) if header.is_control else None
    return RecordView(
        offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
        header.producer_id,
        header.producer_epoch,
        header.is_transactional,
        header.is_control,
        None if marker is None else marker.name,
        *topic_partition,
    )


def _listing(log: PartitionLog, from_offset: int | None) -> Iterator[str]:
    """Describe each batch; `read_journal` yields records, so the records of one batch are collected first."""
    open_now = {entry.producer_id for entry in log.producer_state.open_transactions}
    header: BatchHeader | None = None
    records: list[tuple[int, Record]] = []
    for offset, its_header, record in log.read_journal(from_offset):
        if header is not None and its_header is not header and its_header.base_offset != header.base_offset:
            yield _line(header, records, open_now)
            records = []
        header = its_header
        records.append((offset, record))
    if header is not None:
        yield _line(header, records, open_now)


def _line(header: BatchHeader, records: list[tuple[int, Record]], open_now: set[int]) -> str:
    where = f"{records[0][0]}" if len(records) == 1 else f"{records[0][0]}..{records[-1][0]}"
    who = f" producer {header.producer_id}/{header.producer_epoch}" if header.producer_id >= 0 else ""
    if header.is_control:
        kind = control_type_of(records[0][1].key)
        return f"{where}{who} {'control' if kind is None else kind.name}"
    if header.is_transactional:
        who += " transactional" + (", its producer has one open" if header.producer_id in open_now else "")
    elif header.producer_id >= 0:
        who += f" sequence {header.base_sequence}"
    shown = ", ".join(f"{_text(record.key)}={_text(record.value)}" for _, record in records[:_SHOWN_RECORDS])
    more = f", ... {len(records) - _SHOWN_RECORDS} more" if len(records) > _SHOWN_RECORDS else ""
    return f"{where}{who}: {shown}{more}"


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(bytes(data[:_SHOWN_BYTES]))[1:]
    return f"{text}..." if len(data) > _SHOWN_BYTES else text


def pending_work(cluster: Cluster, *, clients_may_wait: bool) -> list[str]:
    """Return a line for each open transaction, unstable partition and, unless allowed, waiting request."""
    found = []
    for broker in cluster.brokers.values():
        for name, image in sorted(broker.transactions.images().items()):
            if image.state.label not in _ENDED:
                waiting = ", ".join(map(str, sorted(image.partitions))) or "no partition"
                found.append(
                    f"transaction {name!r} is {image.state.label} (producer {image.producer_id}, epoch "
                    f"{image.producer_epoch}) over {waiting}"
                )
    for log in cluster.logs.opened():
        if log.last_stable_offset != log.high_watermark:
            open_ones = "; ".join(
                f"producer {each.producer_id} has one open from offset {each.first_offset}"
                for each in log.producer_state.open_transactions
            )
            found.append(
                f"partition {log.topic_partition} has LSO {log.last_stable_offset} below HW "
                f"{log.high_watermark}: {open_ones or 'no transaction is open there'}"
            )
    found += [
        f"partition {each} has no leader"
        for topic in cluster.metadata.topics.values()
        for each in topic.topic_partitions()
        if cluster.controller.leader_of(each) is None
    ]
    waiting_count = 0 if clients_may_wait else cluster.purgatory.waiting_count
    if waiting_count:
        found.append(
            f"{counted(waiting_count, 'request')} in the purgatory, such as the fetch of an open consumer: "
            "close the consumer first, or pass clients_may_wait=True"
        )
    return found


def partition_counts(cluster: Cluster) -> dict[str, int]:
    return {
        name: len(topic.partitions) for name, topic in cluster.metadata.topics.items() if name not in INTERNAL_TOPICS
    }


def written_partitions(cluster: Cluster) -> list[TopicPartition]:
    places = [
        place
        for name, topic in cluster.metadata.topics.items()
        if name not in INTERNAL_TOPICS
        for place in topic.topic_partitions()
        # After a restart, the logs are not open until they are used.
        if not cluster.logs.is_untouched(place)
    ]
    return [place for place in places if cluster.logs.get(place, cluster.now_ms).log_end_offset > 0]
