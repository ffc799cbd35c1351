"""Partitions, compared with Kafka's own test vectors and with kafka-python's murmur2 for one key at a time."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as their_murmur2

from spark_eos.codec.partitioner import group_rows, murmur2, murmur2_partitions
from tests.support.examples import examples

KEYS = st.lists(st.none() | st.binary(max_size=200), max_size=60)
# Key and hash, from the tests of Kafka's Utils.
VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


def test_hashes_match_known_values() -> None:
    hashes = murmur2(pa.array([key for key, _ in VECTORS]))
    assert hashes.astype(np.int32).tolist() == [hashed for _, hashed in VECTORS]


@given(KEYS, st.integers(1, 1000), st.integers(0, 5))
@examples(300)
def test_vectorized_hashes_match_hashing_one_key_at_a_time(
    keys: list[bytes | None], partition_count: int, skipped: int
) -> None:
    theirs = [-1 if k is None else (their_murmur2(k) & 0x7FFFFFFF) % partition_count for k in keys]
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(keys, kind).slice(skipped)
        assert murmur2_partitions(array, partition_count).tolist() == theirs[skipped:]


def test_keys_of_every_length_are_hashed() -> None:
    keys = [bytes(range(length)) for length in range(201)]
    assert murmur2(pa.array(keys)).tolist() == [their_murmur2(key) & 0xFFFFFFFF for key in keys]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_strings_are_hashed_as_utf8(kind: object) -> None:
    words = ["", "ä", "foobar", None, "€" * 9]
    expected = murmur2_partitions(pa.array([None if w is None else w.encode() for w in words]), 77)
    assert murmur2_partitions(pa.array(words, kind), 77).tolist() == expected.tolist()


def test_all_null_keys_are_hashed() -> None:
    assert murmur2_partitions(pa.nulls(3), 5).tolist() == [-1, -1, -1]
    assert murmur2_partitions(pa.array([b"", b""]), 1).tolist() == [0, 0]


@given(st.lists(st.integers(-1, 5) | st.sampled_from([0, 70_000]), max_size=50))
def test_groups_keep_row_order(partition_ids: list[int]) -> None:
    groups = group_rows(np.array(partition_ids, np.int32))
    assert groups.partitions.tolist() == sorted(set(partition_ids))
    assert len(groups.boundaries) == len(groups.partitions) + 1
    for index, partition in enumerate(groups.partitions):
        rows = groups.order[groups.boundaries[index] : groups.boundaries[index + 1]]
        assert rows.tolist() == [row for row, found in enumerate(partition_ids) if found == partition]
