"""Checks of each record of a history: its offset, and the readers that may and must see it."""

from collections.abc import Iterator

from tests.support.history.anomalies import Anomaly, Kind
from tests.support.history.format import FAIL, Key, Value
from tests.support.history.index import Index, Operation


def inconsistent_offsets(index: Index) -> Iterator[Anomaly]:
    """Yield offsets that have two values."""
    for key, by_offset in sorted(index.values.items()):
        for offset, values in sorted(by_offset.items()):
            if len(values) > 1:
                yield Anomaly(Kind.INCONSISTENT_OFFSETS, f"{key}@{offset} holds {_listed(values)}")


def duplicates(index: Index) -> Iterator[Anomaly]:
    """Yield values that have two offsets."""
    for key, by_value in sorted(index.offsets.items()):
        for value, offsets in by_value.items():
            if len(offsets) > 1:
                yield Anomaly(Kind.DUPLICATE, f"{value!r} lies at {key}@{_listed(offsets)}")


def aborted_reads(index: Index) -> Iterator[Anomaly]:
    """Yield values that a committed reader saw although their operation failed or had not begun to commit."""
    for key, reads in sorted(index.reads.items()):
        for read in reads:
            if not read.op.reads_committed:
                continue
            for offset, value in read.records:
                writer = index.writer.get((key, value))
                if writer is not None and writer.kind == FAIL and writer.begin.transaction is not None:
                    yield Anomaly(
                        Kind.ABORTED_READ,
                        f"{read.operation.name} saw {value!r} at {key}@{offset} of {writer.name}, which failed",
                    )
                if writer is not None and read.op.index < writer.begin.index:
                    yield Anomaly(
                        Kind.OPEN_READ, f"{read.operation.name} saw {value!r} at {key}@{offset} before {writer.name}"
                    )


def precommitted_reads(index: Index) -> Iterator[Anomaly]:
    """Yield transactions that read their own records."""
    for operation in index.operations:
        own = set(index.writes(operation))
        for key, records in operation.last.polled():
            for offset, value in records:
                if (key, value) in own:
                    yield Anomaly(Kind.PRECOMMITTED_READ, f"{operation.name} read its own {value!r} at {key}@{offset}")


def lost_writes(index: Index) -> Iterator[Anomaly]:
    """Yield committed records that readers passed, and those unseen when everything had been read.

    A record of unknown offset can only be missed at the end. If a record is missing while another one of the same
    transaction was seen, the transaction is torn.
    """
    passed = {
        key: max((offset for read in reads if read.op.reads_committed for offset, _ in read.records), default=-1)
        for key, reads in index.reads.items()
    }
    for operation in index.operations:
        if not index.took_effect(operation):
            continue
        written = index.writes(operation)
        missing = [(key, value) for key, value in written if value not in index.seen[key]]
        torn = len(missing) < len(written) and operation.begin.transaction is not None
        for key, value in missing:
            kind = _how_missed(index, operation, key, value, passed.get(key, -1))
            if kind is not None:
                seen = f"while others of {operation.name} were" if torn else f"of {operation.name}"
                yield Anomaly(Kind.TORN if torn else kind, f"{value!r} of {key} was never seen, {seen}")


def _how_missed(index: Index, operation: Operation, key: Key, value: Value, passed: int) -> Kind | None:
    offsets = index.offsets[key].get(value, set())
    if offsets and min(offsets) < passed:
        return Kind.LOST_WRITE
    for end, reader in index.drained.get(key, ()):
        if operation.ended_before(reader) and (not offsets or min(offsets) < end):
            return Kind.UNSEEN
    return None


def _listed(each: set[int] | set[Value]) -> str:
    return ", ".join(sorted(map(repr, each)))
