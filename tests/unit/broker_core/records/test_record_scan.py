"""The fast scan of a batch's records compared with a slow one without shortcuts."""

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.records.batch import Headers, NewRecord, build_batch
from broker_core.records.header import HEADER_SIZE
from broker_core.records.record_scan import InvalidRecord, RecordScan, scan_records
from broker_core.records.varint import read_varint

BASE_MS = 1_700_000_000_000


def section_of(records: list[NewRecord]) -> bytes:
    return build_batch(records)[HEADER_SIZE:]


def walk_slowly(data: bytes, count: int) -> RecordScan | int:
    """Return the facts that the rules need about all records, or the number of the first broken record."""
    at, deltas, keyed = 0, [], True
    for index in range(count):
        try:
            size, start = read_varint(data, at, 5)
            end = start + size
            if size < 0 or end > len(data):
                return index
            delta, place = read_varint(data, start + 1)
            offset_delta, place = read_varint(data, place, 5)
            key_size, place = read_varint(data, place, 5)
            value_size, place = read_varint(data, place + max(key_size, 0), 5)
            headers, place = read_varint(data, place + max(value_size, 0), 5)
            if headers < 0 or headers > len(data):
                return index
            for _ in range(headers):
                name_size, place = read_varint(data, place, 5)
                if name_size < 0:
                    return index
                header_size, place = read_varint(data, place + name_size, 5)
                place += max(header_size, 0)
            if offset_delta != index or place != end:
                return index
        except (IndexError, ValueError):
            return index
        deltas.append(delta)
        keyed = keyed and key_size >= 0
        at = end
    return RecordScan(min(deltas), max(deltas), keyed) if at == len(data) else count - 1


def surveyed(data: bytes, count: int) -> RecordScan | int:
    try:
        return scan_records(data, 0, count)
    except InvalidRecord as error:
        return error.index


NAMES = st.sampled_from(["", "h", "a longer name"])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=3)), max_size=2).map(tuple)


@st.composite
def alike(draw: st.DrawFn) -> list[NewRecord]:
    """Draw some records of one layout, with timestamps that may differ in width."""
    key_size, value_size = draw(st.sampled_from([None, 0, 3, 63, 64, 200])), draw(st.sampled_from([None, 1, 64, 9000]))
    headers: Headers = draw(HEADERS)
    steps = draw(st.lists(st.sampled_from([0, 0, 0, 1, -1, 64, -65, 8192, 10**7]), min_size=1, max_size=40))
    key = None if key_size is None else b"k" * key_size
    value = None if value_size is None else b"v" * value_size
    return [NewRecord(key, value, headers, BASE_MS + step) for step in steps]


SECTIONS = st.lists(alike(), min_size=1, max_size=5).map(lambda runs: [record for run in runs for record in run])


@given(SECTIONS)
def test_scan_matches_a_simple_parser(records: list[NewRecord]) -> None:
    data = section_of(records)
    deltas = [record.timestamp_ms - records[0].timestamp_ms for record in records]
    expected = RecordScan(min(deltas), max(deltas), all(record.key is not None for record in records))
    assert scan_records(b"???" + data, 3, len(records)) == walk_slowly(data, len(records)) == expected


@given(SECTIONS, st.data())
def test_scan_fails_where_a_simple_parser_fails(records: list[NewRecord], choice: st.DataObject) -> None:
    data = bytearray(section_of(records))
    for _ in range(choice.draw(st.integers(1, 2))):
        place = choice.draw(st.integers(0, len(data) - 1))
        data[place] = choice.draw(st.integers(0, 255))
    cut = choice.draw(st.sampled_from([0, 0, 1, 20]))
    damaged = bytes(data[: len(data) - cut])
    count = len(records) + choice.draw(st.sampled_from([0, 0, -1, 1]))
    if count:
        assert surveyed(damaged, count) == walk_slowly(damaged, count)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 8191, 8192, 8193, 9000, 70_000])
@pytest.mark.parametrize("broken", [None, 0, -1])
def test_long_runs_of_equal_records_are_scanned(size: int, broken: int | None) -> None:
    """Offset deltas take one byte more from 64 and from 8192 on: a run ends there and another one begins."""
    deltas = list(range(size))
    if broken is not None:
        deltas[broken] += 1
    data = build_batch([NewRecord(b"k", b"v", (), BASE_MS)] * size, offset_deltas=deltas)[HEADER_SIZE:]
    assert surveyed(data, size) == (RecordScan(0, 0, True) if broken is None else broken % size)


UNLIKE = [
    NewRecord(b"key", b"value", (), BASE_MS),
    NewRecord(None, b"v" * 70, (("h", b"x"),), BASE_MS + 100),
    NewRecord(b"k", None, (), BASE_MS + 9000),
    NewRecord(b"k" * 70, b"v" * 20_000, (), BASE_MS),
]
# The first record has another timestamp, so that the deltas of the others are as wide as in a long batch.
ALIKE = [NewRecord(b"k", b"v", (("h", b"x"),), BASE_MS), *[NewRecord(b"k", b"v", (("h", b"x"),), BASE_MS + 100)] * 80]
PLAIN = [NewRecord(b"k", b"v", (), BASE_MS), *[NewRecord(b"k", b"v", (), BASE_MS + 100)] * 80]


@pytest.mark.parametrize("flipped", [1, 2, 0x40, 0x80, 0x81, 0xFF])
@pytest.mark.parametrize(
    ("records", "guilty"), [(UNLIKE, range(4)), (ALIKE, (1, 2, 20, 63, 64, 80)), (PLAIN, (1, 2, 20, 63, 64, 80))]
)
def test_every_byte_is_validated(records: list[NewRecord], guilty: Iterable[int], flipped: int) -> None:
    """Change each byte of one record, alone or in the middle of many records of the same layout."""
    data = section_of(records)
    for number in guilty:
        begin, end = len(section_of(records[:number])) if number else 0, len(section_of(records[: number + 1]))
        for place in range(begin, min(end, begin + 90)):
            changed = bytearray(data)
            changed[place] ^= flipped
            assert surveyed(bytes(changed), len(records)) == walk_slowly(bytes(changed), len(records)), (number, place)


def test_records_of_varying_layout_are_scanned() -> None:
    records = [
        NewRecord(None if at % 7 == 5 else b"k" * (at % 5), b"v" * (at * 37 % 300), (), BASE_MS + at % 90)
        for at in range(3000)
    ]
    data = section_of(records)
    assert scan_records(data, 0, 3000) == walk_slowly(data, 3000) == RecordScan(0, 89, False)


def padded(value: int, width: int) -> bytes:
    """Encode a non-negative number as a varint of `width` bytes, longer than necessary."""
    unsigned = value << 1
    digits = [(unsigned >> 7 * number) & 0x7F for number in range(width)]
    return bytes(digit | 0x80 for digit in digits[:-1]) + bytes(digits[-1:])


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("wrong", [None, 0, 17, 39])
def test_padded_offset_deltas_cost_little_and_are_validated(width: int, wrong: int | None) -> None:
    """A padded delta once made columns of 128 MB for a batch of 500 bytes."""
    records = []
    for index in range(40):
        value = b"x" * (1 + (index % 10 == 0))
        body = b"\0\0" + padded(index if index != wrong else 60, width) + b"\1" + padded(len(value), 1) + value + b"\0"
        records.append(padded(len(body), 1) + body)
    data = b"".join(records)
    tracemalloc.start()
    try:
        found = surveyed(data, len(records))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == walk_slowly(data, len(records))
    assert found == (RecordScan(0, 0, False) if wrong is None else wrong)
    assert peak < 4_000_000
