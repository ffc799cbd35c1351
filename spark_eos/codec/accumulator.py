"""The open record batches of many topic-partitions, like the Java client's RecordAccumulator.

Spark passes rows in Arrow batches, and with many partitions each Arrow batch has few rows of each. So the records of
all partitions are encoded in one pass, split, and appended to the open batch of each partition. A batch is closed when
it is full, and the oldest ones are closed when all of them together exceed the limit. The contents of an open batch are
encoded already: their offsets and timestamps continue from its earlier records, so nothing is encoded or copied twice,
except once when the batch is closed.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from broker_core.records.compression import Compression
from broker_core.records.header import HEADER_SIZE
from spark_eos.codec.encode import (
    RecordColumns,
    assemble,
    cut_batches,
    encode_columns,
    encode_runs,
    most_added,
    passes,
    record_columns,
)
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.codec.varints import Ints, ends_of

# Batches of this size cost little more for each record than larger ones, and tasks with less to write than this for
# each partition begin to send late.
_FAIR_BATCH_BYTES: Final = 16 * 1024
_LEAST_OPEN_BYTES: Final = 4 * 1024 * 1024
_LONGEST_VARINT: Final = 10
# AbstractRecords.estimateSizeInBytesUpperBound: a batch of its own, and the longest length, timestamp and offset.
_MOST_OVERHEAD: Final = HEADER_SIZE + 5 + _LONGEST_VARINT + 5

Place = TypeVar("Place")


class _Runs(NamedTuple):
    """The assignment of rows to open batches: `batches[i]` gets those from `starts[i]` to `stops[i]`."""

    batches: Ints
    starts: Ints
    stops: Ints

    def pick(self, chosen: Any) -> "_Runs":
        return _Runs(self.batches[chosen], self.starts[chosen], self.stops[chosen])


class RecordAccumulator(Generic[Place]):
    """Open batches of rows, one for each place.

    `max_batch_bytes` says for a place how large its batches may become, before compression; `max_open_bytes` bounds
    what all open batches hold together. `check_record_bytes` gets the size of the largest record of each call, by the
    Java client's estimate, and may raise.

    >>> import pyarrow as pa
    >>> batches = RecordAccumulator(max_batch_bytes=lambda place: 1000, max_open_bytes=100_000)
    >>> for value in ("a", "b"):
    ...     assert not list(batches.add(
    ...         ["here", "there"], [0, 1, 2], key=None, value=pa.array([value, value]), headers=None, timestamp_ms=0
    ...     ))
    >>> [(place, batch.record_count) for place, batch in batches.close()]
    [('here', 2), ('there', 2)]
    """

    def __init__(
        self,
        *,
        max_batch_bytes: Callable[[Place], int],
        max_open_bytes: int,
        check_record_bytes: Callable[[int], None] = lambda size_bytes: None,
        compression: Compression = Compression.NONE,
        level: int | None = None,
    ) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._max_open_bytes = max_open_bytes
        self._check_record_bytes = check_record_bytes
        self._compression = compression
        self._level = level
        self._places: list[Place] = []
        self._numbers: dict[Place, int] = {}
        # Indexed by a place's number: the contents of its open batch, and how large it may become.
        self._parts: list[list[bytes]] = []
        self._numbered = np.zeros((5, 0), np.int64)
        self._sizes, self._counts, self._firsts_ms, self._lasts_ms, self._budgets = self._numbered
        # The oldest is first. A plain dict would skip all removed entries to find its first entry.
        self._opened: OrderedDict[int, None] = OrderedDict()
        self.open_bytes = 0

    def add(
        self,
        places: Sequence[Place],
        boundaries: Sequence[int],
        *,
        key: Any,
        value: Any,
        headers: Any,
        timestamp_ms: Any,
    ) -> Iterator[tuple[Place, EncodedBatch]]:
        """Add rows, and give the batches that are full; everything is added when the result has been read to its end.

        `places[i]`, each different from the others, gets the rows between `boundaries[i]` and `boundaries[i + 1]`. The
        columns are as in `encode_batches`, which also says what a batch is. Raises `EncodeError`.
        """
        rows = record_columns(key, value, headers, timestamp_ms)
        fixed_ends = ends_of(rows.fixed_sizes)
        self._check_record_bytes(int(rows.fixed_sizes.max(initial=0)) + _MOST_OVERHEAD)
        added = self._most_added(rows)
        bounds = np.asarray(boundaries, np.int64)
        runs = _Runs(self._numbers_of(places), bounds[:-1].copy(), bounds[1:])
        most_bytes = np.diff(fixed_ends[bounds]) + np.diff(bounds) * added
        self._set_budgets(runs.batches[self._counts[runs.batches] == 0])
        overfull = runs.batches[
            (self._counts[runs.batches] > 0) & (self._sizes[runs.batches] + most_bytes > self._budgets[runs.batches])
        ]
        for number in overfull.tolist():
            yield self._places[number], self._close(number)
        self._set_budgets(overfull)
        for index in np.flatnonzero(most_bytes > self._budgets[runs.batches]).tolist():
            runs.starts[index] = yield from self._fill_batches(rows, runs, index)
        left = runs.starts < runs.stops
        runs = runs.pick(left)
        for some in passes(runs.starts, runs.stops, most_bytes[left]):
            self._append(rows, runs.pick(some))
            # While the open batches exceed the limit, or are too many to be useful.
            while self.open_bytes > min(
                self._max_open_bytes, max(_LEAST_OPEN_BYTES, len(self._opened) * _FAIR_BATCH_BYTES)
            ):
                number = next(iter(self._opened))
                yield self._places[number], self._close(number)

    def close(self) -> Iterator[tuple[Place, EncodedBatch]]:
        while self._opened:
            number = next(iter(self._opened))
            yield self._places[number], self._close(number)

    def _numbers_of(self, places: Sequence[Place]) -> Ints:
        numbers = list(map(self._numbers.get, places))
        if None in numbers:
            fresh = [place for place, number in zip(places, numbers, strict=True) if number is None]
            self._numbers.update(zip(fresh, range(len(self._places), len(self._places) + len(fresh)), strict=True))
            self._places += fresh
            self._parts += [[] for _ in fresh]
            self._numbered = np.concatenate([self._numbered, np.zeros((5, len(fresh)), np.int64)], axis=1)
            self._sizes, self._counts, self._firsts_ms, self._lasts_ms, self._budgets = self._numbered
            numbers = list(map(self._numbers.get, places))
        return np.array(numbers, np.int64)

    def _set_budgets(self, numbers: Ints) -> None:
        if len(numbers):
            places = map(self._places.__getitem__, numbers.tolist())
            self._budgets[numbers] = np.fromiter(map(self._max_batch_bytes, places), np.int64, len(numbers))
            self._budgets[numbers] -= HEADER_SIZE

    def _most_added(self, rows: RecordColumns) -> int:
        """Return the maximum size of the fields that depend on the batch, in any record."""
        stamps = _span(rows.timestamps) + _span(self._firsts_ms[self._counts > 0])
        most_rows = len(rows.fixed_sizes) + int(self._counts.max(initial=0))
        span_ms = max(stamps, default=0) - min(stamps, default=0)
        return most_added(int(rows.fixed_sizes.max(initial=0)), most_rows, span_ms)

    def _fill_batches(
        self, rows: RecordColumns, runs: _Runs, index: int
    ) -> Generator[tuple[Place, EncodedBatch], None, int]:
        """Encode full batches for runs of more rows than fit; return where the remaining rows begin."""
        start, stop, number = int(runs.starts[index]), int(runs.stops[index]), int(runs.batches[index])
        whole, budget_bytes = rows.pick(slice(start, stop)), int(self._budgets[number])
        bounds = cut_batches(whole.fixed_sizes, whole.timestamps, budget_bytes)
        if whole.fixed_sizes[bounds[-2]] > budget_bytes:
            # A record that is larger than a batch is not kept: it would be copied twice.
            bounds.append(stop - start)
        # What is left fits for certain.
        for batch in encode_columns(whole, bounds[:-1], self._compression, self._level):
            yield self._places[number], batch
        return start + bounds[-2]

    def _append(self, rows: RecordColumns, runs: _Runs) -> None:
        numbers, starts, stops = runs
        fresh = self._counts[numbers] == 0
        self._firsts_ms[numbers[fresh]] = rows.timestamps[starts[fresh]]
        latest = np.maximum.reduceat(rows.timestamps[: stops[-1]], starts)
        self._lasts_ms[numbers] = np.where(fresh, latest, np.maximum(self._lasts_ms[numbers], latest))
        self._opened.update(dict.fromkeys(numbers[fresh].tolist()))
        encoded, ends = encode_runs(rows, starts, stops, self._firsts_ms[numbers], self._counts[numbers])
        # One copy of all, because slicing bytes costs less than slicing a view of them.
        data = b"".join((encoded[rows.borrowed : int(ends[-1])], bytes(rows.borrowed)))
        begin, parts = 0, self._parts
        for number, end in zip(numbers.tolist(), ends.tolist(), strict=True):
            parts[number].append(data[begin:end])
            begin = end
        self._sizes[numbers] += np.diff(ends, prepend=0)
        self._counts[numbers] += stops - starts
        self.open_bytes += begin

    def _close(self, number: int) -> EncodedBatch:
        del self._opened[number]
        parts, self._parts[number] = self._parts[number], []
        count = int(self._counts[number])
        self.open_bytes -= int(self._sizes[number])
        self._sizes[number] = self._counts[number] = 0
        first_ms, last_ms = int(self._firsts_ms[number]), int(self._lasts_ms[number])
        data = assemble(parts, count, first_ms, last_ms, self._compression, self._level)
        return EncodedBatch(data, count, self._level)


def _span(timestamps: Ints) -> list[int]:
    return [int(timestamps.min()), int(timestamps.max())] if len(timestamps) else []
