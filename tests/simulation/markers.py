"""Every transaction of the history and its markers in the log: one for each partition that it touched.

A second marker after the first, without records of the producer between them, is legitimate in two cases only:

- A coordinator that loaded its state partition, after a restart or a move, found the transaction prepared. It cannot
  know which markers are written, so it writes all of them again (rules A.13). The watch records each such load, so a
  repetition without a load is reported in every world, however many faults it has.
- Under the old protocol, transactions share an epoch, and a partition can be added to the next transaction without
  being written to. Its marker then looks like a repetition. It is an abort marker unless a late AddPartitionsToTxn has
  added the partition.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from broker_core.coordinator.transactions.completion import TransactionCompletion
from broker_core.coordinator.transactions.coordinator import has_timed_out
from broker_core.coordinator.transactions.records import PREPARED
from broker_core.coordinator.transactions.store import TransactionEntry
from broker_core.log.partition_log import AppendResult, PartitionLog
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition, TransactionEnd
from broker_core.wire import messages as m
from tests.simulation.history import TXN, key_of
from tests.support.history.format import FAIL, INFO, INVOKE, OK, Op

if TYPE_CHECKING:
    from tests.simulation.world import World

COMMIT, ABORT, OPEN = "commit", "abort", "no"
_COMMIT_TYPE = b"\0\1"
_NEW_PROTOCOL = 2
_ADDING = frozenset(
    request.API_KEY.to_bytes(2, "big") for request in (m.AddPartitionsToTxnRequest, m.AddOffsetsToTxnRequest)
)
Place = tuple[TopicPartition, int]


class MarkerWatch:
    """What no log shows: the loads that found prepared transactions before each marker, and the timeouts."""

    def __init__(self) -> None:
        # How often a load has found a prepared transaction of the producer id: in all, and when a marker was written.
        self.loads: Counter[int] = Counter()
        self._loads_before: dict[Place, int] = {}
        # The epoch of the coordinator that wrote each marker.
        self._coordinator_epochs: dict[Place, int] = {}
        # Producer id, and epoch of the records, of each transaction that the coordinator aborted at its timeout.
        self.timed_out: set[tuple[int, int]] = set()
        # Producer id and epoch of every commit marker.
        self.committed: set[tuple[int, int]] = set()

    def is_repeated_by_a_load(self, topic_partition: TopicPartition, first: "Marker", second: "Marker") -> bool:
        """Return whether a coordinator found the transaction prepared when it loaded its state, and wrote the second.

        The order of the coordinator before it may be delivered after the load.
        """
        places = (topic_partition, first.offset), (topic_partition, second.offset)
        before, after = (self._loads_before.get(place, 0) for place in places)
        old, new = (self._coordinator_epochs.get(place, 0) for place in places)
        return after > before or (after > 0 and new > old)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all coordinators and logs until the block ends."""
        resume, abort, append = (
            TransactionCompletion.resume,
            TransactionCompletion.abort_ongoing,
            PartitionLog.append_end_txn_marker,
        )

        def resume_watched(ending: TransactionCompletion, partition: int, now_ms: int) -> None:
            self.loads.update(
                entry.image.producer_id
                for entry in ending._store.led[partition].entries.values()
                if entry.image.state in PREPARED
            )
            resume(ending, partition, now_ms)

        def abort_watched(ending: TransactionCompletion, entry: TransactionEntry, now_ms: int) -> None:
            if has_timed_out(entry.image, now_ms):
                self.timed_out.add((entry.image.producer_id, entry.image.producer_epoch))
            abort(ending, entry, now_ms)

        def append_watched(log: PartitionLog, end: TransactionEnd, **rest: Any) -> AppendResult:
            # Before the write: the marker may become durable although the power fails during the write.
            place = (log.topic_partition, log.log_end_offset)
            self._loads_before[place] = self.loads[end.producer.producer_id]
            self._coordinator_epochs[place] = end.coordinator_epoch
            if end.commit:
                self.committed.add(end.producer)
            return append(log, end, **rest)

        with (
            patch.multiple(TransactionCompletion, resume=resume_watched, abort_ongoing=abort_watched),
            patch.object(PartitionLog, "append_end_txn_marker", append_watched),
        ):
            yield


