"""The limits of an intervention, and the report of its outcome, on a cluster in memory."""

import json

import pytest

from broker_core.types import TransactionState
from spark_eos.admin import command
from spark_eos.admin.command import ExitCode, main, run
from spark_eos.admin.decision_operator import DecisionOperator, FencedRefusalError, RefusedError
from spark_eos.errors import FencedError, LostTransactionError, UnansweredError
from spark_eos.options.client import ClientOptions
from spark_eos.sink.decision import Decision, OperatorAction, Restart
from tests.support.spark_eos.decided_batches import COMMAND, decided, end, newest, parsed, restart
from tests.support.spark_eos.driving import log_of
from tests.support.spark_eos.interceptors import before, fail
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, decision_of, prepare, task_id, visible

__all__ = ["cluster"]
S = TransactionState


def operator_of(cluster: MemoryCluster, *, is_known_dead: bool = False) -> DecisionOperator:
    return DecisionOperator(cluster, "eos-kafka-decisions", "ann", watch_seconds=0, is_known_dead=is_known_dead)


OFFLINE = UnansweredError("a broker is offline")


# Transactions that are ended


@pytest.mark.parametrize("now_ms", [1_000_000, 10**13])
def test_orphans_are_identified_by_run_and_not_by_time(cluster: MemoryCluster, now_ms: int) -> None:
    """The operator's clock may differ from the coordinators' by hours, and the query may be restarted meanwhile."""
    cluster.now_ms = now_ms
    decided(cluster)
    orphan, older = task_id(worker="w7"), task_id(run="run0")
    cluster.prepare(orphan, 7)
    cluster.prepare(older, 8)
    started_again = task_id(run="run2")
    before(cluster, "write_decision", lambda: cluster.prepare(started_again, 9))
    assert run(parsed("complete", "--yes", "--query-is-dead"), cluster) == ExitCode.DONE
    assert {cluster.ids[name].state for name in (orphan, older)} == {S.COMPLETE_ABORT}
    assert cluster.ids[started_again].state is S.ONGOING
    assert newest(cluster).superseded == ("run1", "run0")


