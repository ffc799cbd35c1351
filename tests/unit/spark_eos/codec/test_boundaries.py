"""Record boundaries, compared with a walk from one record to the next, for any bytes in the records."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import InvalidBatch
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.header import HEADER_SIZE
from broker_core.records.varint import append_varint
from spark_eos.codec import record_boundaries
from spark_eos.codec.record_boundaries import find_records
from tests.support.examples import examples

RANDOM: Final = np.random.default_rng
KINDS: Final = ["text", "zeros", "small numbers", "random", "records", "records cut"]
# Ranges of value sizes: of one kind, or with some that need a length of three bytes.
SIZES: Final = [(0, 20), (100, 101), (0, 300), (60, 70), (500, 2000)]
NOWHERE: Final = "do not add up"


def walk(data: bytes, start: int, end: int, count: int) -> list[int]:
    """Find the records of a section one by one."""
    places = []
    while start < end:
        places.append(start)
        unsigned = shift = 0
        while shift < 70:
            if start >= len(data):
                raise InvalidBatch(NOWHERE)
            byte = data[start]
            unsigned |= (byte & 0x7F) << shift
            start, shift = start + 1, shift + 7
            if byte < 0x80:
                break
        start += unsigned >> 1
    if start != end or len(places) != count:
        raise InvalidBatch(NOWHERE)
    return places


def payloads(kind: str, sizes: tuple[int, int], count: int, seed: int) -> list[bytes]:
    """Return values; those of kind `records` contain whole Kafka records, which look like the surrounding ones."""
    generator = RANDOM(seed)
    lengths = generator.integers(*sizes, count)
    if kind == "text":
        data = generator.integers(97, 123, int(lengths.sum())).astype(np.uint8).tobytes()
    elif kind == "zeros":
        data = bytes(int(lengths.sum()))
    elif kind == "small numbers":
        data = generator.integers(0, 70, int(lengths.sum()) // 4 + 1).astype(">i4").tobytes()
    elif kind == "random":
        data = generator.bytes(int(lengths.sum()))
    else:
        inner = build_batch([NewRecord(b"k", b"v" * size) for size in (3, 3, 70, 100, 3, 0, 900)])[HEADER_SIZE:]
        data = inner * (int(lengths.sum()) // len(inner) + 2)
    cut = 0 if kind != "records cut" else 5
    ends = cut + np.cumsum(lengths)
    return [data[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def lay_out(sections: list[list[NewRecord]]) -> tuple[bytearray, list[tuple[int, int]], list[int]]:
    """Build batches end to end; return them, the bounds of their records, and the numbers of records."""
    data = bytearray()
    bounds = []
    for records in sections:
        batch = build_batch(records)
        bounds.append((len(data) + HEADER_SIZE, len(data) + len(batch)))
        data += batch
    return data, bounds, [len(records) for records in sections]


@contextmanager
def lanes_for_everything() -> Iterator[None]:
    """Use lanes, the method for many records, for few records too."""
    with patch.multiple(
        record_boundaries, _FEWEST_RECORDS=1, _FEW_LANES=0, _LARGEST_MEAN_BYTES=2**20, _LOOKED_AT_ONCE=2**10
    ):
        yield


def check(data: bytes | bytearray, bounds: list[tuple[int, int]], counts: list[int]) -> None:
    """Compare the records found with those of a walk, or check that both fail."""
    try:
        places = [walk(bytes(data), *section, count) for section, count in zip(bounds, counts, strict=True)]
    except InvalidBatch:
        with pytest.raises(InvalidBatch, match=NOWHERE):
            find_records(data, bounds, counts)
        return
    starts, ends = find_records(data, bounds, counts)
    assert starts.tolist() == sum(places, [])
    expected = [[*inside[1:], end] for inside, (_, end) in zip(places, bounds, strict=True)]
    assert ends.tolist() == sum(expected, [])


BATCHES = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(SIZES), st.integers(1, 120), st.integers(0, 2**32 - 1)),
    min_size=1, max_size=5,
)  # fmt: skip


def make(batches: list[tuple[str, tuple[int, int], int, int]], large: bool = False, headers: bool = False) -> Any:
    """Build sections of records as drawn, optionally with a large record and headers."""
    sections = []
    for kind, sizes, count, seed in batches:
        values = payloads(kind, sizes, count, seed)
        if large:
            values[seed % count] = bytes(9000 + seed % 4000)
        pairs = (("name", values[0]),) if headers else ()
        sections.append([NewRecord(None, value, pairs, 5 + index) for index, value in enumerate(values)])
    return lay_out(sections)


@given(BATCHES, st.booleans(), st.booleans())
@examples(150)
def test_boundaries_match_a_sequential_scan(batches: Any, large: bool, headers: bool) -> None:
    data, bounds, counts = make(batches, large, headers)
    check(data, bounds, counts)
    with lanes_for_everything():
        check(data, bounds, counts)
    if len(bounds) > 1:
        with lanes_for_everything():
            check(data, bounds[::-1], counts[::-1])


@given(BATCHES, st.booleans(), st.data())
@examples(300)
def test_damage_is_found_as_by_a_sequential_scan(batches: Any, large: bool, draw: st.DataObject) -> None:
    data, bounds, counts = make(batches, large)
    what = draw.draw(st.sampled_from(["bytes", "count", "end"]))
    section = draw.draw(st.integers(0, len(bounds) - 1))
    start, end = bounds[section]
    if what == "bytes":
        for _ in range(draw.draw(st.integers(1, 3))):
            data[draw.draw(st.integers(start, end - 1))] = draw.draw(st.integers(0, 255))
    elif what == "count":
        counts[section] = max(1, counts[section] + draw.draw(st.sampled_from([-1, 1, 40])))
    else:
        bounds[section] = (start, draw.draw(st.integers(start + 1, end)))
    check(data, bounds, counts)
    with lanes_for_everything():
        check(data, bounds, counts)


@given(st.sampled_from(KINDS), st.sampled_from(SIZES[:4]), st.integers(0, 2**32 - 1))
@examples(10)
def test_many_records(kind: str, sizes: tuple[int, int], seed: int) -> None:
    check(*make([(kind, sizes, 2500, seed), (kind, sizes, 1, seed), (kind, sizes, 700, seed)], large=True))


@pytest.mark.parametrize("large", [False, True])
def test_only_a_sample_of_many_records_is_scanned(large: bool) -> None:
    data, bounds, counts = make([("text", (60, 124), 5000, 1), ("random", (60, 124), 5000, 2)], large)
    walked: list[int] = []

    def counted(data: Any, place: int, goal: int, most: int, append: Any) -> int:
        def note(place: int) -> None:
            walked.append(place)
            append(place)

        return plain(data, place, goal, most, note)

    plain = record_boundaries._walk
    with patch.object(record_boundaries, "_walk", counted):
        find_records(data, bounds, counts)
    assert len(walked) < 500


def test_record_that_crosses_a_section_boundary_is_refused() -> None:
    data, bounds, counts = make([("text", (60, 70), 3, 1), ("text", (60, 70), 40, 2)])
    (start, middle), (next_start, end) = bounds
    places = walk(bytes(data), start, middle, counts[0])
    for reached in walk(bytes(data), next_start, end, counts[1])[1::9]:
        append_varint(changed := bytearray(), reached - places[-1] - 2)
        data[places[-1] : places[-1] + 2] = changed
        for first in range(1, sum(counts)):
            for both in ([first, sum(counts) - first], [first, 1], [3, first]):
                with lanes_for_everything(), pytest.raises(InvalidBatch, match=NOWHERE):
                    find_records(data, bounds, both)


def test_unterminated_length_varint_is_refused() -> None:
    for data in (b"\xff" * 5, b"\xff" * 40, b"\x80" * 11 + b"\x00"):
        with pytest.raises(InvalidBatch, match=NOWHERE):
            find_records(data, [(0, len(data))], [1])