class Marker(NamedTuple):
    """A marker in the log."""

    offset: int
    epoch: int
    kind: str


class KeptBatch:
    """A batch of a log as kafka-python reads it; its records are decoded once, when they are first used."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    @cached_property
    def records(self) -> list[Any]:
        """Return the records."""
        return list(self._batch)

    @cached_property
    def marker(self) -> str | None:
        """Return which kind of marker this is, or None."""
        if not self._batch.is_control_batch:
            return None
        return COMMIT if self.records[0].key[2:4] == _COMMIT_TYPE else ABORT


@dataclass
class Span:
    """Records of one producer id without a marker between them, and the markers up to its next records."""

    producer_id: int
    data: list[KeptBatch] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Return the outcome according to the first marker after the records."""
        return self.markers[0].kind if self.markers else OPEN


def spans_of(batches: list[KeptBatch]) -> list[Span]:
    """Split the transactional batches of one partition by producer id and marker."""
    found: list[Span] = []
    current: dict[int, Span] = {}
    for batch in batches:
        if not batch.is_transactional:
            continue
        span = current.get(batch.producer_id)
        if span is None or (span.markers and batch.marker is None):
            span = current[batch.producer_id] = Span(batch.producer_id)
            found.append(span)
        if batch.marker is not None:
            span.markers.append(Marker(batch.base_offset, batch.producer_epoch, batch.marker))
        else:
            span.data.append(batch)
    return found


Scanned = dict[TopicPartition, list[Span]]


def check_markers(world: "World", scanned: Scanned) -> Iterator[str]:
    """Check that there are neither too many nor too few markers, by the logs alone and by the history."""
    if world.plan.is_undisturbed and world.watch.loads:
        yield "a coordinator loaded its state again in a world without a cause for it"
    for topic_partition, spans in scanned.items():
        for span in spans:
            yield from _check_epochs(topic_partition, span)
            yield from _check_repetitions(world, topic_partition, span)
    yield from _check_history(world, scanned)


def _check_epochs(topic_partition: TopicPartition, span: Span) -> Iterator[str]:
    for earlier, later in pairwise(span.data):
        if earlier.producer_epoch != later.producer_epoch:
            yield (
                f"{topic_partition}: no marker of producer {span.producer_id} between its records of epoch "
                f"{earlier.producer_epoch} at {earlier.base_offset} and of {later.producer_epoch} at "
                f"{later.base_offset}"
            )


def _check_repetitions(world: "World", topic_partition: TopicPartition, span: Span) -> Iterator[str]:
    by_epoch: dict[int, list[Marker]] = defaultdict(list)
    for marker in span.markers:
        by_epoch[marker.epoch].append(marker)
    for epoch, markers in by_epoch.items():
        for earlier, later in pairwise(markers):
            if world.watch.is_repeated_by_a_load(topic_partition, earlier, later) and earlier.kind == later.kind:
                continue
            if _is_old(world, span, epoch) and (later.kind == ABORT or _was_added_late(world, span.producer_id)):
                continue
            yield (
                f"{topic_partition}: a {later.kind} marker of producer {span.producer_id} at {later.offset}, after "
                f"the {earlier.kind} marker of the same epoch {epoch} at {earlier.offset} and nothing between"
            )


def _is_old(world: "World", span: Span, epoch: int) -> bool:
    """Return whether markers of an epoch may end several transactions, as in the old protocol."""
    written = span.data[-1].producer_epoch if span.data else None
    # Under the new protocol a marker has the epoch after that of the records. Others are of earlier transactions.
    if written in (epoch, epoch - 1):
        return bool(written == epoch)
    return _NEW_PROTOCOL not in {protocol for _, protocol in world.users.get(span.producer_id, ())}


def _was_added_late(world: "World", producer_id: int) -> bool:
    late = {client for client, api in world.network.late if api in _ADDING}
    if producer_id in world.users:
        return not late.isdisjoint(client for client, _ in world.users[producer_id])
    # The clients that use the sink's ids are not known here.
    return bool(late - {client for users in world.users.values() for client, _ in users})


# The history's transactions


