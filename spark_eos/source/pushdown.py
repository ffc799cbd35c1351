"""The use of a batch query's filters to read less.

The plan is always a superset of what the filters let through, and Spark evaluates them again on the rows: a filter that
is not understood here costs bytes and never rows. `timestamp` limits the start only. The broker knows the first offset
at or after a time, so everything before it is older; but producers choose timestamps freely, so after the first record
that is too young there may be older ones.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from broker_core.types import TopicPartition
from spark_eos.spark_api import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

Bounds = tuple[int | None, int | None]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PARTITION_COLUMNS: Final[Mapping[str, Callable[[TopicPartition], Any]]] = {
    "topic": lambda topic_partition: topic_partition.topic,
    "partition": lambda topic_partition: topic_partition.partition,
}
_TESTS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, choices: value in choices,
    StringStartsWith: lambda value, text: value.startswith(text),
    StringEndsWith: lambda value, text: value.endswith(text),
    StringContains: lambda value, text: text in value,
}
# The range that a comparison with a whole number leaves: from the first, to before the second.
_BOUNDS: Final[Mapping[type[Filter], Callable[[int], Bounds]]] = {
    EqualTo: lambda number: (number, number + 1),
    EqualNullSafe: lambda number: (number, number + 1),
    GreaterThan: lambda number: (number + 1, None),
    GreaterThanOrEqual: lambda number: (number, None),
    LessThan: lambda number: (None, number),
    LessThanOrEqual: lambda number: (None, number + 1),
}
_BOUND_FROM_BELOW: Final = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)


@dataclass(frozen=True)
class Narrowing:
    """What the filters of one query imply about the places of its rows."""

    tests: tuple[Callable[[TopicPartition], bool], ...] = ()
    first_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None

    def keeps(self, topic_partition: TopicPartition) -> bool:
        return all(test(topic_partition) for test in self.tests)

    def narrowed(self, start: int, end: int) -> tuple[int, int]:
        """Shorten the offsets `[start, end)` to offsets that can pass; the range is empty if start reaches end."""
        return max(start, self.first_offset), end if self.end_offset is None else min(end, self.end_offset)


def narrowing(filters: Iterable[Filter]) -> Narrowing:
    found = list(filters)
    tests = tuple(test for each in found if (test := _partition_test(each)) is not None)
    bounds = [bound for each in found if (bound := _offset_bounds(each)) is not None]
    lower = [low for low, _ in bounds if low is not None]
    upper = [high for _, high in bounds if high is not None]
    times = [time for each in found if (time := _since_ms(each)) is not None]
    return Narrowing(tests, max(lower, default=0), min(upper, default=None), max(times, default=None))


def _column(wanted: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(wanted, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _partition_test(wanted: Filter) -> Callable[[TopicPartition], bool] | None:
    if isinstance(wanted, Not):
        inner = _partition_test(wanted.child)
        return None if inner is None else lambda topic_partition: not inner(topic_partition)
    value_of, test = _PARTITION_COLUMNS.get(_column(wanted) or ""), _TESTS.get(type(wanted))
    if value_of is None or test is None:
        return None
    value = wanted.value  # type: ignore[attr-defined]  # Every filter in the table has one.
    # Whether anything equals NULL is left to Spark.
    return None if value is None else lambda topic_partition: test(value_of(topic_partition), value)


def _offset_bounds(wanted: Filter) -> Bounds | None:
    if _column(wanted) != "offset":
        return None
    if isinstance(wanted, In):
        numbers = [value for value in wanted.value if isinstance(value, int)]
        return (min(numbers), max(numbers) + 1) if numbers and len(numbers) == len(wanted.value) else None
    bounds, value = _BOUNDS.get(type(wanted)), getattr(wanted, "value", None)
    return bounds(value) if bounds is not None and isinstance(value, int) else None


def _since_ms(wanted: Filter) -> int | None:
    if _column(wanted) != "timestamp" or not isinstance(wanted, (*_BOUND_FROM_BELOW, In)):
        return None
    times = wanted.value if isinstance(wanted, In) else [wanted.value]
    if not times or not all(isinstance(time, datetime) and time.tzinfo is not None for time in times):
        return None
    since_ms = (min(times) - _EPOCH) // timedelta(milliseconds=1)
    # Records without a time have the time -1, and look-ups use negative times for something else.
    return int(since_ms) if since_ms >= 0 else None
