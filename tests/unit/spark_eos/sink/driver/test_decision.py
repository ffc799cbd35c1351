"""Decisions survive writing and reading; damaged or foreign ones are refused."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink import messages
from spark_eos.sink.decision import (
    Decision,
    Intervention,
    OperatorAction,
    Pointer,
    Rank,
    Restart,
    UnreadableDecisionError,
    join_parts,
    read_part,
    read_pointer,
    sealed_json,
    write_decision,
    write_pointer,
)
from spark_eos.sink.messages import AlreadyCommitted, Empty, Place, Prepared
from spark_eos.sink.prepared import PreparedTransaction, TopicRows, WrittenRange

numbers = st.integers(0, 2**62)
ranges = st.builds(WrittenRange, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 5), numbers, numbers, numbers)
transactions = st.builds(
    PreparedTransaction,
    st.integers(0, 99),
    st.builds(
        OpenTransaction,
        st.text(min_size=1, max_size=8),
        st.builds(ProducerIdentity, numbers, st.integers(0, 32766)),
        st.integers(0, 2),
    ),
    numbers,
    numbers,
    st.lists(ranges, max_size=4).map(lambda found: tuple(sorted(found, key=lambda r: (r.topic, r.partition)))),
    st.dictionaries(st.sampled_from(["a", "b.c", "ü"]), st.tuples(numbers, st.integers(0, 2**64 - 1))).map(
        lambda found: tuple(TopicRows(topic, *found[topic]) for topic in sorted(found))
    ),
)
interventions = st.none() | st.builds(
    Intervention,
    st.sampled_from(OperatorAction),
    st.text(max_size=5),
    numbers,
    st.text(max_size=5),
    st.none() | st.sampled_from(Restart),
)
decisions = st.builds(
    Decision,
    st.text(max_size=5),
    st.text(max_size=5),
    st.text(max_size=5),
    numbers,
    st.integers(1, 9),
    numbers,
    numbers,
    st.lists(transactions, max_size=6).map(tuple),
    write=st.text(max_size=5),
    superseded=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)
revised = st.builds(
    lambda decision, revision, at_ms, word: replace(
        decision, revision=revision, completed_at_ms=at_ms, intervention=word
    ),
    decisions,
    st.integers(1, 9),
    st.none() | numbers,
    interventions,
)


@given(decision=decisions | revised, part_bytes=st.sampled_from([1, 300, 10**6]))
def test_decision_is_read_back_from_its_parts_in_any_order(decision: Decision, part_bytes: int) -> None:
    values = write_decision(decision, part_bytes)
    parts = [read_part(value, "here") for value in reversed(values)]
    assert join_parts(parts, "here") == decision


def _decision(count: int = 3) -> Decision:
    rows = tuple(
        PreparedTransaction(
            n, OpenTransaction(f"id{n}", ProducerIdentity(n, 0), 2), 60_000, 5, (WrittenRange("t", n, 0, 9, 10),)
        )
        for n in range(count)
    )
    return Decision("p", "q", "r", 7, 1, count, 123, rows)


def test_large_decision_is_split_into_small_parts() -> None:
    values = write_decision(_decision(100), 2_000)
    assert len(values) > 5
    assert max(len(value) for value in values) < 2_600


def test_missing_part_is_detected() -> None:
    parts = [read_part(value, "here") for value in write_decision(_decision(), 1)]
    assert len(parts) == 3
    for lacking in (parts[:2], parts[1:], [parts[0], parts[0], parts[2]]):
        with pytest.raises(UnreadableDecisionError, match="incomplete"):
            join_parts(lacking, "here")


def test_every_changed_byte_is_detected() -> None:
    value = write_decision(_decision(1))[0]
    for position in range(len(value)):
        changed = bytearray(value)
        changed[position] ^= 1
        with pytest.raises(UnreadableDecisionError):
            read_part(bytes(changed), "here")


@pytest.mark.parametrize("version", [1, 2, 4])
def test_another_version_is_refused_with_both_versions_named(version: int) -> None:
    document = json.loads(write_decision(_decision())[0])
    document["version"] = version
    with pytest.raises(UnreadableDecisionError, match=f"version {version}; this package reads version 3"):
        read_part(json.dumps(document).encode(), "here")


_TRANSACTIONS = (
    PreparedTransaction(
        0,
        OpenTransaction("p.q.run1.w0.0", ProducerIdentity(11, 3), 2),
        60_000,
        1_700_000_000_000,
        (WrittenRange("a", 0, 5, 6, 2), WrittenRange("a", 1, 0, 0, 1), WrittenRange("b.c", 2, 7, 7, 1)),
        (TopicRows("a", 3, 2**64 - 1), TopicRows("b.c", 1, 10)),
    ),
    PreparedTransaction(
        2,
        OpenTransaction("p.q.run1.w1.0", ProducerIdentity(12, 0), 1),
        60_000,
        1_700_000_000_001,
        (WrittenRange("a", 1, 1, 4, 4),),
        (TopicRows("a", 4, 5),),
    ),
)
_DECISION = Decision(
    "p",
    "8a1c0d3e-0000-4000-8000-000000000001/orders",
    "run1",
    7,
    2,
    3,
    1_700_000_000_500,
    _TRANSACTIONS,
    superseded=("run0",),
    write="w",
)
_WRITTEN_DECISION = (
    '{"attempt":2,"crc32c":"dff7a334","decided_at_ms":1700000000500,"micro_batch":7,"part":0,"parts":1,"prefix":"'
    'p","query":"8a1c0d3e-0000-4000-8000-000000000001/orders","run":"run1","split_count":3,"superseded":["run0"],'
    '"transactions":[{"producer_epoch":3,"producer_id":11,"ranges":{"a":[[0,5,6,2],[1,0,0,1]],"b.c":[[2,7,7,1]]},'
    '"rows":{"a":[3,"ffffffffffffffff"],"b.c":[1,"000000000000000a"]},"split":0,"started_at_ms":1700000000000,"ti'
    'meout_ms":60000,"transaction_version":2,"transactional_id":"p.q.run1.w0.0"},{"producer_epoch":0,"producer_id'
    '":12,"ranges":{"a":[[1,1,4,4]]},"rows":{"a":[4,"0000000000000005"]},"split":2,"started_at_ms":1700000000001,"timeout_ms":6'
    '0000,"transaction_version":1,"transactional_id":"p.q.run1.w1.0"}],"version":3,"write":"w"}'
)


def test_decision_encoding_is_stable() -> None:
    assert write_decision(_DECISION) == [_WRITTEN_DECISION.encode()]
    assert join_parts([read_part(_WRITTEN_DECISION.encode(), "here")], "here") == _DECISION


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entry: entry.update(rows=[1]),
        lambda entry: entry.update(rows={"a": 1}),
        lambda entry: entry.update(rows={"a": [1]}),
        lambda entry: entry.update(rows={"a": [1, "no"]}),
        lambda entry: entry.update(rows={"a": [1, None]}),
        lambda entry: entry.pop("rows"),
        lambda entry: entry.update(ranges=[]),
        lambda entry: entry.pop("split"),
    ],
    ids=["a list", "a number", "too short", "no hex", "null", "no rows", "ranges", "no split"],
)
def test_checksummed_document_of_another_shape_is_refused(spoil: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(write_decision(_DECISION)[0])
    del document["crc32c"]
    spoil(document["transactions"][0])
    with pytest.raises(UnreadableDecisionError, match="is incomplete"):
        read_part(sealed_json(document), "here")


def test_decision_with_many_tasks_is_split_and_read_back() -> None:
    topics = [f"topic-{number:04}" for number in range(1_000)]
    wide = replace(
        _DECISION,
        transactions=tuple(
            PreparedTransaction(
                split,
                OpenTransaction(f"id{split}", ProducerIdentity(split, 0), 2),
                60_000,
                5,
                tuple(WrittenRange(topic, 0, 0, 0, 1) for topic in topics),
                tuple(TopicRows(topic, 1, 2**63 + split) for topic in topics),
            )
            for split in range(20)
        ),
    )
    values = write_decision(wide)
    assert len(values) > 1
    assert join_parts([read_part(value, "here") for value in values], "here") == wide


@pytest.mark.parametrize(("topics", "are_kept"), [(3, True), (2_000, True), (14_000, False)])
def test_ids_of_topics_are_kept_unless_they_make_a_record_too_large(topics: int, are_kept: bool) -> None:
    ids = [UUID(int=number) for number in range(1, topics + 1)]
    ranges = [WrittenRange(f"t{each.int}", 0, 0, 0, 1, each) for each in ids]
    task = PreparedTransaction(0, OpenTransaction("id", ProducerIdentity(0, 0), 2), 60_000, 5, tuple(ranges))
    values = write_decision(replace(_DECISION, transactions=(task,)))
    [read] = join_parts([read_part(value, "here") for value in values], "here").transactions
    assert {(each.topic, each.topic_id) for each in read.ranges} == {
        (each.topic, each.topic_id if are_kept else None) for each in ranges
    }


def test_pointer_is_read_back() -> None:
    pointer = read_pointer(TopicPartition("d", 3), 42, write_pointer(_decision(), 2), "group g")
    assert pointer is not None
    assert pointer == Pointer(TopicPartition("d", 3), 42, Rank(7, 1), 2, _decision().run)
    assert pointer.is_to(_decision())
    assert not pointer.is_to(replace(_decision(), run="another"))


@pytest.mark.parametrize("metadata", ["", "x", "{}", "[]", '{"v":1}'])
def test_offset_of_another_consumer_is_no_pointer(metadata: str) -> None:
    assert read_pointer(TopicPartition("d", 0), 0, metadata, "group g") is None


def test_messages_survive_pickling() -> None:
    prepared = Prepared(Place("q", "r", 1, 0), _decision(1).transactions[0])
    for message in (
        prepared,
        Empty(Place("q", "r", 1, 0)),
        AlreadyCommitted(Place("q", "r", 1, 0), (TopicRows("t", 3, 2**64 - 1),)),
    ):
        assert pickle.loads(pickle.dumps(message)) == message


# How a driver learns that another attempt may have left a transaction open


@pytest.mark.parametrize(
    ("attempt", "speculation", "expected"),
    [(0, None, False), (0, "false", False), (1, None, True), (0, "true", True), (0, " TRUE", True)],
)
def test_task_reports_earlier_and_concurrent_attempts(
    monkeypatch: pytest.MonkeyPatch, attempt: int, speculation: str | None, expected: bool
) -> None:
    """A task without rows reports them too: an earlier attempt may have had rows."""
    found = {"spark.speculation": speculation}
    context = SimpleNamespace(attemptNumber=lambda: attempt, getLocalProperty=found.get, taskAttemptId=lambda: 7)
    monkeypatch.setattr(messages, "TaskContext", SimpleNamespace(get=lambda: context))
    for message in (Empty(Place("q", "run1", 0, 0)), AlreadyCommitted(Place("q", "run1", 0, 0))):
        assert message.has_other_attempts is expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([4, 5, 6], False),
        ([6, 4, 5], False),
        ([9], False),
        ([None, None], False),
        ([4, 5, 9], True),
        ([4, None, 8], True),
    ],
)
def test_attempts_of_a_retried_stage_are_detected_by_their_ids(ids: list[int | None], expected: bool) -> None:
    reports = [Empty(Place("q", "run1", 0, split), task_attempt_id=each) for split, each in enumerate(ids)]
    assert messages.show_other_attempts(reports) is expected
