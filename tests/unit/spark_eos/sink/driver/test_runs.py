"""The order of a query's runs: the runs that may no longer decide, and the runs whose transactions may be ended."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition, TransactionState
from spark_eos.errors import FencedError, TransactionError, UnansweredError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.decision import Decision, join_parts, read_part, write_decision
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import TaskMessage
from spark_eos.sink.protocol.answers import Appended, CommittedOffset, DecisionWrite, FoundRecords, UnstableOffsetsError
from spark_eos.sink.protocol.decision_errors import UndecidedError
from spark_eos.sink.protocol.decision_log import UNSTABLE_LIMIT_MS
from spark_eos.sink.protocol.driver_identity import DriverIdentity
from spark_eos.sink.protocol.orphan_sweep import superseding
from spark_eos.sink.protocol.retirement import Retirement
from tests.support.spark_eos.driving import LogOn, log_of
from tests.support.spark_eos.interceptors import after, before, fail, instead, restore
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, decide_and_die, prepare, repeated, task_id

__all__ = ["cluster"]
S = TransactionState


def newest(cluster: MemoryCluster) -> Decision:
    return log_of(committer_of(cluster)).newest()


def state_of(cluster: MemoryCluster, *, run: str = "run1", worker: str = "late") -> TransactionState:
    return cluster.ids[task_id(run, worker)].state


def name_as_superseded(cluster: MemoryCluster, run: str) -> None:
    """Record a run as superseded in the newest decision, as an operator's intervention does."""
    log = LogOn(cluster, "p", "q", DECISIONS)
    driver, found = log.take_over(), newest(cluster)
    log.amend(replace(found, revision=found.revision + 1, superseded=(run,)), driver, cluster.now_ms)


# Transactions that are swept


def test_task_of_a_superseded_run_is_swept_whenever_it_begins(cluster: MemoryCluster) -> None:
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    newer = committer_of(cluster, "run2")
    messages = prepare(cluster, 1, "run2")
    cluster.pass_time(1_000)
    cluster.prepare(task_id(worker="late"), 7)
    newer.commit(messages, 1)
    assert newest(cluster).superseded == ("run1",)
    assert state_of(cluster) is S.COMPLETE_ABORT


def test_run_that_never_decided_is_recognized_by_its_swept_transactions(cluster: MemoryCluster) -> None:
    cluster.prepare(task_id("run0", "early"), 5)
    cluster.pass_time(1_000)
    committer = committer_of(cluster)
    committer.commit(prepare(cluster, 0), 0)
    cluster.prepare(task_id("run0", "late"), 6)
    committer.commit(prepare(cluster, 1), 1)
    assert newest(cluster).superseded == ("run0",)
    assert state_of(cluster, run="run0") is S.COMPLETE_ABORT


def test_run_without_any_known_activity_is_left_alone(cluster: MemoryCluster) -> None:
    """The run may belong to a newer driver: an abort would stop it, or break the decision that it is writing."""
    committer = committer_of(cluster)
    messages = prepare(cluster, 0)
    cluster.pass_time(1_000)
    cluster.prepare(task_id("run9", "late"), 6)
    for micro_batch in range(2):
        committer.commit(messages if micro_batch == 0 else prepare(cluster, 1), micro_batch)
    assert newest(cluster).superseded == ()
    assert state_of(cluster, run="run9") is S.ONGOING


def test_process_started_mid_run_does_not_take_a_newer_run_for_an_older_one(cluster: MemoryCluster) -> None:
    """Spark ends an idle Python process, and the next one does not know when its run began."""
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    cluster.prepare(task_id("run9", "late"), 6)
    cluster.pass_time(1_000)
    again = committer_of(cluster)
    for micro_batch in (1, 2):
        again.commit(prepare(cluster, micro_batch), micro_batch)
    assert newest(cluster).superseded == ()


# Runs that may decide


def test_superseded_run_without_state_decides_nothing_and_fences_no_driver(cluster: MemoryCluster) -> None:
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    newer = committer_of(cluster, "run2")
    newer.commit(prepare(cluster, 1, "run2"), 1)
    paused, messages = committer_of(cluster), prepare(cluster, 2)
    with pytest.raises(
        FencedError, match=r"Run run1 .* may no longer decide: run run2 has decided micro-batch 1.*checkpoint"
    ):
        paused.commit(messages, 2)
    paused.abort(messages, 2)
    assert state_of(cluster, worker="w0") is S.COMPLETE_ABORT
    newer.commit(prepare(cluster, 2, "run2"), 2)


