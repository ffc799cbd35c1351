"""Failures around the commit point: no row is lost or repeated, and the messages name the actual state."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition, TransactionState
from spark_eos.errors import (
    AuthenticationError,
    AuthorizationError,
    FencedError,
    LostTransactionError,
    OptionError,
    TopicError,
    TransactionError,
    UnansweredError,
    UnreachableError,
    UnsupportedError,
)
from spark_eos.metrics import SINK_METRICS
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink import decision_writer
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import Empty, Place, Prepared, TaskMessage
from spark_eos.sink.protocol.answers import CommittedOffset, DecisionWrite, UnstableOffsetsError
from spark_eos.sink.protocol.decision_log import UNSTABLE_PATIENCE_MS
from spark_eos.sink.protocol.verification import margin_ms
from tests.support.clocks import StandingClock
from tests.support.spark_eos.driving import log_of
from tests.support.spark_eos.interceptors import after, before, fail, instead, restore, watched
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster
from tests.support.spark_eos.sink_commits import (
    cluster,
    committer_of,
    decide_and_die,
    prepare,
    repeated,
    states,
    task_id,
    visible,
)

__all__ = ["cluster"]
S = TransactionState


def _pause_after_decision(cluster: MemoryCluster, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Pause the next driver that decides, after its decision; one of its transactions times out meanwhile."""

    def paused() -> None:
        cluster.pass_time(70_000)
        cluster.time_out(task_id(worker="w1"))
        meanwhile()

    after(cluster, "write_decision", paused)


def _commit_by_hand(cluster: MemoryCluster, message: TaskMessage) -> None:
    assert isinstance(message, Prepared)
    transaction = message.transaction
    cluster.end_transactions([transaction.opened], commit=True)


# A re-run of the decided micro-batch without a task never reaches the committer.


@pytest.mark.parametrize("next_is_empty", [False, True])
def test_first_commit_of_a_run_completes_an_older_decision(cluster: MemoryCluster, next_is_empty: bool) -> None:
    _commit_by_hand(cluster, decide_and_die(cluster)[0])
    messages: list[TaskMessage] = [Empty(Place("q", "run2", 1, 0))]
    committer_of(cluster, "run2").commit(messages if next_is_empty else prepare(cluster, 1, "run2", (5,)), 1)
    assert states(cluster) == {S.COMPLETE_COMMIT}


@pytest.mark.parametrize("policy", OnLostTransaction)
def test_lost_older_decision_stops_the_query_under_either_policy(
    cluster: MemoryCluster, policy: OnLostTransaction
) -> None:
    """Spark does not run it again, so there are no rows to rewrite it with."""
    decide_and_die(cluster)
    cluster.time_out(task_id(worker="w1"))
    committer = committer_of(cluster, "run2", policy=policy)
    messages = prepare(cluster, 1, "run2", (5,))
    with pytest.raises(LostTransactionError, match="Micro-batch 0 .* 2 of its 2 .*will not run the older"):
        committer.commit(messages, 1)
    assert cluster.calls.count("decide") == 1
    assert cluster.ids[task_id(worker="w0")].state is S.COMPLETE_ABORT


