"""Rows leave the accumulator unchanged and in order, in batches of the requested sizes."""

import random
from typing import Any

import pyarrow as pa
import pytest

from broker_core.records.batch import read_records
from broker_core.records.compression import Compression
from broker_core.records.header import iter_headers
from spark_eos.codec.accumulator import RecordAccumulator
from spark_eos.codec.encoded_batch import EncodedBatch, seal

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def rows_in(batch: EncodedBatch) -> list[Row]:
    """Read a batch with an independent reader, and check its header against its records."""
    data = seal(batch, producer_id=1, producer_epoch=0, base_sequence=0)
    [(position, header)] = iter_headers(data)
    records = list(read_records(data, position, header))
    assert header.record_count == batch.record_count == len(records)
    assert header.last_offset_delta == len(records) - 1
    assert [each.offset for each in records] == list(range(len(records)))
    assert header.base_timestamp == records[0].timestamp_ms
    assert header.max_timestamp == max(each.timestamp_ms for each in records)
    return [(each.key, each.value, tuple((k, v) for k, v in each.headers), each.timestamp_ms) for each in records]


class World:
    """An accumulator with random chunks, and the rows expected for each partition."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.chance = random.Random(seed)
        self.max_batch_bytes = settings.pop("max_batch_bytes", 5_000)
        self.batches = RecordAccumulator[str](
            **{"max_batch_bytes": lambda _: self.max_batch_bytes, "max_open_bytes": 1 << 30, **settings}
        )
        self.expected: dict[str, list[Row]] = {}
        self.found: dict[str, list[EncodedBatch]] = {}

    def add(self, counts: dict[str, int], *, stamps: str, keys: bool, headers: bool, longest: int = 200) -> None:
        chance = self.chance
        rows: list[Row] = []
        now_ms = chance.randrange(10**12, 2 * 10**12)
        for place, count in counts.items():
            for _ in range(count):
                rows.append(
                    (
                        chance.randbytes(chance.randrange(20)) if keys and chance.random() < 0.8 else None,
                        chance.randbytes(chance.randrange(longest)) if chance.random() < 0.9 else None,
                        tuple((f"k{n}", chance.choice([None, b"v"])) for n in range(chance.randrange(3) * headers)),
                        now_ms if stamps == "one" else chance.randrange(-(10**13), 10**13),
                    )
                )
                self.expected.setdefault(place, []).append(rows[-1])
        boundaries = [0]
        for count in counts.values():
            boundaries.append(boundaries[-1] + count)
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        header_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        self.take(
            self.batches.add(
                list(counts),
                boundaries,
                key=pa.array(columns[0], pa.binary()) if keys else None,
                value=pa.array(columns[1], pa.binary()),
                headers=pa.array([[{"key": k, "value": v} for k, v in row] for row in columns[2]], header_type)
                if headers
                else None,
                timestamp_ms=now_ms if stamps == "one" else pa.array(columns[3], pa.int64()),
            )
        )

    def take(self, batches: Any) -> None:
        for place, batch in batches:
            self.found.setdefault(place, []).append(batch)

    def check(self) -> None:
        self.take(self.batches.close())
        assert self.batches.open_bytes == 0
        assert {
            place: [row for batch in batches for row in rows_in(batch)] for place, batches in self.found.items()
        } == self.expected


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("seed", range(4))
def test_rows_keep_their_order_for_any_chunks(seed: int, compression: Compression) -> None:
    world = World(seed, compression=compression, max_open_bytes=40_000)
    for _ in range(12):
        places = world.chance.sample([f"p{n}" for n in range(40)], world.chance.randrange(1, 40))
        world.add(
            {place: world.chance.choice([0, 1, 2, 7, 30, 200]) for place in places},
            stamps=world.chance.choice(["one", "each"]),
            keys=world.chance.random() < 0.7,
            headers=world.chance.random() < 0.3,
        )
    world.expected = {place: rows for place, rows in world.expected.items() if rows}
    world.check()


def test_batches_stay_within_the_size_limit_and_most_are_full() -> None:
    world = World(1)
    for _ in range(50):
        world.add({f"p{n}": 3 for n in range(30)}, stamps="each", keys=True, headers=False)
    full = [batch.size_bytes for batches in world.found.values() for batch in batches]
    assert max(full) <= 5_000 and min(full) > 3_500
    world.check()


def test_oversized_record_gets_its_own_batch_in_order() -> None:
    world = World(1)
    for longest in (100, 40_000, 100):
        world.add({"a": 6, "b": 6}, stamps="one", keys=False, headers=False, longest=longest)
    world.check()
    assert max(batch.size_bytes for batch in world.found["a"]) > 5_000


def test_oversized_record_is_not_kept_until_more_rows_come() -> None:
    batches = RecordAccumulator[str](max_batch_bytes=lambda _: 400, max_open_bytes=1 << 30)
    value = pa.array(["a", "x" * 5_000])
    given = batches.add(["p"], [0, 2], key=None, value=value, headers=None, timestamp_ms=1)
    assert [batch.record_count for _, batch in given] == [1, 1]
    assert batches.open_bytes == 0


def test_rows_of_many_chunks_share_a_batch() -> None:
    world = World(1, max_batch_bytes=500_000)
    for _ in range(100):
        world.add({f"p{n}": 2 for n in range(20)}, stamps="one", keys=True, headers=False)
    world.check()
    assert {len(batches) for batches in world.found.values()} == {1}


def test_open_batches_are_bounded_and_the_oldest_is_sent_first() -> None:
    world = World(1, max_batch_bytes=1_000_000, max_open_bytes=100_000)
    for _ in range(200):
        world.add({f"p{n}": 1 for n in range(50)}, stamps="one", keys=False, headers=False)
        assert world.batches.open_bytes <= 100_000
    sizes = [batch.size_bytes for batches in world.found.values() for batch in batches]
    assert sum(sizes) / len(sizes) > 1.5 * 100_000 / 50, "the oldest are about twice as large as the average"
    world.check()


def test_batch_size_is_read_when_the_batch_begins() -> None:
    world = World(1, max_batch_bytes=4_000)
    world.add({"a": 5}, stamps="one", keys=False, headers=False)
    world.max_batch_bytes = 1_000
    for _ in range(20):
        world.add({"a": 5}, stamps="one", keys=False, headers=False)
    world.check()
    first, *others = world.found["a"]
    assert first.size_bytes > 3_000 and max(each.size_bytes for each in others) <= 1_000


def test_batches_of_no_bytes_have_one_record_each() -> None:
    world = World(0, max_batch_bytes=0)
    world.add({"a": 3, "b": 2}, stamps="one", keys=True, headers=False)
    world.check()
    assert [each.record_count for batches in world.found.values() for each in batches] == [1] * 5