def test_run_superseded_during_takeover_decides_nothing(cluster: MemoryCluster) -> None:
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    paused, messages = committer_of(cluster), prepare(cluster, 2)
    newer = prepare(cluster, 1, "run2")
    before(paused.own.log, "take_over", lambda: committer_of(cluster, "run2").commit(newer, 1))
    with pytest.raises(FencedError, match="may no longer decide"):
        paused.commit(messages, 2)
    assert newest(cluster).micro_batch == 1
    assert paused.own.state.identity is None


def test_run_superseded_during_epoch_renewal_decides_nothing(cluster: MemoryCluster) -> None:
    """The lookup of the owner of the driver's id and the takeover are two requests; an operator may act in between."""
    running = committer_of(cluster)
    running.commit(prepare(cluster, 0), 0)
    assert running.own.state.identity is not None
    running.own.memory.note(identity=replace(running.own.state.identity, spent=True))

    def just_after_an_operator() -> Coroutine[Any, Any, DriverIdentity]:
        name_as_superseded(cluster, "run1")
        return running.own.log.take_over()

    instead(running.own.log, "renew", just_after_an_operator)
    with pytest.raises(FencedError, match="may no longer decide"):
        running.commit(prepare(cluster, 1), 1)
    assert newest(cluster).micro_batch == 0


