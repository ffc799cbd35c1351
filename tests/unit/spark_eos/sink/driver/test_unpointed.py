"""A query whose pointer is missing finds its decisions, or stops if they are gone and its rows may be visible."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from broker_core.types import TopicPartition, TransactionState
from spark_eos.admin.decision_operator import DecisionOperator
from spark_eos.errors import (
    AuthorizationError,
    DifferentRowsError,
    EosKafkaError,
    FencedError,
    LostTransactionError,
    OptionError,
    TransactionError,
    UnansweredError,
    UnsupportedError,
)
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Decision, OperatorAction, read_part, write_decision, write_pointer
from spark_eos.sink.messages import AlreadyCommitted, Empty, Place, Prepared, TaskMessage
from spark_eos.sink.naming import LAYOUT_KEY, TaskId, decision_key, decision_partition, driver_id
from spark_eos.sink.prepared import TopicRows
from spark_eos.sink.protocol import decision_reader
from spark_eos.sink.protocol.answers import Appended, CommittedOffset, DecisionWrite, FoundRecords, ShortLogError
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.retirement import Retirement
from spark_eos.sink.protocol.retry_policy import rule_of
from spark_eos.sink.protocol.state import QueryRun
from tests.support.spark_eos.driving import LogOn, end_all, log_of
from tests.support.spark_eos.interceptors import before, fail
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, visible

__all__ = ["cluster"]
QUERY = "8a1c0d3e-0000-4000-8000-000000000001"
S = TransactionState


def tasks(
    cluster: MemoryCluster,
    run: str,
    micro_batch: int = 0,
    checksums: Sequence[int] = (1, 2),
    prefix: str = "p",
    query: str = QUERY,
) -> list[Prepared]:
    """Return the messages of the tasks of a micro-batch that find no decision."""
    found = []
    for split, checksum in enumerate(checksums):
        name = str(TaskId(prefix, query, run, f"w{split}", 0))
        cluster.init_producer_id(name, 60_000)
        transaction = replace(cluster.prepare(name, split), rows=(TopicRows("t", 1, checksum),))
        found.append(Prepared(Place(query, run, micro_batch, split), transaction))
    return found


committer = partial(committer_of, query=QUERY)


def mark(cluster: MemoryCluster) -> None:
    """Mark the decision topic as one that this version has created."""
    cluster.partitions = 8
    cluster.logs[TopicPartition(DECISIONS, 0)] = [(cluster.init_producer_id("p.layout", 1).producer, LAYOUT_KEY, b"{}")]


def states(cluster: MemoryCluster, run: str) -> list[TransactionState]:
    return [each.state for name, each in cluster.ids.items() if f".{run}." in name]


def decide(cluster: MemoryCluster, messages: Sequence[Prepared]) -> Decision:
    """Decide as run 1, which then dies; its pointer expires."""
    log = LogOn(cluster, "p", QUERY, DECISIONS)
    found = tuple(each.transaction for each in messages)
    decision = Decision("p", QUERY, "run1", messages[0].place.micro_batch, 1, len(messages), 0, found)
    log.decide(decision, log.take_over())
    cluster.groups.clear()
    return decision


@pytest.mark.parametrize("prefix", ["p", "changed"])
@pytest.mark.parametrize("completed", [0, 1, 2])
def test_rerun_without_a_pointer_drops_equal_rows_and_finishes_the_micro_batch(
    cluster: MemoryCluster, prefix: str, completed: int
) -> None:
    decision = decide(cluster, tasks(cluster, "run1"))
    end_all(cluster, decision.transactions[:completed], commit=True)
    driver = committer(cluster, "run2", prefix)
    driver.commit(tasks(cluster, "run2", prefix=prefix), 0)
    assert visible(cluster) == 2
    assert states(cluster, "run2") == [S.COMPLETE_ABORT] * 2
    driver.commit(tasks(cluster, "run2", 1, prefix=prefix), 1)
    assert visible(cluster) == 4 and cluster.groups.keys() == {f"p.{QUERY}"}, "the first prefix remains"


@pytest.mark.parametrize("checksums", [(1, 3), (1,), (1, 2, 0)])
def test_rerun_without_a_pointer_stops_on_different_rows(cluster: MemoryCluster, checksums: Sequence[int]) -> None:
    first = committer(cluster, "run1")
    first.commit(tasks(cluster, "run1"), 0)
    copy, messages = committer(cluster, "run2", "copied"), tasks(cluster, "run2", 0, checksums, "copied")
    with pytest.raises(DifferentRowsError):
        copy.commit(messages, 0)
    copy.abort(messages, 0)
    assert set(states(cluster, "run2")) == {S.COMPLETE_ABORT}
    first.commit(tasks(cluster, "run1", 1), 1)
    with pytest.raises(TransactionError, match="micro-batch 1 is already decided"):
        copy.commit(tasks(cluster, "run2", 0, checksums, "copied"), 0)
    first.commit(tasks(cluster, "run1", 2), 2)
    assert visible(cluster) == 6


def test_fully_lost_batch_without_a_pointer_is_rewritten_with_any_rows(cluster: MemoryCluster) -> None:
    for each in decide(cluster, tasks(cluster, "run1")).transactions:
        cluster.time_out(each.transactional_id)
    committer(cluster, "run2").commit(tasks(cluster, "run2", checksums=(5,)), 0)
    assert visible(cluster) == 1
    assert states(cluster, "run2") == [S.COMPLETE_COMMIT]


def lose_second(cluster: MemoryCluster) -> Decision:
    decision = decide(cluster, tasks(cluster, "run1"))
    end_all(cluster, decision.transactions[:1], commit=True)
    cluster.time_out(decision.transactions[1].transactional_id)
    return decision


def test_partly_lost_batch_without_a_pointer_stops_until_rewrite_is_allowed(cluster: MemoryCluster) -> None:
    kept, _ = lose_second(cluster).transactions
    for run in ("run2", "run3"):
        failing, messages = committer(cluster, run), tasks(cluster, run)
        with pytest.raises(LostTransactionError, match="1 of its 2 transactions"):
            failing.commit(messages, 0)
        failing.abort(messages, 0)
    driver, messages = committer(cluster, "run4", policy=OnLostTransaction.REWRITE), tasks(cluster, "run4")
    driver.commit(messages, 0)
    assert log_of(driver).newest().transactions == (kept, messages[1].transaction)
    assert visible(cluster) == 2
    assert states(cluster, "run4") == [S.COMPLETE_ABORT, S.COMPLETE_COMMIT]


@pytest.mark.parametrize("checksums", [(2, 1), (1, 2, 3), (1,)])
def test_rows_moved_between_tasks_are_not_mixed_with_another_run(
    cluster: MemoryCluster, checksums: Sequence[int]
) -> None:
    lose_second(cluster)
    with pytest.raises(TransactionError):
        committer(cluster, "run2", policy=OnLostTransaction.REWRITE).commit(tasks(cluster, "run2", 0, checksums), 0)
    assert visible(cluster) == 1


@pytest.mark.parametrize("micro_batch", [0, 7])
def test_query_past_its_first_micro_batch_that_has_no_decision_is_named_once(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, micro_batch: int
) -> None:
    """A cluster that was rebuilt from its output topics knows no decisions, offsets of groups or transactional ids."""
    driver = committer(cluster, "run1")
    for number in (micro_batch, micro_batch + 1):
        driver.commit(tasks(cluster, "run1", number), number)
    committer(cluster, "run2").commit(tasks(cluster, "run2", micro_batch + 2), micro_batch + 2)
    warned = f"micro-batch 7 of {QUERY}: the cluster knows no decision of an earlier one"
    assert caplog.text.count(warned) == caplog.text.count("knows no decision") == (micro_batch > 0)


@pytest.mark.parametrize("first", [0, 1])
def test_run_that_began_with_the_query_misses_no_decision(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, first: int
) -> None:
    """As every query of windows in append mode begins: it has no rows before its watermark has moved."""
    driver = committer(cluster, "run1")
    driver.commit([Empty(Place(QUERY, "run1", first, split)) for split in range(2)], first)
    driver.commit(tasks(cluster, "run1", 2), 2)
    assert caplog.text.count("knows no decision") == (first > 0)


# A pointer that is behind, because brokers lost the latest ones: a new leader, or a disk that was restored


def put_pointer_back(cluster: MemoryCluster, last: int = 1) -> None:
    """Commit micro-batches 0 to `last` as run 1; the group then has the pointer to the decision of 0 again."""
    first = committer(cluster, "run1")
    first.commit(tasks(cluster, "run1"), 0)
    pointers = deepcopy(cluster.groups)
    for micro_batch in range(1, last + 1):
        first.commit(tasks(cluster, "run1", micro_batch), micro_batch)
    cluster.groups = pointers


@pytest.mark.parametrize("prefix", ["p", "changed"])
def test_rerun_with_an_older_pointer_writes_nothing_twice(cluster: MemoryCluster, prefix: str) -> None:
    put_pointer_back(cluster)
    driver = committer(cluster, "run2", prefix)
    driver.commit(tasks(cluster, "run2", 1, prefix=prefix), 1)
    assert visible(cluster) == 4
    driver.commit(tasks(cluster, "run2", 2, prefix=prefix), 2)
    assert visible(cluster) == 6


def test_tasks_know_a_decision_that_an_older_pointer_misses(cluster: MemoryCluster) -> None:
    """The explorer found it: the group lost its newest offset after the tasks had looked."""
    put_pointer_back(cluster)
    rows = tuple((TopicRows("t", 1, checksum),) for checksum in (1, 2))
    skipped = [AlreadyCommitted(Place(QUERY, "run2", 1, split), each) for split, each in enumerate(rows)]
    driver = committer(cluster, "run2")
    driver.commit(skipped, 1)
    driver.commit(tasks(cluster, "run2", 2), 2)
    assert visible(cluster) == 6


def test_woken_process_with_an_older_pointer_writes_nothing_twice(cluster: MemoryCluster) -> None:
    """Its run has decided before, and a later run since: only the id shows that another driver was there in between."""
    committer(cluster, "run1").commit(tasks(cluster, "run1"), 0)
    pointers, messages = deepcopy(cluster.groups), tasks(cluster, "run1", 1)
    committer(cluster, "run2").commit(tasks(cluster, "run2", 1), 1)
    cluster.groups = pointers
    with pytest.raises(FencedError, match="run run2 has decided micro-batch 1"):
        committer(cluster, "run1").commit(messages, 1)
    assert visible(cluster) == 4


def test_renewal_with_an_older_pointer_notices_who_was_there_before_it() -> None:
    """The explorer found it: to look at the id and to take it again are two requests."""
    cluster = MemoryCluster(version=1)
    older = committer(cluster, "run1")
    older.commit(tasks(cluster, "run1"), 0)
    pointers, messages = deepcopy(cluster.groups), tasks(cluster, "run1", 1)

    def decide_unseen() -> None:
        committer(cluster, "run2").commit(tasks(cluster, "run2", 1), 1)
        cluster.groups = pointers

    before(cluster, "init_producer_id", decide_unseen)
    with pytest.raises(FencedError, match="run run2 has decided micro-batch 1"):
        older.commit(messages, 1)
    assert visible(cluster) == 4


def test_processes_that_take_turns_read_nothing_behind_the_pointer(cluster: MemoryCluster) -> None:
    processes = [committer(cluster, "run1") for _ in range(2)]
    for micro_batch in range(8):
        if micro_batch == 1:
            cluster.calls.clear()
        processes[micro_batch % 2].commit(tasks(cluster, "run1", micro_batch), micro_batch)
    assert cluster.calls.count("pointer") > 7 and not [each for each in cluster.calls if each.startswith("scan")]


def test_rerun_with_an_older_pointer_stops_on_different_rows(cluster: MemoryCluster) -> None:
    put_pointer_back(cluster)
    with pytest.raises(DifferentRowsError):
        committer(cluster, "run2").commit(tasks(cluster, "run2", 1, checksums=(1, 3)), 1)


def test_restored_checkpoint_is_noticed_with_an_older_pointer(cluster: MemoryCluster) -> None:
    put_pointer_back(cluster, last=2)
    with pytest.raises(TransactionError, match="micro-batch 2 is already decided"):
        committer(cluster, "run2").commit(tasks(cluster, "run2", 1), 1)


def point_to_a_lost_attempt(cluster: MemoryCluster, query: str) -> None:
    """Decide and lose micro-batch 0, write it again, and let the pointer name the first attempt."""
    messages, log = tasks(cluster, "run1", query=query), LogOn(cluster, "p", query, DECISIONS)
    parts = tuple(each.transaction for each in messages)
    log.decide(Decision("p", query, "run1", 0, 1, len(parts), 0, parts), log.take_over())
    for each in parts:
        cluster.time_out(each.transactional_id)
    pointers = deepcopy(cluster.groups)
    committer(cluster, "run2", query=query).commit(tasks(cluster, "run2", query=query), 0)
    cluster.groups = pointers


@pytest.mark.parametrize("query", [QUERY, "report"])
def test_rerun_with_an_older_pointer_finds_a_later_attempt_at_its_micro_batch(
    cluster: MemoryCluster, query: str
) -> None:
    """The first attempt was decided and lost, the second one is visible, and the pointer names the first again."""
    point_to_a_lost_attempt(cluster, query)
    committer(cluster, "run3", query=query).commit(tasks(cluster, "run3", query=query), 0)
    assert visible(cluster) == 2


def test_abort_with_an_older_pointer_ends_nothing_decided(cluster: MemoryCluster) -> None:
    """The commit failed in its completion; another process of the run aborts."""
    committer(cluster, "run1").commit(tasks(cluster, "run1"), 0)
    pointers, messages = deepcopy(cluster.groups), tasks(cluster, "run1", 1)
    end_all(cluster, decide(cluster, messages).transactions[:1], commit=True)
    cluster.groups = pointers
    committer(cluster, "run1").abort(messages, 1)
    committer(cluster, "run2").commit(tasks(cluster, "run2", 1), 1)
    assert visible(cluster) == 4


def test_older_pointer_to_a_decision_that_was_compacted_away(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read at its offset begins with the next record, which is a newer decision of the query."""
    put_pointer_back(cluster)
    read = cluster.read_records
    monkeypatch.setattr(cluster, "read_records", lambda place, offset, count: read(place, offset + 1, count))
    committer(cluster, "run2").commit(tasks(cluster, "run2", 1), 1)
    assert visible(cluster) == 4


