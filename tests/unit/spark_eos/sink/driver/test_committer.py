"""The two-phase commit on the driver, on a cluster in memory."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from broker_core.types import ProducerIdentity, TransactionState
from spark_eos.admin.decision_operator import DecisionOperator
from spark_eos.errors import FencedError, LostTransactionError, TransactionError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import OperatorAction, Restart
from spark_eos.sink.messages import Empty, Place, Prepared, TaskMessage
from spark_eos.sink.naming import TaskId
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.answers import Description
from spark_eos.sink.protocol.retirement import Retirement
from spark_eos.sink.protocol.verification import open_problem
from tests.support.spark_eos.driving import LogOn, end_all, log_of
from tests.support.spark_eos.interceptors import watched
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, decision_of, prepare, repeated, states, task_id

__all__ = ["cluster"]
S = TransactionState


def test_micro_batch_is_decided_once_then_completed(cluster: MemoryCluster) -> None:
    committer = committer_of(cluster)
    committer.commit(prepare(cluster, 0), 0)
    assert states(cluster) == {S.COMPLETE_COMMIT}
    decide = cluster.calls.index("decide")
    assert cluster.calls.index(f"end {task_id(worker='w0')} commit") > decide
    decision = log_of(committer).newest()
    assert (decision.micro_batch, decision.attempt, decision.run, decision.split_count) == (0, 1, "run1", 2)


def test_driver_takes_over_once_per_run(cluster: MemoryCluster) -> None:
    committer = committer_of(cluster)
    for micro_batch in range(3):
        committer.commit(prepare(cluster, micro_batch), micro_batch)
    # Under V1 the end of a transaction does not bump the epoch, and each decision needs an epoch of its own.
    assert cluster.calls.count("init p.q.driver") == (3 if cluster.version == 1 else 1)


@pytest.mark.parametrize("what", ["timed out", "forgotten", "near its timeout"])
def test_transaction_not_known_to_be_open_prevents_the_decision(cluster: MemoryCluster, what: str) -> None:
    messages = prepare(cluster, 0)
    if what == "timed out":
        cluster.time_out(task_id(worker="w1"))
    elif what == "forgotten":
        cluster.forgotten.add(task_id(worker="w1"))
    else:
        cluster.now_ms += 55_000
    committer = committer_of(cluster)
    with pytest.raises(LostTransactionError, match="no row of the micro-batch is visible"):
        committer.commit(messages, 0)
    assert "decide" not in cluster.calls
    committer.abort(messages, 0)
    assert S.COMPLETE_COMMIT not in states(cluster)
    if what != "forgotten":
        assert states(cluster) == {S.COMPLETE_ABORT}


def test_abort_ends_prepared_transactions_and_lost_attempts_of_the_run(cluster: MemoryCluster) -> None:
    messages = prepare(cluster, 0)
    cluster.prepare(task_id(worker="lost-attempt"), 2)
    other_run, other_prefix = task_id(run="run2"), task_id(prefix="p.q")
    cluster.prepare(other_run, 3)
    cluster.prepare(other_prefix, 4)
    committer_of(cluster).abort(messages, 0)
    still_open = {name for name, each in cluster.ids.items() if each.state is S.ONGOING}
    assert still_open == {other_run, other_prefix}


def test_sweep_ends_only_lost_attempts_and_older_runs(cluster: MemoryCluster) -> None:
    orphan_of_old_run = task_id(run="run0")
    cluster.prepare(orphan_of_old_run, 5)
    cluster.now_ms += 1_000
    messages = prepare(cluster, 0)
    lost_attempt = task_id(worker="lost")
    cluster.prepare(lost_attempt, 6)
    cluster.now_ms += 1_000
    newer_run, other_query = task_id(run="run2"), str(TaskId("p", "q2", "run0", "w", 0))
    cluster.prepare(newer_run, 7)
    cluster.ids[other_query] = cluster.ids[newer_run]
    committer_of(cluster).commit(messages, 0)
    assert cluster.ids[orphan_of_old_run].state is S.COMPLETE_ABORT
    assert cluster.ids[lost_attempt].state is S.COMPLETE_ABORT
    assert cluster.ids[newer_run].state is S.ONGOING
    # Each abort identifies one transaction; InitProducerId would abort any transaction that the id has open by then.
    assert not [call for call in cluster.calls[cluster.calls.index("decide") :] if call.startswith("init p.q.run")]


def test_ending_an_orphan_waits_out_a_coordinator_move(cluster: MemoryCluster) -> None:
    """There may be no later micro-batch to end the orphan, which blocks readers."""
    cluster.prepare(task_id(worker="lost"), 6)
    ends, lists = watched(cluster, "end_transactions"), watched(cluster, "open_transactions")
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    assert [wait_ms for _, wait_ms in lists] == [1_000]
    assert [wait_ms for _, commit, wait_ms in ends if not commit] == [30_000]


def test_tasks_that_found_the_batch_committed_need_no_decision(cluster: MemoryCluster) -> None:
    first = committer_of(cluster)
    first.commit(prepare(cluster, 0), 0)
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert cluster.calls.count("decide") == 1


def test_conflict_between_task_and_driver_about_a_lost_batch_is_an_error(cluster: MemoryCluster) -> None:
    _decide_and_lose(cluster, lost=(0, 1))
    messages = [*prepare(cluster, 0, "run2", (0,)), *repeated("run2", 0, (1,))]
    with pytest.raises(
        TransactionError, match="driver found 2 transactions of attempt 1, all lost.*restarting is safe"
    ):
        committer_of(cluster, "run2").commit(messages, 0)
    assert cluster.calls.count("decide") == 1


def test_batch_older_than_the_newest_decision_stops_the_query(cluster: MemoryCluster) -> None:
    """The driver is a zombie, or its checkpoint was restored or copied and its rows differ."""
    newer = committer_of(cluster, "run2")
    newer.commit(prepare(cluster, 0, "run2"), 0)
    newer.commit(prepare(cluster, 1, "run2"), 1)
    older, messages = committer_of(cluster, "run1"), prepare(cluster, 0, "run1")
    with pytest.raises(
        TransactionError,
        match=r"micro-batch 1 is already decided, by run run2 .*2 micro-batches older .*is a copy.*new UUID",
    ):
        older.commit(messages, 0)
    older.abort(messages, 0)
    assert cluster.calls.count("decide") == 2
    assert cluster.ids[task_id("run1", "w0")].state is S.COMPLETE_ABORT


def test_fenced_driver_decides_nothing_and_sweeps_only_its_own_run(cluster: MemoryCluster) -> None:
    old = committer_of(cluster, "run1")
    old.commit(prepare(cluster, 0, "run1"), 0)
    new = committer_of(cluster, "run2")
    log_of(new).take_over()
    theirs = prepare(cluster, 1, "run2")
    ours = prepare(cluster, 1, "run1")
    with pytest.raises(FencedError, match="newer driver"):
        old.commit(ours, 1)
    old.abort(ours, 1)
    assert {cluster.ids[task_id("run1", f"w{n}")].state for n in (0, 1)} == {S.COMPLETE_ABORT}
    new.commit(theirs, 1)
    assert {cluster.ids[task_id("run2", f"w{n}")].state for n in (0, 1)} == {S.COMPLETE_COMMIT}


def _in_topic(messages: list[TaskMessage], topic_id: UUID) -> list[TaskMessage]:
    """Return the messages of tasks that have written to the topic with this id."""
    found: list[TaskMessage] = []
    for each in messages:
        assert isinstance(each, Prepared)
        ranges = tuple(replace(written, topic_id=topic_id) for written in each.transaction.ranges)
        found.append(replace(each, transaction=replace(each.transaction, ranges=ranges)))
    return found


def _decide_and_lose(cluster: MemoryCluster, lost: Sequence[int], topic_id: UUID | None = None) -> list[TaskMessage]:
    messages = prepare(cluster, 0, "run1")
    if topic_id is not None:
        messages = _in_topic(messages, topic_id)
    log = LogOn(cluster, "p", "q", DECISIONS)
    log.decide(decision_of(messages), log.take_over())
    end_all(cluster, [t for t in decision_of(messages).transactions if t.split not in lost], commit=True)
    for split in lost:
        cluster.time_out(task_id("run1", f"w{split}"))
    return messages


def test_rewrite_decides_kept_and_rewritten_transactions_together(cluster: MemoryCluster) -> None:
    first = _decide_and_lose(cluster, lost=(1,))
    committer = committer_of(cluster, "run2", policy=OnLostTransaction.REWRITE)
    rewritten = prepare(cluster, 0, "run2", (1,))
    committer.commit([*repeated(splits=(0,)), *rewritten], 0)
    decision = log_of(committer).newest()
    kept = first[0]
    assert decision is not None and isinstance(kept, Prepared) and isinstance(rewritten[0], Prepared)
    assert decision.transactions == (kept.transaction, rewritten[0].transaction)
    assert decision.attempt == 2
    assert cluster.ids[task_id("run1", "w0")].state is S.COMPLETE_COMMIT


def test_job_that_an_operator_skipped_asks_nothing_of_its_topic(cluster: MemoryCluster) -> None:
    """Nothing of it is written again, so a topic that was made again does not matter."""
    _decide_and_lose(cluster, lost=(1,), topic_id=UUID(int=1))
    operator = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=0, is_known_dead=True)
    operator.carry_out(operator.plan(LogOn(cluster, "p", "q", DECISIONS).newest(), OperatorAction.ABORT, Restart.SKIP))
    cluster.topic_ids = {"t": UUID(int=2)}
    committer = committer_of(cluster, "run2")
    committer.own.retirement = Retirement.MARK
    committer.commit(repeated(splits=(0, 1)), 0)
    assert committer.committed == ()


@pytest.mark.parametrize("is_job", [True, False])
def test_rewrite_notices_that_the_kept_rows_went_with_their_topic(
    cluster: MemoryCluster, is_job: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before, now = UUID(int=1), UUID(int=2)
    _decide_and_lose(cluster, lost=(1,), topic_id=before)
    cluster.topic_ids = {"t": now}
    committer = committer_of(cluster, "run2", policy=OnLostTransaction.REWRITE)
    messages = [*repeated(splits=(0,)), *_in_topic(prepare(cluster, 0, "run2", (1,)), now)]
    if cluster.version < 2:
        # Under the old protocol only the log tells the loss, and it is gone.
        with pytest.raises(LostTransactionError, match="task 1: fate unknown"):
            committer.commit(messages, 0)
        return
    if is_job:
        committer.own.retirement = Retirement.MARK
        with pytest.raises(LostTransactionError, match="topic 't' was deleted and created again, and 1 record"):
            committer.commit(messages, 0)
        return
    committer.commit(messages, 0)
    assert "topic 't' was deleted and created again, and 1 record" in caplog.text
    # Two ids of one topic: neither says where all of its rows are.
    newest = LogOn(cluster, "p", "q", DECISIONS).newest()
    assert [written.topic_id for each in newest.transactions for written in each.ranges] == [None, None]


@pytest.mark.parametrize("splits", [(0,), (0, 1, 2), ()])
def test_rewrite_refuses_transactions_that_were_not_lost(cluster: MemoryCluster, splits: tuple[int, ...]) -> None:
    _decide_and_lose(cluster, lost=(1,))
    skipped = repeated(splits=[n for n in (0, 1) if n not in splits])
    committer = committer_of(cluster, "run2", policy=OnLostTransaction.REWRITE)
    with pytest.raises(LostTransactionError):
        committer.commit([*skipped, *prepare(cluster, 0, "run2", splits)], 0)
    assert cluster.calls.count("decide") == 1


def test_messages_of_another_batch_are_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(TransactionError, match="received a message of .*micro-batch 1"):
        committer_of(cluster).commit([Empty(Place("q", "run1", 1, 0))], 0)


@pytest.mark.parametrize(("age_ms", "is_problem"), [(0, False), (53_000, False), (54_500, True), (61_000, True)])
def test_remaining_time_until_the_transaction_timeout(age_ms: int, is_problem: bool) -> None:
    transaction = PreparedTransaction(0, OpenTransaction("id", ProducerIdentity(1, 1), 2), 60_000, 0, ())
    described = Description("id", S.ONGOING, ProducerIdentity(1, 1), 60_000, 1_000)
    assert (open_problem(transaction, described, 1_000 + age_ms) is not None) is is_problem


def test_implausible_clock_is_reported() -> None:
    transaction = PreparedTransaction(0, OpenTransaction("id", ProducerIdentity(1, 1), 2), 60_000, 0, ())
    described = Description("id", S.ONGOING, ProducerIdentity(1, 1), 60_000, 1_000)
    assert "compare the two clocks" in str(open_problem(transaction, described, 3_600_000))
    late = "timed out 1000 ms ago by this driver's clock (its timeout is 60000 ms) and is still open"
    assert str(open_problem(transaction, described, 62_000)).startswith(f"{late}: its coordinator aborts it soon, or")
    assert open_problem(transaction, described, 60_000) == "times out in 1000 ms (its timeout is 60000 ms)"


def test_transactions_unknown_to_their_coordinator_are_not_decided(cluster: MemoryCluster) -> None:
    """An EndTxn would write no marker there: the rows would stay invisible and block the last stable offset."""
    messages = prepare(cluster, 0)
    cluster.ids[task_id(worker="w1")].partitions = []
    with pytest.raises(LostTransactionError, match=r"of task 1 .*\['t-1'\], but its coordinator has \[\]"):
        committer_of(cluster).commit(messages, 0)
    assert "decide" not in cluster.calls