def test_run_superseded_while_its_expired_id_is_renewed_decides_nothing(cluster: MemoryCluster) -> None:
    running = committer_of(cluster)
    running.commit(prepare(cluster, 0), 0)

    def expired() -> NoReturn:
        name_as_superseded(cluster, "run1")
        running.own.memory.note(attempted=None)
        raise UndecidedError("its id is unknown", error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    instead(running.own.log, "decide", expired)
    with pytest.raises(FencedError, match="may no longer decide"):
        running.commit(prepare(cluster, 1), 1)
    assert newest(cluster).micro_batch == 0


@pytest.mark.parametrize("error", [FencedError, TransactionError], ids=["fenced", "stale"])
def test_message_is_correct_when_another_run_wrote_the_micro_batch(
    cluster: MemoryCluster, error: type[TransactionError]
) -> None:
    paused = committer_of(cluster)
    messages = prepare(cluster, 0) if error is FencedError else []
    cluster.pass_time(1_000)
    newer = committer_of(cluster, "run2")
    for micro_batch in (0, 1):
        newer.commit(prepare(cluster, micro_batch, "run2"), micro_batch)
    with pytest.raises(error, match="nothing that this run prepared becomes visible"):
        paused.commit(messages or prepare(cluster, 0), 0)


def test_job_run_superseded_by_an_operator_decides_nothing(cluster: MemoryCluster) -> None:
    """The operator who supersedes a run ends its open transactions, perhaps at this moment."""
    decide_and_die(cluster, run="run0")
    for worker in ("w0", "w1"):
        cluster.time_out(task_id("run0", worker))
    messages = prepare(cluster, 0, "run1")
    name_as_superseded(cluster, "run1")
    with pytest.raises(FencedError, match="may no longer decide"):
        committer_of(cluster, "run1", retirement=Retirement.MARK).commit(messages, 0)
    assert newest(cluster).run == "run0"


def test_run_continues_in_a_new_process(cluster: MemoryCluster) -> None:
    committer_of(cluster, "run0").commit(prepare(cluster, 0, "run0"), 0)
    for micro_batch in (1, 2, 3):
        committer_of(cluster).commit(prepare(cluster, micro_batch), micro_batch)
    assert (newest(cluster).micro_batch, newest(cluster).superseded) == (3, ("run0",))


def test_job_has_one_micro_batch_and_supersedes_no_run(cluster: MemoryCluster) -> None:
    decide_and_die(cluster, run="run0")
    for worker in ("w0", "w1"):
        cluster.time_out(task_id("run0", worker))
    committer_of(cluster, "run1", retirement=Retirement.MARK).commit(prepare(cluster, 0), 0)
    assert (newest(cluster).run, newest(cluster).attempt, newest(cluster).superseded) == ("run1", 2, ())
    committer_of(cluster, "run0", retirement=Retirement.MARK).commit(repeated("run0"), 0)


def test_superseded_runs_are_listed_once_without_the_run_itself() -> None:
    before = Decision("p", "q", "run5", 3, 1, 0, 0, (), superseded=tuple(f"run{n}" for n in range(20)))
    named = superseding(before, "run7", ["run9", "run5"])
    assert named[:4] == ("run5", "run9", "run0", "run1")
    assert (len(named), "run7" in named, len(set(named))) == (16, False, 16)
    assert superseding(None, "run1") == ()


@pytest.mark.parametrize("superseded", [(), ("run1", "run/2")])
def test_superseded_runs_are_read_back_and_omitted_when_empty(superseded: tuple[str, ...]) -> None:
    decision = Decision("p", "q", "r", 7, 1, 0, 123, (), superseded=superseded)
    [value] = write_decision(decision)
    assert (b"superseded" in value) is bool(superseded)
    assert join_parts([read_part(value, "here")], "here") == decision


# Micro-batches that are only completed


def test_transactions_left_open_by_the_deciding_run_are_swept_after_completion(cluster: MemoryCluster) -> None:
    decide_and_die(cluster)
    cluster.prepare(task_id(worker="late"), 7)
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert state_of(cluster) is S.COMPLETE_ABORT
    assert {state_of(cluster, worker=f"w{n}") for n in (0, 1)} == {S.COMPLETE_COMMIT}
    noted = newest(cluster)
    assert (noted.revision, noted.run, noted.superseded) == (1, "run1", ("run1",))
    with pytest.raises(FencedError, match="may no longer decide"):
        committer_of(cluster).commit(prepare(cluster, 1), 1)
    committer_of(cluster, "run2").commit(prepare(cluster, 1, "run2"), 1)


def test_new_transaction_of_an_id_in_the_decision_is_swept(cluster: MemoryCluster) -> None:
    """The id of a committed transaction is reused; only id and epoch together identify a transaction."""
    messages = prepare(cluster, 0)
    committer_of(cluster).commit(messages, 0)
    cluster.init_producer_id(task_id(worker="w0"), 60_000)
    cluster.prepare(task_id(worker="w0"), 7)
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert state_of(cluster, worker="w0") is S.COMPLETE_ABORT


def test_note_is_not_written_when_no_transaction_was_left_open(cluster: MemoryCluster) -> None:
    decide_and_die(cluster)
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert newest(cluster).revision == 0


def test_transactions_of_another_run_are_left_alone_without_the_note(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver of that run could still decide; the micro-batch is committed, so nothing fails."""
    decide_and_die(cluster)
    cluster.prepare(task_id(worker="late"), 7)
    committer = committer_of(cluster, "run2")
    fail(cluster, "write_decision", UnansweredError("a broker is offline"))
    committer.commit(repeated(), 0)
    assert "is committed; the transactions that run run1 left open are swept later: a broker is offline" in caplog.text
    assert state_of(cluster) is S.ONGOING
    restore(cluster, "write_decision")
    committer.commit(prepare(cluster, 1, "run2"), 1)
    assert state_of(cluster) is S.COMPLETE_ABORT


def test_finished_job_sweeps_transactions_its_run_left_open(cluster: MemoryCluster) -> None:
    decide_and_die(cluster)
    cluster.prepare(task_id(worker="late"), 7)
    cluster.prepare(task_id("run3", "late"), 8)
    committer_of(cluster, "run2", retirement=Retirement.MARK).commit(repeated(), 0)
    assert state_of(cluster) is S.COMPLETE_ABORT
    assert state_of(cluster, run="run3") is S.ONGOING
    assert newest(cluster).completed_at_ms is not None


def check_stopped_by_a_newer_run(
    cluster: MemoryCluster, paused: Committer, messages: Sequence[TaskMessage], newer: Committer, micro_batch: int
) -> None:
    """Check that a commit of run 1 stops, and that run 2, which decides in the middle of it, goes on afterwards."""
    decided = rf"Run run1 .* may no longer decide: run run2 has decided micro-batch {micro_batch}"
    with pytest.raises(FencedError, match=decided):
        paused.commit(messages, micro_batch)
    paused.abort(messages, micro_batch)
    newer.commit(prepare(cluster, micro_batch + 1, "run2"), micro_batch + 1)
    assert newest(cluster).run == "run2" and newest(cluster).micro_batch == micro_batch + 1


def test_driver_paused_after_its_takeover_does_not_follow_a_newer_driver(cluster: MemoryCluster) -> None:
    """The explorer found it: what a driver reads when it wakes was not there when it took over."""
    paused, newer = committer_of(cluster), committer_of(cluster, "run2")
    messages, others = prepare(cluster, 0), prepare(cluster, 0, "run2")
    after(cluster, "init_producer_id", lambda: newer.commit(others, 0))
    check_stopped_by_a_newer_run(cluster, paused, messages, newer, 0)


def test_driver_paused_before_its_last_look_does_not_follow_a_newer_driver(cluster: MemoryCluster) -> None:
    """The explorer found it: a query without decisions looks for committed ids, and then once more for decisions."""
    paused, newer = committer_of(cluster), committer_of(cluster, "run2")
    messages, others = prepare(cluster, 1), prepare(cluster, 1, "run2")
    before(cluster, "used_ids", lambda: newer.commit(others, 1))
    check_stopped_by_a_newer_run(cluster, paused, messages, newer, 1)


@pytest.mark.parametrize("is_next_failed", [False, True])
def test_driver_whose_look_after_a_takeover_failed_does_not_fence_a_newer_one(
    cluster: MemoryCluster, is_next_failed: bool
) -> None:
    """The explorer found it: the process held the id, and did not know yet what was decided by then."""
    paused, newer = committer_of(cluster), committer_of(cluster, "run2")
    messages, others = prepare(cluster, 0), prepare(cluster, 0, "run2")
    scan, look = cluster.find_records, cluster.committed_offsets

    def fail(group_id: str, wait_ms: int) -> NoReturn:
        # The second request of a look waits for longer.
        if wait_ms == UNSTABLE_LIMIT_MS:
            cluster.committed_offsets = look  # type: ignore[method-assign]
        raise UnansweredError("no response")

    def fail_after_a_pause(starts: Mapping[TopicPartition, int | None], wanted: Callable[..., bool]) -> FoundRecords:
        if not cluster.calls.count("init p.q.driver"):
            return scan(starts, wanted)
        cluster.find_records = scan  # type: ignore[method-assign]
        newer.commit(others, 0)
        if is_next_failed:
            cluster.committed_offsets = fail  # type: ignore[method-assign]
        raise UnansweredError("no response")

    cluster.find_records = fail_after_a_pause  # type: ignore[method-assign]
    check_stopped_by_a_newer_run(cluster, paused, messages, newer, 0)


def test_late_takeover_of_its_own_after_a_failed_look_stops_no_driver_that_is_alone(cluster: MemoryCluster) -> None:
    """InitProducerId got no response and is applied after the second one, while the look after that one fails."""
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    driver, messages = committer_of(cluster, "run2"), prepare(cluster, 1, "run2")
    take, look = cluster.init_producer_id, cluster.committed_offsets
    taken, failed = list[str](), list[str]()

    def init_producer_id(transactional_id: str, timeout_ms: int) -> OpenTransaction:
        taken.append(transactional_id)
        if len(taken) == 1:
            raise UnansweredError("no response")
        return take(transactional_id, timeout_ms)

    def committed_offsets(*given: Any, **named: Any) -> Any:
        if len(taken) != 2 or len(failed) == 2:
            return look(*given, **named)
        failed.append("no response")
        if len(failed) == 2:
            take(taken[0], 30_000)
        raise UnansweredError(failed[-1])

    cluster.init_producer_id = init_producer_id  # type: ignore[method-assign]
    cluster.committed_offsets = committed_offsets  # type: ignore[method-assign]
    driver.commit(messages, 1)
    assert newest(cluster).run == "run2" and newest(cluster).micro_batch == 1


def test_decision_that_a_stale_answer_hid_before_the_takeover_is_followed(cluster: MemoryCluster) -> None:
    """The id is as this process took it, so no newer driver is running."""
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    cluster.past_offsets["p.q"] = {}
    cluster.find_records = lambda starts, _: FoundRecords((), (), dict.fromkeys(starts, 0))  # type: ignore[method-assign]

    def found() -> None:
        cluster.past_offsets.clear()
        restore(cluster, "find_records")

    before(cluster, "init_producer_id", found)
    committer_of(cluster, "run2").commit(repeated(), 0)
    assert newest(cluster).run == "run1"


def test_driver_that_ends_a_newer_drivers_decision_does_not_take_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the explorer: what it had ended itself looked like the timeout of its own decision (KAFKA-19367)."""
    cluster = MemoryCluster(version=2)
    older, newer = committer_of(cluster), committer_of(cluster, "run2")
    older.commit(prepare(cluster, 0), 0)
    late, answer, start = prepare(cluster, 1), cluster.committed_offsets, cluster.start_decision

    def pending(group_id: str, wait_ms: int) -> Sequence[CommittedOffset]:
        if cluster.ids["p.q.driver"].state is S.ONGOING:
            raise UnstableOffsetsError("a decision is open")
        return answer(group_id, wait_ms=wait_ms)

    def fenced(write: DecisionWrite) -> Appended:
        cluster.start_decision = start  # type: ignore[method-assign]
        held = log_of(newer).take_over()
        cluster.ids["p.q.driver"].state = S.ONGOING
        assert held.producer == cluster.ids["p.q.driver"].identity
        monkeypatch.setattr(cluster, "committed_offsets", pending)
        return start(write)

    cluster.start_decision = fenced  # type: ignore[method-assign]
    with pytest.raises(FencedError, match="A newer driver is running query q"):
        older.commit(late, 1)
    assert log_of(newer).take_over().producer.producer_epoch == cluster.ids["p.q.driver"].identity.producer_epoch
    newer.commit(prepare(cluster, 1, "run2"), 1)
    assert newest(cluster).run == "run2"
