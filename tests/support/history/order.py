"""Checks of the order in which one client sends and reads."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from tests.support.history.anomalies import Anomaly, Kind
from tests.support.history.format import FAIL, INFO, Key, Op
from tests.support.history.index import Index, Operation

# After these, a reader's position may change: it gets other partitions, or resets to the committed offset.
_MOVES = frozenset({"assign", "subscribe", "seek", "crash"})


def polls(index: Index) -> Iterator[Anomaly]:
    """Yield readers that went back, or passed a record that others saw at the same isolation level."""
    known = _known(index)
    at: dict[tuple[int | str, Key], int] = {}
    for operation in index.operations:
        end = operation.last
        if end.function in _MOVES or end.rebalanced or (end.function == "txn" and end.kind in (FAIL, INFO)):
            for place in [place for place in at if place[0] == end.process]:
                del at[place]
            if end.kind in (FAIL, INFO):
                continue
        for key, records in end.polled():
            for offset, value in records:
                last = at.get((end.process, key))
                if last is not None and offset <= last:
                    yield Anomaly(
                        Kind.NONMONOTONIC_POLL, f"{operation.name} read {value!r} at {key}@{offset} after {last}"
                    )
                elif last is not None:
                    yield from _skipped(operation, end, key, (last, offset), known)
                at[end.process, key] = offset


def sends(index: Index) -> Iterator[Anomaly]:
    """Yield records that precede an earlier one of the same client."""
    at: dict[tuple[int | str, Key], int] = {}
    for operation in index.operations:
        if operation.end is None:
            continue
        for key, offset, value in operation.end.sends():
            if offset is None:
                continue
            last = at.get((operation.end.process, key), -1)
            if offset <= last:
                yield Anomaly(Kind.NONMONOTONIC_SEND, f"{operation.name} sent {value!r} to {key}@{offset} after {last}")
            at[operation.end.process, key] = max(offset, last)


def _known(index: Index) -> dict[tuple[Key, str], list[int]]:
    """Return the offsets of each key that some reader of each isolation level saw, in order."""
    found: dict[tuple[Key, str], set[int]] = defaultdict(set)
    for key, reads in index.reads.items():
        for read in reads:
            found[key, read.op.isolation].update(offset for offset, _ in read.records)
    return {place: sorted(offsets) for place, offsets in found.items()}


def _skipped(
    operation: Operation, op: Op, key: Key, between: tuple[int, int], known: dict[tuple[Key, str], list[int]]
) -> Iterator[Anomaly]:
    last, offset = between
    seen = known.get((key, op.isolation), [])
    missed = seen[bisect_right(seen, last) : bisect_left(seen, offset)]
    if missed:
        yield Anomaly(
            Kind.POLL_SKIP, f"{operation.name} went from {key}@{last} to {offset} past {missed[:5]}, which others saw"
        )