class _Written(NamedTuple):
    """One record of a transaction in the log."""

    topic_partition: TopicPartition
    offset: int
    span: Span
    epoch: int


def _check_history(world: "World", scanned: Scanned) -> Iterator[str]:
    plans: dict[str, Op] = {}
    outcomes: dict[str, Op] = {}
    for op in world.history.ops:
        if op.function == TXN:
            (plans if op.kind == INVOKE else outcomes)[str(op.transaction)] = op
    places = _places(world, scanned)
    owners: dict[tuple[TopicPartition, int], tuple[str, int]] = {}
    for txn, plan in plans.items():
        outcome = outcomes.get(txn)
        kind = INFO if outcome is None else outcome.kind
        written = [each for key, _, value in plan.sends() for each in places.get((key, value), ())]
        yield from _check_written(txn, kind, written)
        for each in written:
            owner, offset = owners.setdefault((each.topic_partition, id(each.span)), (txn, each.offset))
            if owner != txn:
                yield (
                    f"{each.topic_partition}: no marker between the records of {owner} at {offset} and of {txn} at "
                    f"{each.offset}"
                )
        if outcome is not None and written:
            yield from _check_offsets(world, scanned, txn, outcome, written[0])


def _places(world: "World", scanned: Scanned) -> dict[tuple[str, Any], list[_Written]]:
    places: dict[tuple[str, Any], list[_Written]] = defaultdict(list)
    for topic_partition, spans in scanned.items():
        if topic_partition.topic in world.plan.topics:
            key = key_of(*topic_partition)
            for span in spans:
                for batch in span.data:
                    for record in batch.records:
                        places[key, record.value.decode()].append(
                            _Written(topic_partition, record.offset, span, batch.producer_epoch)
                        )
    return places


def _check_written(txn: str, kind: str, written: list[_Written]) -> Iterator[str]:
    spans: dict[tuple[TopicPartition, int], _Written] = {}
    for each in written:
        spans.setdefault((each.topic_partition, id(each.span)), each)
    for topic_partition, times in Counter(place for place, _ in spans).items():
        if times > 1:
            yield f"{topic_partition}: markers part the records of {txn}"
    for each in spans.values():
        verdict = each.span.verdict
        if kind == OK and verdict != COMMIT:
            yield (
                f"{each.topic_partition}: {txn} was committed, but {verdict} marker follows its record at {each.offset}"
            )
        if kind == FAIL and verdict == COMMIT:
            yield f"{each.topic_partition}: {txn} failed, but a commit marker follows its record at {each.offset}"
    verdicts = {str(each.topic_partition): each.span.verdict for each in spans.values()}
    if len(set(verdicts.values())) > 1:
        yield f"{txn} has ended differently: {verdicts}"


def _check_offsets(world: "World", scanned: Scanned, txn: str, outcome: Op, one: _Written) -> Iterator[str]:
    """Check for a transaction's offset commits and their marker, in what compaction has not touched."""
    is_new = _NEW_PROTOCOL in {protocol for _, protocol in world.users.get(one.span.producer_id, ())}
    for group, key, offset in outcome.offsets():
        place = world.server.cluster.controller.coordinator_partition_of(CONSUMER_OFFSETS_TOPIC, group)
        partition = int(key.rpartition("-")[2])
        committed = [
            span
            for span in scanned.get(place, ())
            if span.producer_id == one.span.producer_id
            and span.verdict == COMMIT
            and any(
                batch.producer_epoch == one.epoch and (partition, offset) in _offsets_in(batch) for batch in span.data
            )
        ]
        if outcome.kind == OK and place in scanned and len(committed) != 1:
            yield (
                f"{place}: {txn} was committed, but {len(committed)} commit markers follow its offset {offset} of {key}"
            )
        if outcome.kind == FAIL and is_new and committed:
            yield f"{place}: {txn} failed, but a commit marker follows its offset {offset} of {key}"


def _offsets_in(batch: KeptBatch) -> list[tuple[int, int]]:
    """Return partition and offset of each offset commit in a batch of the offsets topic (rules B.3)."""
    return [
        (int.from_bytes(record.key[-4:], "big"), int.from_bytes(record.value[2:10], "big"))
        for record in batch.records
        if record.value is not None
    ]