@pytest.mark.parametrize("others", [1, 250])
def test_decision_is_found_whole_with_records_of_other_queries_between_its_parts(
    cluster: MemoryCluster, others: int
) -> None:
    """The leader moved between two parts, and hundreds of queries decided meanwhile."""
    committer(cluster, "run1").commit(tasks(cluster, "run1"), 0)
    [(place, log)] = [(place, log) for place, log in cluster.logs.items() if place.topic == DECISIONS]
    [(producer, key, value)] = log
    decision = read_part(value or b"", "here").decision
    first, second = write_decision(decision, 1)
    log[:] = [(producer, key, first), *[(producer, b"p/other", b"{}")] * others, (producer, b"%b#1" % key, second)]
    cluster.groups[f"p.{QUERY}"][place] = CommittedOffset(place, 0, write_pointer(decision, 2))
    committer(cluster, "run2").commit(tasks(cluster, "run2"), 0)
    assert visible(cluster) == 2, "the rows of the second run are those that were decided"


def test_task_finds_a_later_attempt_if_the_one_of_an_older_pointer_was_compacted_away(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_to_a_lost_attempt(cluster, QUERY)
    read = cluster.read_records
    monkeypatch.setattr(cluster, "read_records", lambda place, offset, count: read(place, offset + 1, count))
    found = LogOn(cluster, "p", QUERY, DECISIONS).pointed(0, "")
    assert (found.run, found.attempt) == ("run2", 2)


@pytest.mark.parametrize("query", [QUERY, "report"])
@pytest.mark.parametrize("is_ended", [True, False])
def test_two_first_drivers_with_different_prefixes_make_one_decision(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, query: str, is_ended: bool
) -> None:
    """The older one, which was suspended, decides after the newer one has looked; neither can fence the other."""
    older, older_tasks = committer(cluster, "run1", query=query), tasks(cluster, "run1", query=query)
    newer = committer(cluster, "run2", "other", query=query)
    append, find = cluster.append_decision, cluster.find_records

    def wake(write: DecisionWrite) -> Appended:
        monkeypatch.setattr(cluster, "append_decision", append)
        older.commit(older_tasks, 0)
        if not is_ended:
            cluster.unended = {(place, 0) for place, log in cluster.logs.items() if place.topic == DECISIONS and log}
            monkeypatch.setattr(cluster, "find_records", end_later)
        return append(write)

    def end_later(*arguments: Any) -> FoundRecords:
        found = find(*arguments)
        cluster.unended.clear()
        return found

    monkeypatch.setattr(cluster, "append_decision", wake)
    with pytest.raises(FencedError, match="A newer driver is running" if is_ended else "may no longer decide"):
        newer.commit(tasks(cluster, "run2", prefix="other", query=query), 0)
    committer(cluster, "run3", "other", query=query).commit(tasks(cluster, "run3", prefix="other", query=query), 0)
    assert visible(cluster) == 2


def test_operator_completes_a_job_named_like_a_query(cluster: MemoryCluster) -> None:
    """Another user's job under another prefix has the same name, and the pointer has expired."""
    decided = []
    for attempt, (prefix, run) in enumerate({"p": "0123456789abcdef", "other": "fedcba9876543210"}.items(), 1):
        parts = tuple(each.transaction for each in tasks(cluster, run, prefix=prefix))
        log = LogOn(cluster, prefix, QUERY, DECISIONS)
        decided.append(Decision(prefix, QUERY, run, 0, attempt, len(parts), 0, parts))
        log.decide(decided[-1], log.take_over())
    del cluster.groups[f"p.{QUERY}"]
    operator = DecisionOperator(cluster, DECISIONS, "operator", watch_seconds=0, is_known_dead=True)
    assert operator.carry_out(operator.plan(decided[0], OperatorAction.COMPLETE)).settlement.took_effect
    assert visible(cluster) == 2


def test_operator_completes_the_decision_that_an_older_pointer_misses(cluster: MemoryCluster) -> None:
    """`decisions show` reads the topic, and so shows it."""
    committer(cluster, "run1").commit(tasks(cluster, "run1"), 0)
    pointers = deepcopy(cluster.groups)
    shown = decide(cluster, tasks(cluster, "run1", 1))
    cluster.groups = pointers
    operator = DecisionOperator(cluster, DECISIONS, "operator", watch_seconds=0, is_known_dead=True)
    outcome = operator.carry_out(operator.plan(shown, OperatorAction.COMPLETE))
    assert outcome.settlement.took_effect
    assert visible(cluster) == 4


def test_decision_topic_without_its_newest_records_is_retried_and_has_a_remedy(cluster: MemoryCluster) -> None:
    """A broker that is cut off looks alike, so the commit is tried again; the remedy has both."""
    committer(cluster, "run1").commit(tasks(cluster, "run1", 1), 1)
    cut_off = ShortLogError("The leader does not have offset 0", remedy="Restart when the broker is back")
    fail(cluster, "read_records", cut_off)
    with pytest.raises(ShortLogError) as found:
        LogOn(cluster, "p", QUERY, DECISIONS).newest()
    assert rule_of(found.value).commits_again
    assert found.value.remedy.startswith("Restart when the broker is back. If no broker is, Kafka has lost")
    assert "If the checkpoint has the file 'commits/1'" in found.value.remedy


# The place of decisions


def test_foreign_offset_beside_an_older_pointer_leads_to_a_search(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The decision topic has more partitions by now, and an operator's reset has replaced the newest pointer."""
    cluster.partitions = 1
    committer(cluster, "run1").commit(tasks(cluster, "run1"), 0)
    cluster.partitions = 8
    place = TopicPartition(DECISIONS, decision_partition(QUERY, 8))
    assert place not in cluster.groups[f"p.{QUERY}"]
    cluster.groups[f"p.{QUERY}"][place] = CommittedOffset(place, 5, "")
    committer(cluster, "run2").commit(tasks(cluster, "run2"), 0)
    assert visible(cluster) == 2
    assert "the decisions are searched in the decision topic" in caplog.text


def test_partitioned_decision_topic_needs_one_partition_read(cluster: MemoryCluster) -> None:
    mark(cluster)
    committer(cluster, "run1").commit(tasks(cluster, "run1"), 0)
    assert {call for call in cluster.calls if call.startswith("scan ")} == {"scan 1", "scan on"}
    assert cluster.calls.count("scan 1") == 1
    assert cluster.logs[TopicPartition(DECISIONS, decision_partition(QUERY, 8))]


@pytest.mark.parametrize("name", ["", "/orders", "/%"])
def test_all_writes_of_a_query_use_one_decision_partition_under_any_prefix(name: str) -> None:
    places = {decision_partition(f"{QUERY}{name}", count) for count in (8, 9, 100)}
    assert places == {decision_partition(QUERY, 8)}
    assert decision_partition(f"{QUERY}{name}", 3) == decision_partition(QUERY, 3) < 3


def test_jobs_are_spread_over_decision_partitions_by_name() -> None:
    assert len({decision_partition(f"job/{number}", 8) for number in range(100)}) == 8


def test_micro_batches_without_rows_look_nothing_up_again(cluster: MemoryCluster) -> None:
    driver = committer(cluster, "run1")
    for micro_batch in range(3):
        driver.commit([Empty(Place(QUERY, "run1", micro_batch, 0))], micro_batch)
    assert cluster.calls.count("scan 4") == 1
    driver.commit(tasks(cluster, "run1", 3), 3)
    assert cluster.calls.count("list ids") == 1


# Open decisions


def leave_open(cluster: MemoryCluster, prefix: str) -> tuple[TopicPartition, int]:
    decision = replace(decide(cluster, tasks(cluster, "run1")), prefix=prefix)
    place = TopicPartition(DECISIONS, decision_partition(QUERY, 4))
    driver = cluster.init_producer_id(driver_id(prefix, QUERY), 60_000)
    cluster.logs[place] = [(driver.producer, decision_key(prefix, QUERY), write_decision(decision)[0])]
    cluster.unended.add((place, 0))
    return place, 0


def test_open_decision_under_another_prefix_is_waited_for(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = leave_open(cluster, "other")
    monkeypatch.setattr(cluster, "pass_time", lambda _: cluster.unended.discard(where))
    committer(cluster, "run2").commit(tasks(cluster, "run2"), 0)
    assert visible(cluster) == 2
    assert states(cluster, "run2") == [S.COMPLETE_ABORT] * 2


def test_open_decision_that_does_not_end_is_reported_with_a_command(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_open(cluster, "other")
    monkeypatch.setattr(decision_reader, "_OPEN_LIMIT_SECONDS", 0.0)
    log = LogOn(cluster, "p", QUERY, DECISIONS)
    words = rf"The transaction of other.{QUERY}.driver .*force-terminate --transactional-id=other.{QUERY}.driver`"
    with pytest.raises(UnansweredError, match=words):
        log.newest()


def test_own_open_decision_is_not_waited_for(cluster: MemoryCluster) -> None:
    """The takeover ends it; the driver reads it again afterwards, in case it was committed before."""
    where = leave_open(cluster, "p")
    log = LogOn(cluster, "p", QUERY, DECISIONS)
    assert log.newest() is None
    cluster.unended.discard(where)
    log.scan_again()
    assert log.newest() is not None


# Lookups of a task


def test_process_scans_in_its_first_micro_batch_and_on_a_rerun(cluster: MemoryCluster) -> None:
    log, asked = LogOn(cluster, "p", QUERY, DECISIONS), []
    for micro_batch, write in [(3, "a"), (3, "a"), (4, "b"), (4, "b"), (4, "c"), (4, "c"), (5, "d"), (3, "e")]:
        cluster.calls.clear()
        assert log.pointed(micro_batch, write) is None
        asked.append(cluster.calls)
        cluster.calls = []
    assert asked == [["pointer"], [], [], [], ["pointer"], [], [], ["pointer"]]


def test_task_reads_only_the_pointer(cluster: MemoryCluster) -> None:
    committer(cluster, "run1").commit(tasks(cluster, "run1"), 0)
    cluster.calls.clear()
    assert LogOn(cluster, "p", QUERY, DECISIONS).pointed(1, "") is None
    assert LogOn(cluster, "p", QUERY, DECISIONS).pointed(0, "").run == "run1"
    cluster.groups.clear()
    assert LogOn(cluster, "p", QUERY, DECISIONS).pointed(0, "") is None
    assert cluster.calls == ["pointer"] * 3


@pytest.mark.parametrize("is_skipped", [True, False], ids=["skipped", "empty"])
def test_messages_of_every_kind_are_checked_alike(cluster: MemoryCluster, is_skipped: bool) -> None:
    decide(cluster, tasks(cluster, "run1", checksums=(1, 2) if is_skipped else (1,)))
    place = Place(QUERY, "run2", 0, 1)
    other: TaskMessage = AlreadyCommitted(place, (TopicRows("t", 1, 2),)) if is_skipped else Empty(place)
    committer(cluster, "run2").commit([*tasks(cluster, "run2", checksums=(1,)), other], 0)
    assert visible(cluster) == (2 if is_skipped else 1)


@pytest.mark.parametrize("prefix", ["p", "other"])
def test_abort_of_a_query_with_another_decision_topic_ends_what_it_prepared(
    cluster: MemoryCluster, prefix: str
) -> None:
    """Its commit is refused, and its run has decided nothing in either topic; the other driver may be deciding."""
    committer(cluster, "run1").commit(tasks(cluster, "run1"), 0)
    other = driver_id("p", QUERY)
    cluster.prepare(other, 99, topic=DECISIONS)
    refused = committer(cluster, "run2", prefix, topic="other-decisions")
    prepared = tasks(cluster, "run2", 1, prefix=prefix)
    refused.abort(prepared, 1)
    assert {cluster.ids[each.transaction.transactional_id].state for each in prepared} == {S.COMPLETE_ABORT}
    assert cluster.ids[other].state is S.ONGOING


# Decisions that are gone


def delete_decisions(cluster: MemoryCluster) -> None:
    """Delete the decision topic and create it again: Kafka deletes the offsets of its partitions as well."""
    for place in [each for each in cluster.logs if each.topic == DECISIONS]:
        del cluster.logs[place]
    cluster.groups.clear()


@pytest.mark.parametrize(
    ("before", "now"), [("", ""), ("/orders", "/orders"), ("", "/orders"), ("/orders", ""), ("/orders", "/other")]
)
@pytest.mark.parametrize("micro_batch", [0, 1])
@pytest.mark.parametrize("prefix", ["p", "changed"])
def test_query_stops_if_its_decisions_are_gone(
    cluster: MemoryCluster, before: str, now: str, micro_batch: int, prefix: str
) -> None:
    """A write that was renamed since does not know the old name's rows either."""
    old, query = QUERY + before, QUERY + now
    committer(cluster, "run1", query=old).commit(tasks(cluster, "run1", query=old), 0)
    delete_decisions(cluster)
    for run in ("run2", "run3"):
        messages = tasks(cluster, run, micro_batch, prefix=prefix, query=query)
        driver = committer(cluster, run, prefix, query=query)
        with pytest.raises(TransactionError, match=rf"decisions of query {old} are gone: .* among them p\.") as caught:
            driver.commit(messages, micro_batch)
        driver.abort(messages, micro_batch)
        assert f"all rows of micro-batch {micro_batch} may be there" in str(caught.value)
    assert visible(cluster) == 2


@pytest.mark.parametrize(("before", "now"), [("", "/orders"), ("/orders", ""), ("/orders", "/other")])
def test_renamed_write_stops_if_the_decision_under_its_old_name_is_lost(
    cluster: MemoryCluster, before: str, now: str
) -> None:
    """The decision topic has lost its newest records, and an older decision of that name is still there."""
    old, query = QUERY + before, QUERY + now
    first = committer(cluster, "run1", query=old)
    first.commit(tasks(cluster, "run1", query=old), 0)
    kept = {place: list(log) for place, log in cluster.logs.items() if place.topic == DECISIONS}
    first.commit(tasks(cluster, "run1", 1, query=old), 1)
    cluster.logs.update(kept)
    with pytest.raises(EosKafkaError, match="does not have offset|which does not exist"):
        committer(cluster, "run2", query=query).commit(tasks(cluster, "run2", 1, query=query), 1)
    assert visible(cluster) == 4


def test_write_goes_on_that_another_write_of_its_function_overtakes(cluster: MemoryCluster) -> None:
    """The other one decides after this one has read the decisions, and before it asks for the query's ids."""
    one, other = f"{QUERY}/one", f"{QUERY}/other"
    overtaking = committer(cluster, "run1", query=other)
    before(cluster, "used_ids", lambda: overtaking.commit(tasks(cluster, "run1", query=other), 0))
    committer(cluster, "run1", query=one).commit(tasks(cluster, "run1", query=one), 0)
    assert visible(cluster) == 4


def test_new_write_of_a_run_follows_no_pointer_of_its_other_writes(cluster: MemoryCluster) -> None:
    """As where each micro-batch has a topic or a writeName of its own."""
    asked = []
    for number in range(4):
        cluster.calls.clear()
        query = f"{QUERY}/{number}"
        committer(cluster, "run1", query=query).commit(tasks(cluster, "run1", number, query=query), number)
        asked.append(cluster.calls.count("pointer"))
    assert asked == asked[:1] * 4


def test_jobs_whose_ids_begin_with_the_id_of_one_query_are_not_writes_of_it(cluster: MemoryCluster) -> None:
    """As over Spark Connect with jobId=f"{query.id}/{batch_id}"; their decisions were deleted since."""
    run_job(cluster, "0123456789abcdef", job=f"{QUERY}/0")
    delete_decisions(cluster)
    run_job(cluster, "fedcba9876543210", job=f"{QUERY}/1")
    assert visible(cluster) == 4


def test_names_of_a_week_cost_a_new_one_few_requests(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    """A function may name a write after its micro-batch; after a restart each of the names may be an earlier one."""
    for number in range(100):
        query = f"{QUERY}/{number}"
        committer(cluster, "run1", query=query).commit(tasks(cluster, "run1", number, query=query), number)
        if number == 98:
            kept = {place: list(log) for place, log in cluster.logs.items() if place.topic == DECISIONS}
    cluster.calls.clear()
    query = f"{QUERY}/100"
    committer(cluster, "run2", query=query).commit(tasks(cluster, "run2", 100, query=query), 100)
    assert 0 < cluster.calls.count("pointer") < 20
    assert "knows no decision" not in caplog.text
    # A name whose only decision the topic has lost is still followed.
    cluster.logs.update(kept)
    with pytest.raises(EosKafkaError, match="does not have offset|which does not exist"):
        committer(cluster, "run3", query=f"{QUERY}/new").commit(tasks(cluster, "run3", 100, query=f"{QUERY}/new"), 100)


@pytest.mark.parametrize("query", [QUERY, f"{QUERY}/orders", "report"])
@pytest.mark.parametrize("completed", [0, 1, 2])
def test_rerun_with_another_prefix_and_decision_topic_stops(cluster: MemoryCluster, query: str, completed: int) -> None:
    """The first micro-batch is decided; its driver died, and both options were changed before the restart."""
    log = LogOn(cluster, "p", query, DECISIONS)
    prepared = tuple(each.transaction for each in tasks(cluster, "run1", query=query))
    log.decide(Decision("p", query, "run1", 0, 1, 2, 0, prepared), log.take_over())
    end_all(cluster, prepared[:completed], commit=True)
    driver = committer_of(cluster, "run2", "changed", topic="other-decisions", query=query)
    messages = tasks(cluster, "run2", prefix="changed", query=query)
    with pytest.raises(OptionError, match=f"keeps its decisions in '{DECISIONS}'"):
        driver.commit(messages, 0)
    driver.abort(messages, 0)
    assert visible(cluster) == completed
    # The remedy is to set decisionTopic back; the prefix may stay as it is now.
    again = committer_of(cluster, "run3", "changed", query=query)
    again.commit(tasks(cluster, "run3", prefix="changed", query=query), 0)
    assert visible(cluster) == 2


def run_job(
    cluster: MemoryCluster, run: str, prefix: str = "p", topic: str = DECISIONS, output: str = "t", job: str = "report"
) -> None:
    messages = [
        replace(each, transaction=replace(each.transaction, rows=(TopicRows(output, 1, 1),)))
        for each in tasks(cluster, run, query=job, prefix=prefix)
    ]
    committer_of(cluster, run, prefix, topic=topic, query=job, retirement=Retirement.MARK).commit(messages, 0)


def refuse_group(cluster: MemoryCluster) -> None:
    """Refuse what another team's group says, and only that."""
    usual = cluster.last_offsets

    def last_offsets(group_id: str) -> Sequence[CommittedOffset]:
        if group_id.startswith("another team."):
            raise AuthorizationError(f"The group {group_id} was refused")
        return usual(group_id)

    cluster.last_offsets = last_offsets  # type: ignore[method-assign]


def lose_record(cluster: MemoryCluster) -> None:
    """Lose what another team's pointer points to."""
    for place in [each for each in cluster.logs if each.topic == "their-decisions"]:
        cluster.logs[place].clear()


def nothing(_: MemoryCluster) -> None:
    """Leave another team's job as it is."""


@pytest.mark.parametrize("spoil", [nothing, refuse_group, lose_record])
def test_job_of_another_team_with_the_same_name_stops_none_and_hides_nothing(
    cluster: MemoryCluster, spoil: Callable[[MemoryCluster], None]
) -> None:
    run_job(cluster, "run1", "another team", "their-decisions", "their topic")
    spoil(cluster)
    run_job(cluster, "run2")
    assert visible(cluster) == 4
    delete_decisions(cluster)
    with pytest.raises(TransactionError, match="the job with jobId report are gone"):
        run_job(cluster, "run3")


def test_query_under_another_prefix_without_the_right_to_its_group_stops(cluster: MemoryCluster) -> None:
    """Both options were changed, and the principal may not read under the old prefix."""
    committer(cluster, "run1", "another team").commit(tasks(cluster, "run1", prefix="another team"), 0)
    refuse_group(cluster)
    with pytest.raises(AuthorizationError, match="The group another team"):
        committer_of(cluster, "run2", topic="other-decisions", query=QUERY).commit(tasks(cluster, "run2"), 0)
    assert visible(cluster) == 2


def aborted(cluster: MemoryCluster) -> None:
    """Let the first micro-batch fail before its decision."""
    driver, messages = committer(cluster, "run1"), tasks(cluster, "run1")
    log_of(driver).take_over()
    driver.abort(messages, 0)


def empty(cluster: MemoryCluster) -> None:
    for micro_batch in (0, 1):
        committer(cluster, "run1").commit([Empty(Place(QUERY, "run1", micro_batch, 0))], micro_batch)


def decided(cluster: MemoryCluster) -> None:
    """Let the driver die after its decision, before it ends any transaction."""
    decide(cluster, tasks(cluster, "run1"))


@pytest.mark.parametrize(("before", "micro_batch"), [(None, 0), (None, 7), (aborted, 0), (empty, 2), (decided, 0)])
def test_query_starts_if_nothing_of_it_was_committed(
    cluster: MemoryCluster, before: Callable[[MemoryCluster], None] | None, micro_batch: int
) -> None:
    """A new one, one with the checkpoint of another sink, or one that was never completed."""
    if before is not None:
        before(cluster)
    delete_decisions(cluster)
    cluster.calls.clear()
    driver = committer(cluster, "run2")
    for number in (micro_batch, micro_batch + 1):
        driver.commit(tasks(cluster, "run2", number), number)
    assert visible(cluster) == 4
    # A query that begins does not wait for a broker that hangs.
    is_new = (before, micro_batch) == (None, 0)
    assert [each for each in cluster.calls if each.startswith("list ids")] == [
        "list ids without slow brokers" if is_new else "list ids"
    ]


def test_query_starts_where_brokers_list_no_transactions(cluster: MemoryCluster) -> None:
    fail(cluster, "used_ids", UnsupportedError("ListTransactions"))
    committer(cluster, "run1").commit(tasks(cluster, "run1", 7), 7)
    assert visible(cluster) == 2


def test_names_under_two_prefixes_are_asked_for_in_one_order() -> None:
    """The order of a set differs between processes: no world of the explorer or the simulation could be repeated."""
    for prefix in "abcdefgh":
        own = QueryRun(DecisionLog("old", QUERY, DECISIONS), prefix, QUERY, "run", OnLostTransaction.FAIL)
        assert own.prefixes == [prefix, "old"]
