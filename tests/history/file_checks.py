"""Checks of a broker's files against each other and against the clients' view, without the broker's code.

The one exception is the format of the transaction journal's records, which `broker_core` decodes.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from broker_core.coordinator.transactions.records import PREPARED, TransactionImage, decode_key, decode_value
from broker_core.types import TRANSACTION_STATE_TOPIC, TransactionState
from tests.history.log_files import AbortedRow, Batch, SegmentFiles
from tests.support.history.format import FAIL, INVOKE, OK, Key, Op

Partitions = Mapping[str, Sequence[SegmentFiles]]
_OPEN: Final = frozenset({TransactionState.ONGOING, *PREPARED})
_COMMITS: Final = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}
COMMITTED, ABORTED, OPEN, PLAIN, ABSENT = "committed", "aborted", "open", "plain", "absent"


def batches_of(segments: Iterable[SegmentFiles]) -> Iterator[Batch]:
    """Yield the batches of a partition in order."""
    for segment in segments:
        yield from segment.batches


def check_batches(partitions: Partitions) -> Iterator[str]:
    """Check that offsets and the sequences of a producer have no gap, and that no epoch decreases.

    The logs must not have been compacted. Coordinators write their own topics without sequences.
    """
    for name, segments in partitions.items():
        end = 0
        following: dict[int, tuple[int, int]] = {}
        for batch in batches_of(segments):
            if batch.base_offset != end:
                yield f"{name}: offset {batch.base_offset} follows {end - 1}"
            end = batch.last_offset + 1
            if batch.producer_id < 0:
                continue
            epoch, sequence = following.get(batch.producer_id, (batch.producer_epoch, batch.base_sequence))
            if batch.producer_epoch < epoch:
                yield f"{name}: epoch {batch.producer_epoch} of producer {batch.producer_id} follows {epoch}"
            if batch.is_control:
                following[batch.producer_id] = (batch.producer_epoch, 0 if batch.producer_epoch > epoch else sequence)
                continue
            expected = sequence if batch.producer_epoch == epoch else 0
            if batch.base_sequence != expected and not name.startswith("__"):
                yield (f"{name}: sequence {batch.base_sequence} of producer {batch.producer_id} follows {expected - 1}")
            following[batch.producer_id] = (batch.producer_epoch, batch.base_sequence + len(batch.records))


# The three indexes


def check_indexes(partitions: Partitions, interval_bytes: Mapping[str, int]) -> Iterator[str]:
    """Compute all three indexes from the batches and compare; the broker must have been stopped cleanly.

    `interval_bytes` is `index.interval.bytes` by partition. The time index may have extra rows, because a segment gets
    one whenever its indexes are synced; the check knows the required and the possible rows.
    """
    for name, segments in partitions.items():
        aborted = aborted_rows(segments)
        for segment in segments:
            rows = _offset_rows(segment, interval_bytes[name])
            if rows != segment.offset_rows:
                yield f"{segment.name}: the offset index has {apart(segment.offset_rows, rows)}"
            yield from _check_time_rows(segment, [offset for offset, _ in rows])
            if aborted[segment.name] != segment.aborted_rows:
                yield f"{segment.name}: the transaction index has {apart(segment.aborted_rows, aborted[segment.name])}"


def apart(found: Sequence[object], expected: Sequence[object]) -> str:
    """Describe the first difference between two lists: the rows found, and those computed from the batches."""
    at = next(
        (at for at, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]),
        min(len(found), len(expected)),
    )
    return f"{[*found[at : at + 1]]} as row {at} of {len(found)}, the batches give {[*expected[at : at + 1]]}"


def _offset_rows(segment: SegmentFiles, interval_bytes: int) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    indexed = 0
    for batch in segment.batches:
        if batch.position - indexed > interval_bytes:
            rows.append((batch.last_offset, batch.position))
            indexed = batch.position
    return rows


def _check_time_rows(segment: SegmentFiles, indexed: Sequence[int]) -> Iterator[str]:
    """Check that each row is a batch with a later timestamp than all before it, and that no required row is missing."""
    rises: dict[int, int] = {}
    newest: dict[int, tuple[int, int]] = {}
    largest = (-1, -1)
    for batch in segment.batches:
        if batch.max_timestamp_ms > largest[0]:
            largest = (batch.max_timestamp_ms, batch.last_offset)
            rises[batch.max_timestamp_ms] = batch.last_offset
        newest[batch.last_offset] = largest
    for timestamp_ms, offset in segment.time_rows:
        if rises.get(timestamp_ms) != offset:
            yield (
                f"{segment.name}: the time index has {timestamp_ms} at {offset}, the batches {rises.get(timestamp_ms)}"
            )
    needed = {newest[offset] for offset in indexed} | ({largest} if segment.batches else set())
    for timestamp_ms, offset in sorted(needed - set(segment.time_rows)):
        yield f"{segment.name}: the time index lacks {timestamp_ms} at {offset}"
    if segment.time_rows != sorted(segment.time_rows):
        yield f"{segment.name}: the time index does not ascend"


def aborted_rows(segments: Iterable[SegmentFiles]) -> dict[str, list[AbortedRow]]:
    """Compute the transaction index of each segment of a partition."""
    found: dict[str, list[AbortedRow]] = {}
    first: dict[int, int] = {}
    for segment in segments:
        rows = found[segment.name] = []
        for batch in segment.batches:
            if batch.is_control:
                began = first.pop(batch.producer_id, None)
                if began is not None and not batch.commits:
                    stable = min(first.values(), default=batch.last_offset + 1)
                    rows.append(AbortedRow(batch.producer_id, began, batch.base_offset, stable))
            elif batch.is_transactional:
                first.setdefault(batch.producer_id, batch.base_offset)
    return found


# One marker for each partition of each transaction


class Verdict(NamedTuple):
    """The outcome of a transaction, and the epoch of its markers."""

    commits: bool
    producer_epoch: int


def check_markers(partitions: Partitions, restarts: int) -> Iterator[str]:
    """Compare the markers in each partition with the outcomes in the journal: one for each, in the same order.

    A coordinator that is killed between the decision and the last marker writes all markers again. So a partition may
    contain as many repetitions of a producer's markers as there were restarts, each directly after the first one. The
    journal must not have been compacted, and no transaction may be open.
    """
    expected: dict[tuple[int, Key], list[Verdict]] = defaultdict(list)
    for transactional_id, images in journal(partitions).items():
        yield from _check_ends(transactional_id, images)
        for image in images:
            if image.state in _COMMITS:
                for topic_partition in image.partitions:
                    expected[image.producer_id, str(topic_partition)].append(
                        Verdict(_COMMITS[image.state], image.producer_epoch)
                    )
    found: dict[tuple[int, Key], list[Verdict | None]] = defaultdict(list)
    for name, segments in partitions.items():
        for batch in batches_of(segments):
            if batch.is_transactional:
                found[batch.producer_id, name].append(
                    Verdict(batch.commits, batch.producer_epoch) if batch.is_control else None
                )
    for place in sorted(expected.keys() | found.keys()):
        problem = compare_markers(expected[place], found[place], restarts)
        if problem:
            yield f"{place[1]}: of producer {place[0]}, {problem}"


def journal(partitions: Partitions) -> dict[str, list[TransactionImage]]:
    """Return all images of each transactional id in the transaction journal, in order."""
    found: dict[str, list[TransactionImage]] = defaultdict(list)
    for name, segments in partitions.items():
        if name.rpartition("-")[0] == TRANSACTION_STATE_TOPIC:
            for batch in batches_of(segments):
                for _, key, value in batch.records if not batch.is_control else ():
                    transactional_id = decode_key(key or b"")
                    image = decode_value(value) if value is not None else None
                    if transactional_id is not None and image is not None:
                        found[transactional_id].append(image)
    return found


def _check_ends(transactional_id: str, images: Sequence[TransactionImage]) -> Iterator[str]:
    if images[-1].state in _OPEN:
        yield f"the journal leaves transaction {transactional_id} {images[-1].state.label}"
    for image, after in itertools.pairwise(images):
        if image.state in PREPARED and after.state in (TransactionState.ONGOING, TransactionState.EMPTY):
            yield f"the journal has transaction {transactional_id} {after.state.label} after {image.state.label}"


def compare_markers(expected: Sequence[Verdict], found: Sequence[Verdict | None], restarts: int) -> str | None:
    """Return what is wrong with the markers (None: data) of one producer in one partition.

    All ways to match the markers are followed at once: by the number of outcomes matched, the fewest repetitions
    needed.
    """
    paths = {0: 0}
    has_data = False
    for at, marker in enumerate(found):
        after: dict[int, int] = {}
        for met, repeats in paths.items():
            if marker is None:
                after[met] = repeats
                continue
            if met < len(expected) and expected[met] == marker:
                after[met + 1] = min(repeats, after.get(met + 1, repeats))
            if not has_data and met > 0 and expected[met - 1] == marker:
                after[met] = min(repeats + 1, after.get(met, repeats + 1))
        has_data = marker is None
        if not after:
            return f"marker {at} is {marker}; the journal's outcomes are {list(expected)[: at + 2]}..."
        paths = after
    if has_data:
        return "the last transaction has no marker"
    if len(expected) not in paths:
        return f"the journal has {len(expected)} outcomes, {max(paths)} of them have markers"
    if paths[len(expected)] > restarts:
        return f"{paths[len(expected)]} markers are repeated, after {restarts} restarts"
    return None


# The view of the clients


def check_history(ops: Iterable[Op], partitions: Partitions) -> Iterator[str]:
    """Compare the outcome of every transaction of a history with the state of its records in the files."""
    fates = fates_of(partitions)
    ends: dict[str, Op] = {}
    for op in ops:
        if op.transaction is not None and (op.kind != INVOKE or op.transaction not in ends):
            ends[op.transaction] = op
    known: set[tuple[Key, str]] = set()
    for op in ends.values():
        sent = [(key, str(value), offset) for key, offset, value in op.sends()]
        known |= {(key, value) for key, value, _ in sent}
        yield from _check_transaction(op, sent, fates)
    for (key, value), places in fates.items():
        if (key, value) not in known and key in {each for each, _ in known}:
            yield f"{value} is in {key}@{places[0][0]}, but no client sent it"


def fates_of(partitions: Partitions) -> dict[tuple[Key, str], list[tuple[int, str]]]:
    """Return the offsets of each value in the topics that are not internal, and the state of the record at each."""
    fates: dict[tuple[Key, str], list[tuple[int, str]]] = defaultdict(list)
    for name, segments in partitions.items():
        if name.startswith("__"):
            continue
        pending: dict[int, list[tuple[int, bytes | None]]] = defaultdict(list)
        for batch in batches_of(segments):
            if batch.is_control:
                for offset, value in pending.pop(batch.producer_id, ()):
                    fates[name, (value or b"").decode()].append((offset, COMMITTED if batch.commits else ABORTED))
                continue
            for offset, _, value in batch.records:
                if batch.is_transactional:
                    pending[batch.producer_id].append((offset, value))
                else:
                    fates[name, (value or b"").decode()].append((offset, PLAIN))
        for left in pending.values():
            for offset, value in left:
                fates[name, (value or b"").decode()].append((offset, OPEN))
    return fates


def _check_transaction(
    op: Op, sent: Sequence[tuple[Key, str, int | None]], fates: Mapping[tuple[Key, str], list[tuple[int, str]]]
) -> Iterator[str]:
    verdicts = []
    for key, value, offset in sent:
        places = fates.get((key, value), [])
        verdicts += [fate for _, fate in places] or [ABSENT]
        if len(places) > 1:
            yield f"{value} of {op.transaction} is in {key} at {places}"
        if offset is not None and offset not in [each for each, _ in places]:
            yield f"{value} of {op.transaction} was acknowledged at {key}@{offset}, but is at {places}"
    found = set(verdicts)
    if op.kind == OK:
        outcome, is_right = "committed", found <= {COMMITTED}
    elif op.kind == FAIL:
        outcome, is_right = "aborted", found <= {ABORTED, ABSENT}
    else:
        outcome, is_right = "of unknown outcome", found <= {COMMITTED} or found <= {ABORTED, ABSENT}
    if not is_right:
        yield f"{op.transaction} is {outcome}, and its records are {verdicts}"