def test_transactions_decided_in_the_meantime_are_left_alone(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = decided(cluster)
    orphans = prepare(cluster, 4, splits=(7,))
    plan = operator_of(cluster).plan(decision, OperatorAction.COMPLETE)
    list_open, times = cluster.open_transactions, []

    def decide_before_the_sweep(id_prefix: str, **more: object) -> object:
        times.append(id_prefix)
        if len(times) == 3:
            log = log_of(committer_of(cluster))
            log.decide(decision_of(orphans, 4), log.take_over())
        return list_open(id_prefix, **more)

    monkeypatch.setattr(cluster, "open_transactions", decide_before_the_sweep)
    operator_of(cluster, is_known_dead=True).carry_out(plan)
    assert len(times) == 3
    assert cluster.ids[task_id(worker="w7")].state is S.ONGOING


def test_plan_that_is_out_of_date_is_not_carried_out(cluster: MemoryCluster) -> None:
    """A transaction times out while a person reads that two are to be committed: a commit would be an abort now."""
    decision = decided(cluster)
    plan = operator_of(cluster).plan(decision, OperatorAction.COMPLETE)
    assert "commit 2 open transactions" in plan.steps()[2]
    end(cluster, decision, 0, commit=False)
    with pytest.raises(
        FencedRefusalError, match="has changed since it was shown. It would now abort 1 open transaction"
    ):
        operator_of(cluster).carry_out(plan)
    assert newest(cluster) == decision
    assert cluster.ids[decision.transactions[1].transactional_id].state is S.ONGOING


def test_query_paused_during_an_intervention_cannot_decide_afterwards(cluster: MemoryCluster) -> None:
    """The driver's process has ended meanwhile, so the next one would take over as a new driver."""
    decided(cluster)
    assert run(parsed("complete", "--yes"), cluster) == ExitCode.DONE
    paused = committer_of(cluster, "run1")
    with pytest.raises(FencedError, match="ann@desk has intervened with `eos-kafka decisions complete`.*with jobId=q"):
        paused.commit(prepare(cluster, 4), 4)
    committer_of(cluster, "run2").commit(prepare(cluster, 4, "run2"), 4)


# Activity of the query


def test_complete_refuses_while_open_transactions_may_belong_to_a_live_query(cluster: MemoryCluster) -> None:
    decision = decided(cluster)
    prepare(cluster, 4, "run2", (7,))
    calls = len(cluster.calls)
    operator = operator_of(cluster)
    with pytest.raises(
        RefusedError, match=r"1 open transaction outside the decision, for example p\.q\.run2\.w7\.0.*dead"
    ):
        operator.carry_out(operator.plan(decision, OperatorAction.COMPLETE))
    assert {call.split()[0] for call in cluster.calls[calls:]} == {"describe"}


# Messages


def test_unwritable_note_does_not_hide_the_result_or_stop_the_sweep(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    decided(cluster)
    prepare(cluster, 3, splits=(7,))
    fail(cluster, "write_decision", OFFLINE, times=1, first=2)
    words = ("complete", "--yes", "--query-is-dead", "--output", "json")
    assert run(parsed(*words), cluster) == ExitCode.DONE_IN_PART
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["committed"], document["done"], len(document["problems"])) == (2, True, 1)
    assert "could not be recorded in eos-kafka-decisions: a broker is offline" in printed.err
    assert visible(cluster) == 2
    assert cluster.ids[task_id(worker="w7")].state is S.COMPLETE_ABORT


def test_failed_sweep_does_not_hide_the_result(cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    decided(cluster)
    fail(cluster, "open_transactions", OFFLINE, times=1, first=3)
    assert run(parsed("complete", "--yes"), cluster) == ExitCode.DONE_IN_PART
    printed = capsys.readouterr()
    assert "2 transactions: 2 committed" in printed.out
    assert "could not be aborted and end at their timeout: a broker is offline" in printed.err


def test_intervention_written_but_not_carried_out_is_reported(cluster: MemoryCluster) -> None:
    decided(cluster)
    fail(cluster, "end_transactions", OFFLINE, times=1)
    with pytest.raises(UnansweredError, match=r"The intervention is stored .*restart the query.*was fenced"):
        run(parsed("abort", "--yes"), cluster)
    restart(cluster)
    assert visible(cluster) == 2


def test_refusal_after_fencing_warns_that_a_running_query_stops(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decision = decided(cluster)
    operator = operator_of(cluster)
    plan = operator.plan(decision, OperatorAction.ABORT, Restart.REWRITE)
    end(cluster, decision, 0, commit=True)
    words = r"committed transaction.*--restart skip.*driver, p\.q\.driver, was fenced.*stops at its next commit"
    with pytest.raises(FencedRefusalError, match=words):
        operator.carry_out(plan)
    monkeypatch.setattr(command.parsers, "options_of", lambda *_: ClientOptions(("h:1",)))
    monkeypatch.setattr(command, "KafkaCluster", lambda *_: cluster)
    look = DecisionOperator.plan
    plans = iter([plan])
    monkeypatch.setattr(DecisionOperator, "plan", lambda *arguments: next(plans, None) or look(*arguments))
    assert main(["decisions", "abort", "--yes", *COMMAND]) == ExitCode.NOTHING_DONE
    assert capsys.readouterr().err.splitlines()[5].startswith("No transaction and no decision was changed: ")


def test_error_after_fencing_warns_that_a_running_query_stops(cluster: MemoryCluster) -> None:
    decided(cluster)
    fail(cluster, "write_decision", OFFLINE, times=1)
    with pytest.raises(UnansweredError, match=r"a broker is offline.*was fenced before this check"):
        run(parsed("complete", "--yes"), cluster)


# Consecutive interventions


def test_partly_visible_batch_abandoned_for_rewrite_can_still_be_skipped(cluster: MemoryCluster) -> None:
    """A zombie's commit arrived before the abort: the restart stops, and only skipping lets the query continue."""
    decision = decided(cluster)
    before(cluster, "write_decision", lambda: end(cluster, decision, 1, commit=True))
    assert run(parsed("abort", "--yes"), cluster) == ExitCode.DONE_IN_PART
    with pytest.raises(LostTransactionError, match="1 of its 2 transactions"):
        restart(cluster)
    abandoned: Decision = newest(cluster)
    with pytest.raises(RefusedError, match="already abandoned"):
        operator_of(cluster).plan(abandoned, OperatorAction.ABORT, Restart.REWRITE)
    assert operator_of(cluster).plan(abandoned, OperatorAction.ABORT, Restart.SKIP).restart is Restart.SKIP
    assert run(parsed("abort", "--yes", "--restart", "skip"), cluster) == ExitCode.DONE
    assert newest(cluster).is_skipped
    restart(cluster)
    assert visible(cluster) == 1
    with pytest.raises(RefusedError, match="already abandoned"):
        operator_of(cluster).plan(newest(cluster), OperatorAction.ABORT, Restart.SKIP)
