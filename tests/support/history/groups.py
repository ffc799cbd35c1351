"""Checks of group offsets that transactions commit, and of records that are consumed twice.

The offsets of one group and key increase, because each transaction commits the position it has read to.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.support.history.anomalies import Anomaly, Kind
from tests.support.history.format import FAIL, OK, Key, Value
from tests.support.history.index import Index, Operation

Place = tuple[str, Key]


def consumed_twice(index: Index) -> Iterator[Anomaly]:
    """Yield records that two committed transactions of one group consumed."""
    consumers: dict[tuple[Place, Value], Operation] = {}
    for operation in index.operations:
        if operation.kind != OK and not index.took_effect(operation):
            continue
        groups = {group for group, _, _ in operation.last.offsets()}
        for key, records in operation.last.polled():
            for group in groups:
                for offset, value in records:
                    first = consumers.setdefault(((group, key), value), operation)
                    if first is not operation:
                        yield Anomaly(
                            Kind.CONSUMED_TWICE,
                            f"{value!r} at {key}@{offset} was consumed in {group} by {first.name} and {operation.name}",
                        )


def group_offsets(index: Index) -> Iterator[Anomaly]:
    """Compare the group offsets that were read with those that transactions committed."""
    commits: dict[Place, list[tuple[int, Operation]]] = defaultdict(list)
    for operation in index.operations:
        if operation.begin.function != "committed":
            for group, key, offset in operation.last.offsets():
                if offset is not None:
                    commits[group, key].append((offset, operation))
    for operation in index.operations:
        if operation.begin.function == "committed" and operation.kind == OK:
            for group, key, offset in operation.last.offsets():
                yield from _judge(operation, (group, key), offset, commits[group, key])


def _judge(
    read: Operation, place: Place, offset: int | None, commits: list[tuple[int, Operation]]
) -> Iterator[Anomaly]:
    where = f"{read.name} found {place[0]} at {place[1]}@{offset}"
    least = max((each for each, by in commits if by.kind == OK and by.ended_before(read)), default=None)
    if least is not None and (offset is None or offset < least):
        yield Anomaly(Kind.LOST_OFFSET, f"{where}, but {least} had been committed")
    if offset is None:
        return
    by = [operation for each, operation in commits if each == offset]
    if by and all(each.kind == FAIL for each in by):
        yield Anomaly(Kind.ABORTED_OFFSET, f"{where}, of {by[0].name}, which failed")
    elif not any(each.begin.index < read.last.index for each in by):
        yield Anomaly(Kind.IMPOSSIBLE_OFFSET, f"{where}, which no transaction had committed")