def test_open_older_decision_stops_the_query_before_a_newer_decision(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator is unavailable for a while: a newer decision would let the sweep abort the older micro-batch."""
    decide_and_die(cluster)
    end, away = cluster.end_transactions, task_id(worker="w1")

    def answer(opened: list[OpenTransaction], commit: bool, wait_ms: int | None = None) -> object:
        answers = end([each for each in opened if each.transactional_id != away], commit)
        return {each.transactional_id: answers.get(each.transactional_id, EndAnswer(None)) for each in opened}

    committer, messages = committer_of(cluster, "run2"), prepare(cluster, 1, "run2", (5,))
    with monkeypatch.context() as silent:
        silent.setattr(cluster, "end_transactions", answer)
        with pytest.raises(TransactionError, match="Micro-batch 0 .* 1 of its 2 .*Nothing is lost so far"):
            committer.commit(messages, 1)
    assert cluster.calls.count("decide") == 1
    assert cluster.ids[away].state is S.ONGOING
    committer_of(cluster, "run3").commit(prepare(cluster, 1, "run3", (5,)), 1)
    assert visible(cluster) == 3


def test_query_resumes_after_all_its_state_has_expired(cluster: MemoryCluster) -> None:
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    cluster.forgotten = set(cluster.ids)
    cluster.logs = {place: log for place, log in cluster.logs.items() if place.topic != "t"}
    cluster.forgotten.discard("p.q.driver")
    committer_of(cluster, "run2").commit(prepare(cluster, 1, "run2", (5,)), 1)
    assert cluster.calls.count("decide") == 2


def test_sweep_leaves_the_newest_decision_alone(cluster: MemoryCluster) -> None:
    zombie = committer_of(cluster, "run1")
    zombie.commit(prepare(cluster, 0, "run1"), 0)
    decide_and_die(cluster, 1, splits=(7,))
    zombie.abort([], 1)
    assert cluster.ids[task_id("run1", "w7")].state is S.ONGOING


def test_lost_batch_whose_rerun_is_empty_is_decided_as_empty(cluster: MemoryCluster) -> None:
    """Otherwise the lost decision would remain the newest, and every later start of the query would stop at it."""
    decide_and_die(cluster)
    for worker in ("w0", "w1"):
        cluster.time_out(task_id(worker=worker))
    committer = committer_of(cluster, "run2")
    committer.commit([Empty(Place("q", "run2", 0, n)) for n in (0, 1)], 0)
    decision = log_of(committer).newest()
    assert (decision.attempt, decision.transactions) == (2, ())
    committer_of(cluster, "run3").commit(prepare(cluster, 1, "run3", (5,)), 1)


# Failures after the decision do not look like "not written".


def test_failed_sweep_is_logged_and_counted_and_the_batch_is_committed(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    failed = SINK_METRICS.snapshot().get("sweeps_failed", 0)
    fail(cluster, "open_transactions", UnansweredError("a broker is offline"))
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    assert visible(cluster) == 2
    assert SINK_METRICS.snapshot()["sweeps_failed"] == failed + 1
    assert "is committed; transactions that lost attempts left open are swept later: a broker is offline" in caplog.text


def test_permanently_failing_completion_reports_the_batch_as_decided(cluster: MemoryCluster) -> None:
    failed_at_ms = list[int]()
    fail(cluster, "end_transactions", UnreachableError("no coordinator is known"))
    before(cluster, "end_transactions", lambda: failed_at_ms.append(cluster.now_ms), times=1_000)
    messages = prepare(cluster, 0)
    with pytest.raises(
        TransactionError, match=r"is decided, but could not .*no coordinator.*jobId=q.*decisions .*complete --prefix"
    ):
        committer_of(cluster).commit(messages, 0)
    assert 50_000 < failed_at_ms[-1] - failed_at_ms[0] < 60_000
    assert states(cluster) == {S.ONGOING}
    restore(cluster, "end_transactions")
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert visible(cluster) == 2


def test_refused_credentials_leave_time_for_a_restart_with_others(cluster: MemoryCluster) -> None:
    """A password is changed while brokers restart in turn: some coordinators have committed, and the others refuse."""
    messages, began_at_ms = prepare(cluster, 0), cluster.now_ms

    def refuse() -> None:
        _commit_by_hand(cluster, messages[0])
        for call in ("end_transactions", "describe_transactions"):
            fail(cluster, call, AuthenticationError("Kafka rejected the login"))

    after(cluster, "write_decision", refuse)
    with pytest.raises(TransactionError, match=r"is decided, but could not be completed: Kafka rejected.*run .*jobId"):
        committer_of(cluster).commit(messages, 0)
    assert 10_000 < cluster.now_ms - began_at_ms < 30_000, "the transactions time out after 60 s"
    restore(cluster, "end_transactions", "describe_transactions")
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert (states(cluster), visible(cluster)) == ({S.COMPLETE_COMMIT}, 2)


@pytest.mark.parametrize("look_up", ["committed_offsets", "describe_transactions"], ids=["pointer", "late EndTxn"])
def test_unclear_decision_that_cannot_be_looked_up_is_reported_as_unclear(cluster: MemoryCluster, look_up: str) -> None:
    cluster.lose_answer_of = {"p.q.driver"}
    after(cluster, "write_decision", lambda: fail(cluster, look_up, UnreachableError("no broker answers")))
    with pytest.raises(TransactionError, match=r"Cannot determine whether micro-batch 0 .*no broker answers.*jobId=q"):
        committer_of(cluster).commit(prepare(cluster, 0), 0)


# Reading the decision log


def test_unavailable_group_coordinator_is_waited_for(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = cluster.committed_offsets

    def slow(group_id: str, wait_ms: int) -> object:
        if wait_ms <= UNSTABLE_PATIENCE_MS:
            raise UnreachableError("no coordinator is known for the group")
        return answer(group_id, wait_ms=wait_ms)

    monkeypatch.setattr(cluster, "committed_offsets", slow)
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    assert visible(cluster) == 2


def test_changed_decision_topic_is_refused_with_the_old_name(cluster: MemoryCluster) -> None:
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    moved = committer_of(cluster, "run2", topic="other-decisions")
    for act in (log_of(moved).newest, lambda: moved.commit(prepare(cluster, 0, "run2"), 0)):
        with pytest.raises(OptionError, match=f"keeps its decisions in '{DECISIONS}'.*Set decisionTopic={DECISIONS}"):
            act()
    assert visible(cluster) == 2 and cluster.calls.count("decide") == 1


def test_failed_scan_is_not_cached_as_no_decision(cluster: MemoryCluster) -> None:
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    cluster.groups.clear()
    again = committer_of(cluster, "run2")
    fail(cluster, "find_records", UnansweredError("the topic is not known yet"))
    with pytest.raises(UnansweredError):
        log_of(again).newest()
    restore(cluster, "find_records")
    assert log_of(again).newest() is not None


# The driver's deadline and its transactional id


def test_late_decision_is_not_made(cluster: MemoryCluster) -> None:
    """One transaction times out while the decision is written: a decision now would leave half of the batch visible."""
    messages = prepare(cluster, 0)
    cluster.pass_time(53_000)

    def slow() -> None:
        cluster.pass_time(20_000)
        cluster.time_out(task_id(worker="w1"))

    before(cluster, "append_decision", slow)
    committer = committer_of(cluster)
    with pytest.raises(TransactionError, match="too long"):
        committer.commit(messages, 0)
    committer.abort(messages, 0)
    assert visible(cluster) == 0


@pytest.mark.parametrize("failures", [0, 1])
def test_decision_deadline_leaves_time_for_completion(cluster: MemoryCluster, failures: int) -> None:
    """The second attempt verifies the transactions before it writes its decision, and has the same limit."""
    by_ms = cluster.now_ms + 60_000 - 3_000
    fail(cluster, "append_decision", UnansweredError("the connection was lost"), times=failures)
    written = watched(cluster, "append_decision")
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    assert [decision.decide_by_ms for (decision,) in written] == [by_ms] * (1 + failures)


def test_late_end_txn_still_in_flight_decides_nothing(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deadline has passed without a response; if it arrived now, the transactions might already have timed out."""
    on_the_way: list[OpenTransaction] = []

    def written_but_not_ended(write: DecisionWrite) -> EndAnswer:
        cluster.prepare(write.transaction.transactional_id, 99, topic="elsewhere")
        on_the_way.append(write.transaction)
        return EndAnswer(None)

    monkeypatch.setattr(cluster, "write_decision", written_but_not_ended)
    committer, messages = committer_of(cluster), prepare(cluster, 0)
    with pytest.raises(TransactionError, match="was not decided"):
        committer.commit(messages, 0)
    assert cluster.ids["p.q.driver"].state is S.COMPLETE_ABORT
    answers = cluster.end_transactions(on_the_way, commit=True)
    assert answers["p.q.driver"].code is not ErrorCode.NONE
    committer.abort(messages, 0)
    assert visible(cluster) == 0


def test_abort_without_a_right_to_the_group_ends_what_is_not_decided(cluster: MemoryCluster) -> None:
    decided = decide_and_die(cluster)
    undecided = prepare(cluster, 1, splits=[2])
    fail(cluster, "committed_offsets", AuthorizationError("The group p.q was refused"))
    committer_of(cluster).abort([*decided, *undecided], 1)
    assert {name: each.state for name, each in cluster.ids.items() if not name.endswith(".driver")} == {
        task_id(worker="w0"): S.ONGOING,
        task_id(worker="w1"): S.ONGOING,
        task_id(worker="w2"): S.COMPLETE_ABORT,
    }


def test_abort_without_a_right_to_the_group_ends_an_open_decision(cluster: MemoryCluster) -> None:
    messages = prepare(cluster, 0)
    cluster.init_producer_id("p.q.driver", 60_000)
    cluster.prepare("p.q.driver", 99, topic=DECISIONS)
    fail(cluster, "committed_offsets", AuthorizationError("The group p.q was refused"))
    committer_of(cluster).abort(messages, 0)
    assert cluster.ids["p.q.driver"].state is S.COMPLETE_ABORT
    assert states(cluster) == {S.COMPLETE_ABORT}


def test_abort_without_the_group_leaves_all_open_while_the_decision_cannot_be_ended(cluster: MemoryCluster) -> None:
    """What the open decision names is not known, so nothing may be aborted."""
    messages = prepare(cluster, 0)
    cluster.init_producer_id("p.q.driver", 60_000)
    cluster.prepare("p.q.driver", 99, topic=DECISIONS)
    fail(cluster, "committed_offsets", AuthorizationError("The group p.q was refused"))
    instead(cluster, "end_transactions", dict, times=10_000)
    with pytest.raises(UnansweredError, match=r"p\.q\.driver has not ended, so what it decides is not known"):
        committer_of(cluster).abort(messages, 0)
    assert states(cluster) == {S.ONGOING}


@pytest.mark.parametrize("kind", [TopicError, AuthorizationError])
@pytest.mark.parametrize("is_decided", [False, True])
def test_commit_whose_decision_topic_is_gone_ends_what_it_knows_to_be_undecided(
    cluster: MemoryCluster, is_decided: bool, kind: type[TransactionError]
) -> None:
    """The abort can read no decision either; if the end of the decision was not answered, all stays open."""

    def delete() -> None:
        for name in ("committed_offsets", "partition_count"):
            fail(cluster, name, kind("The decision topic does not exist"))
        if not is_decided:
            raise UnansweredError("no leader")

    messages = prepare(cluster, 0)
    cluster.lose_answer_of = {"p.q.driver"}
    (after if is_decided else before)(cluster, "write_decision", delete)
    with pytest.raises(kind, match="does not exist"):
        committer_of(cluster).commit(messages, 0)
    assert states(cluster) == {S.ONGOING if is_decided else S.COMPLETE_ABORT}
    if not is_decided:
        committer_of(cluster).abort(messages, 0)


def test_unended_transactions_do_not_hide_that_the_decision_topic_is_gone(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    messages = prepare(cluster, 0)
    fail(cluster, "partition_count", TopicError("The decision topic does not exist"))
    fail(cluster, "end_transactions", UnansweredError("no leader"))
    with pytest.raises(TopicError, match="does not exist"):
        committer_of(cluster).commit(messages, 0)
    assert "left to the abort: no leader" in caplog.text


def test_decision_that_its_slow_driver_ends_before_the_abort_is_found(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next driver finds the decision written and not ended; its abort comes too late and ends nothing."""
    held = list[DecisionWrite]()

    def hold(write: DecisionWrite, _commit: bool) -> EndAnswer:
        held.append(write)
        raise KeyboardInterrupt

    messages = prepare(cluster, 0)
    with monkeypatch.context() as holding, pytest.raises(KeyboardInterrupt):
        holding.setattr(cluster, "end_decision", hold)
        committer_of(cluster).commit(messages, 0)
    fail(cluster, "committed_offsets", UnstableOffsetsError("a decision is not ended"), times=1)
    before(cluster, "end_transactions", lambda: cluster.write_decision(held[0]))
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert cluster.calls.count("decide") == 1
    assert states(cluster) == {S.COMPLETE_COMMIT}


def test_late_driver_does_not_abort_a_newer_decision(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken_over(write: DecisionWrite) -> EndAnswer:
        cluster.init_producer_id(write.transaction.transactional_id, 60_000)
        cluster.prepare(write.transaction.transactional_id, 99, topic="elsewhere")
        return EndAnswer(None)

    monkeypatch.setattr(cluster, "write_decision", taken_over)
    with pytest.raises(FencedError, match="newer driver is running query q"):
        committer_of(cluster).commit(prepare(cluster, 0), 0)
    assert cluster.ids["p.q.driver"].state is S.ONGOING


@pytest.mark.parametrize(
    ("timeout_ms", "expected_ms"),
    [(1_000, 500), (2_000, 1_000), (8_000, 1_000), (10_000, 1_000), (60_000, 6_000), (900_000, 30_000)],
)
def test_margin_covers_decision_and_completion_and_leaves_working_time(timeout_ms: int, expected_ms: int) -> None:
    assert margin_ms(timeout_ms) == expected_ms


@pytest.mark.parametrize(("left_ms", "repeated_for_ms"), [(None, None), (20_000, 20_000), (300, 300), (-50, 1)])
def test_end_txn_of_a_decision_is_retried_until_its_deadline(left_ms: int | None, repeated_for_ms: int | None) -> None:
    """With any timeout: an end after the deadline could outlive the transactions of the decision."""
    by_ms = None if left_ms is None else 5_000_000 + left_ms
    write = DecisionWrite(
        OpenTransaction("d", ProducerIdentity(1, 1), 2), TopicPartition("t", 0), (), "g", None, 0, 0, by_ms
    )
    assert decision_writer._left_ms(write, StandingClock(5_000_000)) == repeated_for_ms


def test_driver_id_that_expired_while_idle_is_initialized_again(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    committer = _idle_driver(cluster)
    del cluster.ids["p.q.driver"]
    with caplog.at_level(logging.INFO):
        committer.commit(prepare(cluster, 1), 1)
    decision = log_of(committer).newest()
    assert decision.micro_batch == 1
    # V1 initializes the id for every decision, so the broker never returns this code.
    assert ("got INVALID_PRODUCER_ID_MAPPING" in caplog.text) is (cluster.version == 2)


def _idle_driver(cluster: MemoryCluster) -> Committer:
    committer = committer_of(cluster)
    committer.commit(prepare(cluster, 0), 0)
    return committer


def test_driver_with_an_expired_id_yields_to_a_newer_one(cluster: MemoryCluster) -> None:
    committer = _idle_driver(cluster)
    del cluster.ids["p.q.driver"]
    log_of(committer_of(cluster, "run2")).take_over()
    with pytest.raises(FencedError, match="newer driver is running query q"):
        committer.commit(prepare(cluster, 1), 1)


@pytest.mark.parametrize("policy", OnLostTransaction)
def test_driver_paused_after_its_decision_checks_before_committing(
    cluster: MemoryCluster, policy: OnLostTransaction
) -> None:
    """One transaction has timed out meanwhile: committing the other would make half of the micro-batch visible."""
    committer = committer_of(cluster, policy=policy)
    messages = prepare(cluster, 0)
    _pause_after_decision(cluster)
    with pytest.raises(
        LostTransactionError, match="2 of its 2 .*No row of the micro-batch is or becomes visible.*again"
    ):
        committer.commit(messages, 0)
    committer.abort(messages, 0)
    assert (visible(cluster), states(cluster)) == (0, {S.COMPLETE_ABORT})
    committer_of(cluster, "run2", policy=policy).commit(prepare(cluster, 0, "run2"), 0)
    assert visible(cluster) == 2


# Seed 418 of the simulation: the paused driver claimed that no row of the micro-batch becomes visible.
@pytest.mark.parametrize("later", [0, 1])
def test_driver_paused_after_its_decision_names_the_run_that_has_gone_on(cluster: MemoryCluster, later: int) -> None:
    """Another run has found the decided transactions lost, and has written the micro-batch again."""

    def go_on() -> None:
        other = committer_of(cluster, "run2")
        for micro_batch in range(later + 1):
            other.commit(prepare(cluster, micro_batch, "run2"), micro_batch)

    committer = committer_of(cluster)
    messages = prepare(cluster, 0)
    _pause_after_decision(cluster, go_on)
    with pytest.raises(FencedError, match=f"run2 has decided micro-batch {later}.*were lost: .*2 of its 2") as stopped:
        committer.commit(messages, 0)
    assert "No row" not in str(stopped.value)
    assert visible(cluster) == 2 + 2 * later


def test_outdated_decision_of_an_earlier_run_does_not_explain_a_loss(cluster: MemoryCluster) -> None:
    """A group coordinator that is cut off shows the decision of the run before."""
    committer_of(cluster, "run0").commit(prepare(cluster, 0, "run0"), 0)
    past = dict(cluster.groups["p.q"])

    def cut_off() -> None:
        cluster.past_offsets["p.q"], cluster.past_found_again = past, 100

    _pause_after_decision(cluster, cut_off)
    with pytest.raises(LostTransactionError, match="Micro-batch 1 .*2 of its 2"):
        committer_of(cluster).commit(prepare(cluster, 1), 1)


def test_loss_is_reported_if_the_newest_decision_cannot_be_read(cluster: MemoryCluster) -> None:
    committer = committer_of(cluster)
    unreachable = UnreachableError("no coordinator is known")
    _pause_after_decision(cluster, lambda: fail(committer.own.log, "newest", unreachable))
    with pytest.raises(LostTransactionError, match="2 of its 2"):
        committer.commit(prepare(cluster, 0), 0)


def test_retried_completion_checks_before_committing(cluster: MemoryCluster) -> None:
    def fail_and_time_out() -> NoReturn:
        cluster.time_out(task_id(worker="w1"))
        raise UnreachableError("no coordinator is known")

    instead(cluster, "end_transactions", fail_and_time_out)
    with pytest.raises(LostTransactionError, match="2 of its 2"):
        committer_of(cluster).commit(prepare(cluster, 0), 0)
    assert visible(cluster) == 0


def test_no_transaction_is_the_first_to_be_committed_when_the_time_is_over(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`__transaction_state` lacked replicas for longer than the timeout; then each coordinator aborts in its turn."""
    messages, over_ms = prepare(cluster, 0), cluster.now_ms + 60_000
    end, describe = cluster.end_transactions, cluster.describe_transactions

    def time_out(*workers: str) -> None:
        for name in map(task_id, ["run1"] * len(workers), workers):
            if cluster.ids[name].state is S.ONGOING:
                cluster.time_out(name)

    def end_late(opened: list[OpenTransaction], commit: bool, wait_ms: int | None = None) -> object:
        if commit and cluster.now_ms < over_ms:
            cluster.pass_time(5_000)
            return {each.transactional_id: EndAnswer(None) for each in opened}
        time_out("w1")
        return end(opened, commit)

    def describe_late(names: list[str], wait_ms: int | None = None) -> object:
        if cluster.now_ms > over_ms + 4_000:
            time_out("w0", "w1")
        return describe(names)

    monkeypatch.setattr(cluster, "end_transactions", end_late)
    monkeypatch.setattr(cluster, "describe_transactions", describe_late)
    with pytest.raises(LostTransactionError, match="2 of its 2 .*No row of the micro-batch is or becomes visible"):
        committer_of(cluster).commit(messages, 0)
    committer_of(cluster, "run2").commit(prepare(cluster, 0, "run2"), 0)
    assert visible(cluster) == 2


def test_commit_is_repeated_while_its_transactions_last(cluster: MemoryCluster) -> None:
    """The setting of the API timeout may be longer than that, and is no reason to commit what has timed out."""
    ends = watched(cluster, "end_transactions")
    prepared = [each for each in prepare(cluster, 0) if isinstance(each, Prepared)]
    committer_of(cluster).commit(
        [replace(each, transaction=replace(each.transaction, timeout_ms=300_000)) for each in prepared], 0
    )
    assert [wait_ms for _, _, wait_ms in ends] == [300_000]


def test_time_of_a_first_commit_is_that_of_the_coordinator(cluster: MemoryCluster) -> None:
    """A task counts its time from before its transaction began, or by a clock that is behind."""
    decide_and_die(cluster)
    cluster.pass_time(65_000)
    for worker in ("w0", "w1"):
        cluster.ids[task_id(worker=worker)].started_at_ms += 55_000
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert visible(cluster) == 2


def test_pointer_may_be_in_any_topic_but_must_belong_to_the_query(cluster: MemoryCluster) -> None:
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    ((place, offset),) = cluster.groups["p.q"].items()
    stranger = place._replace(topic="strange")
    cluster.groups["p.q"][stranger] = CommittedOffset(stranger, offset.offset, "")
    with pytest.raises(
        Exception, match=r"topic 'strange', which the sink did not commit.*--group p.q --topic strange`"
    ):
        committer_of(cluster, "run2").commit(prepare(cluster, 0, "run2"), 0)


def test_nonretriable_completion_error_is_not_retried(cluster: MemoryCluster) -> None:
    fail(cluster, "end_transactions", UnsupportedError("no such request"))
    began_at_ms = cluster.now_ms
    with pytest.raises(TransactionError, match="is decided, but could not be completed: no such request"):
        committer_of(cluster).commit(prepare(cluster, 0), 0)
    assert cluster.now_ms == began_at_ms
