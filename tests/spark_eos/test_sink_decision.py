"""Check that decisions survive writing and reading, and that damaged or foreign ones are refused."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.sink.decision import (
    Decision,
    UnreadableDecisionError,
    join_parts,
    read_part,
    read_pointer,
    write_decision,
    write_pointer,
)
from spark_eos.sink.messages import (
    MESSAGE_VERSION,
    AlreadyCommitted,
    Empty,
    Prepared,
    PreparedTransaction,
    TopicRows,
    WrittenRange,
)

numbers = st.integers(0, 2**62)
ranges = st.builds(WrittenRange, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 5), numbers, numbers, numbers)
transactions = st.builds(
    PreparedTransaction, st.integers(0, 99), st.text(min_size=1, max_size=8), numbers, st.integers(0, 32766),
    st.integers(0, 2), numbers, numbers,
    st.lists(ranges, max_size=4).map(lambda found: tuple(sorted(found, key=lambda r: (r.topic, r.partition)))),
)
decisions = st.builds(
    Decision, st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), numbers, st.integers(1, 9), numbers,
    numbers, st.lists(transactions, max_size=6).map(tuple),
)


@given(decision=decisions, part_bytes=st.sampled_from([1, 300, 10**6]))
def test_a_decision_is_read_back_from_its_parts_in_any_order(decision: Decision, part_bytes: int) -> None:
    values = write_decision(decision, part_bytes)
    parts = [read_part(value, "here") for value in reversed(values)]
    assert join_parts(parts, "here") == decision


def _decision(count: int = 3) -> Decision:
    rows = tuple(
        PreparedTransaction(n, f"id{n}", n, 0, 2, 60_000, 5, (WrittenRange("t", n, 0, 9, 10),)) for n in range(count)
    )
    return Decision("p", "q", "r", 7, 1, count, 123, rows)


def test_a_large_decision_is_split_and_each_part_stays_small() -> None:
    values = write_decision(_decision(100), 2_000)
    assert len(values) > 5
    assert max(len(value) for value in values) < 2_600


def test_a_missing_part_is_noticed() -> None:
    parts = [read_part(value, "here") for value in write_decision(_decision(), 1)]
    assert len(parts) == 3
    for lacking in (parts[:2], parts[1:], [parts[0], parts[0], parts[2]]):
        with pytest.raises(UnreadableDecisionError, match="incomplete"):
            join_parts(lacking, "here")


def test_every_changed_byte_is_noticed() -> None:
    value = write_decision(_decision(1))[0]
    for position in range(len(value)):
        changed = bytearray(value)
        changed[position] ^= 1
        with pytest.raises(UnreadableDecisionError):
            read_part(bytes(changed), "here")


def test_a_newer_version_is_refused_with_both_versions_named() -> None:
    document = json.loads(write_decision(_decision())[0])
    document["version"] = 4
    with pytest.raises(UnreadableDecisionError, match="version 4; this package reads versions 1 to 3"):
        read_part(json.dumps(document).encode(), "here")


def test_a_pointer_is_read_back() -> None:
    pointer = read_pointer(("d", 3), 42, write_pointer(_decision(), 2), "group g")
    assert (pointer.topic_partition, pointer.offset, pointer.micro_batch, pointer.attempt, pointer.parts) == (
        ("d", 3), 42, 7, 1, 2,
    )


@pytest.mark.parametrize("metadata", ["", "x", "{}", "[]", '{"v":1}'])
def test_an_offset_of_another_consumer_is_refused(metadata: str) -> None:
    with pytest.raises(UnreadableDecisionError, match="not committed by this sink"):
        read_pointer(("d", 0), 0, metadata, "group g")


def test_messages_survive_pickling() -> None:
    prepared = Prepared("q", "r", 1, 0, _decision(1).transactions[0])
    for message in (prepared, Empty("q", "r", 1, 0), AlreadyCommitted("q", "r", 1, 0, (TopicRows("t", 3, 2**64 - 1),))):
        assert pickle.loads(pickle.dumps(message)) == message
        assert message.version == MESSAGE_VERSION
