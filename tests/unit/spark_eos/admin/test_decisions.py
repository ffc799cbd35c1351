"""An operator's view of decisions and the actions on them, on a cluster in memory, and their effect on a restart."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker_core.types import ProducerIdentity, TopicPartition, TransactionState
from spark_eos.admin.command import ExitCode, _parser, run
from spark_eos.admin.decision_operator import DecisionOperator, RefusedError, fates_now
from spark_eos.admin.inventory import read_audit, read_inventory
from spark_eos.errors import FencedError, LostTransactionError, UnansweredError
from spark_eos.sink.decision import Intervention, OperatorAction, Restart, sealed_json, write_decision
from spark_eos.sink.messages import AlreadyCommitted, Place, Prepared
from spark_eos.sink.naming import TaskId, audit_key, audit_key_prefix, decision_key, is_audit_key, is_head_key
from spark_eos.sink.protocol.action_table import Fate
from tests.support.spark_eos.decided_batches import COMMAND, decided, end, newest, parsed, restart
from tests.support.spark_eos.driving import LogOn, log_of, settle
from tests.support.spark_eos.interceptors import before, fail
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, decision_of, prepare, states, task_id, visible

__all__ = ["cluster"]
S = TransactionState


def test_failed_read_keeps_its_error_and_is_not_its_own_cause(cluster: MemoryCluster) -> None:
    failed = UnansweredError("no response")
    fail(cluster, "all_records", failed)
    with pytest.raises(UnansweredError) as caught:
        read_inventory(cluster, DECISIONS, waits=False)
    # The look for the first cause of an error follows it.
    assert caught.value is failed and failed.__cause__ is None


def test_command_without_yes_only_prints_the_plan(cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    decided(cluster)
    earlier = (list(cluster.calls), dict(cluster.outcomes))
    for command in ("complete", "abort"):
        assert run(parsed(command), cluster) == ExitCode.NOTHING_DONE
        printed = capsys.readouterr()
        assert printed.out == "", "the plan is where the question is"
        assert f"About to {command} on h:1:\n" in printed.err
        assert "fence the query's driver, p.q.driver" in printed.err
        assert "2 open transactions of micro-batch 3 of query q" in printed.err
        assert "--yes" in printed.err
    assert dict(cluster.outcomes) == earlier[1]
    assert not [call for call in cluster.calls[len(earlier[0]) :] if call.startswith(("init", "end", "decide"))]


def test_complete_commits_the_decision_and_a_restart_writes_nothing(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    decided(cluster)
    assert run(parsed("complete", "--yes", "--reason", "machine lost"), cluster) == ExitCode.DONE
    assert "2 transactions: 2 committed" in capsys.readouterr().out
    assert (states(cluster), visible(cluster)) == ({S.COMPLETE_COMMIT}, 2)
    done = newest(cluster)
    assert (done.rank, done.completed_at_ms is not None) == ((3, 1, 2), True)
    assert all(isinstance(message, AlreadyCommitted) for message in restart(cluster))
    assert visible(cluster) == 2
    [audit] = read_audit(cluster, DECISIONS, "p", "q")
    assert (audit["action"], audit["by"], audit["reason"]) == ("complete", "ann@desk", "machine lost")
    assert (audit["micro_batch"], audit["found"]["open"], len(audit["transactions"])) == (3, 2, 2)


def test_restart_after_abort_writes_the_micro_batch_again(cluster: MemoryCluster) -> None:
    decided(cluster)
    assert run(parsed("abort", "--yes"), cluster) == ExitCode.DONE
    assert (states(cluster), visible(cluster)) == ({S.COMPLETE_ABORT}, 0)
    assert newest(cluster).is_abandoned
    assert not any(isinstance(message, AlreadyCommitted) for message in restart(cluster))
    assert visible(cluster) == 2
    again = newest(cluster)
    assert (again.run, again.rank, again.intervention) == ("run2", (3, 2, 0), None)


def test_restart_after_abort_with_skip_continues_after_the_micro_batch(cluster: MemoryCluster) -> None:
    decision = decided(cluster)
    end(cluster, decision, 0, commit=True)
    assert run(parsed("abort", "--yes", "--restart", "skip"), cluster) == ExitCode.DONE
    assert visible(cluster) == 1
    assert all(isinstance(message, AlreadyCommitted) for message in restart(cluster))
    assert visible(cluster) == 1
    committer = committer_of(cluster, "run3")
    committer.commit(prepare(cluster, 4, "run3"), 4)
    assert visible(cluster) == 3


@pytest.mark.parametrize("skip", [False, True])
def test_abandoned_decision_is_never_completed(cluster: MemoryCluster, skip: bool) -> None:
    """The operator's process may die after it has stored the intervention and before the transactions end."""
    decision = decided(cluster)
    operator = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=0)
    plan = operator.plan(decision, OperatorAction.ABORT, Restart.SKIP if skip else Restart.REWRITE)
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr("spark_eos.admin.decision_operator.settle", _die)
        with pytest.raises(DiedError):
            operator.carry_out(plan)
    assert states(cluster) == {S.ONGOING}
    restart(cluster)
    assert visible(cluster) == (0 if skip else 2)
    assert S.ONGOING not in states(cluster)


class DiedError(BaseException):
    """The end of the process."""


def _die(*_: object) -> None:
    raise DiedError


def test_partly_visible_micro_batch_is_not_rewritten(cluster: MemoryCluster) -> None:
    decision = decided(cluster)
    end(cluster, decision, 0, commit=True)
    with pytest.raises(RefusedError, match=r"1 committed transaction and .*--restart skip"):
        run(parsed("abort", "--yes"), cluster)
    assert not newest(cluster).is_abandoned


def test_concurrent_commit_during_abort_is_reported_and_stops_the_restart(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fencing stops new decisions; a zombie that was already completing may still send its EndTxn before the abort."""
    decision = decided(cluster)
    before(cluster, "write_decision", lambda: end(cluster, decision, 1, commit=True))
    assert run(parsed("abort", "--yes"), cluster) == ExitCode.DONE_IN_PART
    assert "are not known to be committed" in capsys.readouterr().err
    with pytest.raises(LostTransactionError, match="1 of its 2 transactions"):
        restart(cluster)


def test_complete_reports_lost_transactions_of_a_partly_committed_batch(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    end(cluster, decided(cluster), 0, commit=True)
    cluster.time_out(task_id(worker="w1"))
    assert run(parsed("complete", "--yes", "--output", "json"), cluster) == ExitCode.DONE_IN_PART
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["committed"], document["lost"], document["done"]) == (1, 1, False)
    assert "task 1: lost" in printed.err
    assert "About to complete" in printed.err


def test_complete_aborts_a_batch_with_a_lost_part_and_nothing_committed(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    decided(cluster)
    cluster.time_out(task_id(worker="w1"))
    assert run(parsed("complete"), cluster) == ExitCode.NOTHING_DONE
    planned = capsys.readouterr().err
    assert "abort 1 open transaction of micro-batch 3" in planned and "1 lost transaction and none" in planned
    assert run(parsed("complete", "--yes"), cluster) == ExitCode.DONE_IN_PART
    printed = capsys.readouterr()
    assert "2 transactions: 0 committed, 2 aborted or lost" in printed.out
    assert "No row of the micro-batch is or becomes visible" in printed.err
    assert (states(cluster), visible(cluster)) == ({S.COMPLETE_ABORT}, 0)
    assert run(parsed("complete"), cluster) == ExitCode.NOTHING_DONE
    assert "all are lost, and the restarted query writes the whole micro-batch again" in capsys.readouterr().err
    assert not any(isinstance(message, AlreadyCommitted) for message in restart(cluster))
    assert (visible(cluster), newest(cluster).attempt) == (2, 2)


def test_complete_reports_what_it_waits_for(cluster: MemoryCluster) -> None:
    decided(cluster)
    cluster.forgotten = {task_id(worker="w1")}
    plan = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=0).plan(newest(cluster), OperatorAction.COMPLETE)
    assert plan.count(Fate.HIDDEN) == 1
    assert "wait until 1 transaction of micro-batch 3" in plan.steps()[2]


def test_complete_commits_the_rest_when_a_transaction_outcome_is_unknown(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sink leaves such a micro-batch open; an operator may know more and decide."""
    decision = decided(cluster)
    cluster.forgotten = {task_id(worker="w1")}
    cluster.logs[TopicPartition("t", 1)] = []
    with pytest.raises(LostTransactionError, match="task 1: fate unknown.*task 0: open"):
        restart(cluster)
    assert cluster.ids[task_id(worker="w0")].state is S.ONGOING
    assert run(parsed("complete", "--yes"), cluster) == ExitCode.DONE_IN_PART
    assert "commit 1 open transaction" in capsys.readouterr().err
    assert settle(cluster, newest(cluster)).committed == decision.transactions[:1]


def _writes_a_decision(cluster: MemoryCluster) -> None:
    driver = LogOn(cluster, "p", "q", DECISIONS)
    driver.take_over()


def _begins_a_transaction(cluster: MemoryCluster) -> None:
    prepare(cluster, 4, "run1", (5,))


@pytest.mark.parametrize(
    ("does", "text"), [(_writes_a_decision, "wrote a decision"), (_begins_a_transaction, "began a transaction")]
)
def test_intervention_refuses_while_the_query_is_active(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, does: Callable[[MemoryCluster], None], text: str
) -> None:
    decision = decided(cluster)
    monkeypatch.setattr(cluster, "pass_time", lambda _: does(cluster))
    operator = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=60)
    calls = len(cluster.calls)
    with pytest.raises(RefusedError, match=f"is running: .*{text}"):
        operator.carry_out(operator.plan(decision, OperatorAction.COMPLETE))
    assert not [call for call in cluster.calls[calls:] if call.startswith(("end", "decide"))]


def test_driver_with_an_open_decision_counts_as_active(cluster: MemoryCluster) -> None:
    decision = decided(cluster)
    driver = cluster.ids["p.q.driver"]
    driver.state, driver.started_at_ms = S.ONGOING, cluster.now_ms
    operator = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=0)
    with pytest.raises(RefusedError, match="is writing a decision"):
        operator.carry_out(operator.plan(decision, OperatorAction.COMPLETE))


def test_undetected_live_driver_is_fenced_by_the_intervention(cluster: MemoryCluster) -> None:
    live = committer_of(cluster)
    live.commit(prepare(cluster, 2), 2)
    waiting = prepare(cluster, 3)
    decision = decision_of(waiting, 3)
    live.own.memory.note(identity=log_of(live).decide(decision, log_of(live).take_over()))
    operator = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=0)
    operator.carry_out(operator.plan(decision, OperatorAction.ABORT, Restart.REWRITE))
    later = prepare(cluster, 4, splits=(2,))
    with pytest.raises(FencedError):
        live.commit(later, 4)
    assert newest(cluster).is_abandoned


def test_intervention_refuses_a_decision_that_changed_after_it_was_shown(cluster: MemoryCluster) -> None:
    decision = decided(cluster)
    operator = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=0)
    plan = operator.plan(decision, OperatorAction.COMPLETE)
    end(cluster, decision, 0, commit=False)
    end(cluster, decision, 1, commit=False)
    restart(cluster)
    rows = visible(cluster)
    with pytest.raises(RefusedError, match="has changed since it was shown"):
        operator.carry_out(plan)
    assert visible(cluster) == rows


def test_intervention_ends_orphans_of_a_dead_query(cluster: MemoryCluster) -> None:
    decided(cluster)
    prepare(cluster, 3, splits=(7,))
    other = task_id(prefix="p.q")
    cluster.prepare(other)
    assert run(parsed("complete", "--yes", "--query-is-dead"), cluster) == ExitCode.DONE
    assert cluster.ids[task_id(worker="w7")].state is S.COMPLETE_ABORT
    assert cluster.ids[other].state is S.ONGOING


def test_complete_ends_what_a_dead_query_left_open_after_a_committed_decision(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    decision = decided(cluster)
    for split in (0, 1):
        end(cluster, decision, split, commit=True)
    prepare(cluster, 4, splits=(7,))
    with pytest.raises(RefusedError, match="already committed.*complete --query-is-dead"):
        run(parsed("complete", "--yes"), cluster)
    assert cluster.ids[task_id(worker="w7")].state is S.ONGOING
    assert run(parsed("complete", "--yes", "--query-is-dead"), cluster) == ExitCode.DONE
    assert "  - end no transaction of micro-batch 3 of query q (prefix p): none is open\n" in capsys.readouterr().err
    assert cluster.ids[task_id(worker="w7")].state is S.COMPLETE_ABORT
    committer_of(cluster, "run2").commit(prepare(cluster, 4, "run2"), 4)


@pytest.mark.parametrize("command", ["complete", "abort"])
def test_intervention_refuses_a_committed_or_abandoned_decision(cluster: MemoryCluster, command: str) -> None:
    decision = decided(cluster)
    for split in (0, 1):
        end(cluster, decision, split, commit=True)
    with pytest.raises(RefusedError, match="already committed.*Restart the query.*--restart skip discards"):
        run(parsed(command, "--yes"), cluster)
    other = MemoryCluster(version=cluster.version, now_ms=cluster.now_ms)
    decided(other)
    run(parsed("abort", "--yes"), other)
    with pytest.raises(RefusedError, match="already abandoned by ann@desk"):
        run(parsed(command, "--yes"), other)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "soon"])
def test_activity_watch_ends_after_its_limit(seconds: str) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["decisions", "complete", *COMMAND, "--watch-seconds", seconds])
    assert ended.value.code == ExitCode.USAGE


def test_every_query_is_listed_with_its_state(cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    decision = decided(cluster)
    end(cluster, decision, 0, commit=True)
    other = Prepared(Place("r", "run1", 0, 0), cluster.prepare(str(TaskId("p.q", "r", "run1", "w0", 0))))
    committer_of(cluster, prefix="p.q", query="r").commit([other], 0)
    cluster.logs.setdefault(TopicPartition(DECISIONS, 3), []).append((ProducerIdentity(1, 0), b"x/bad", b"{}"))
    found = {(each.prefix, each.query): each.state for each in read_inventory(cluster, DECISIONS)}
    assert found == {("p", "q"): "1 committed, 1 open", ("p.q", "r"): "committed", ("x", "bad"): "unreadable"}
    assert [each.prefix for each in read_inventory(cluster, DECISIONS, prefix="p")] == ["p"]
    assert run(_parser().parse_args(["decisions", "list", "--bootstrap-server", "h:1"]), cluster) == ExitCode.DONE
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:3] == ["PREFIX", "QUERY", "MICRO-BATCH"]
    assert lines[3].endswith("  unreadable")
    assert said.err.startswith(f"1 record cannot be read as a decision: The decision at {DECISIONS}-3@0 is not a JSON")
    words = ["decisions", "list", "--bootstrap-server", "h:1", "--output", "json"]
    assert run(_parser().parse_args(words), cluster) == ExitCode.DONE
    documents = json.loads(capsys.readouterr().out)
    assert [each["state"] for each in documents] == ["1 committed, 1 open", "committed", "unreadable"]
    assert documents[0]["decision"]["micro_batch"] == 3


def test_show_prints_transaction_outcomes_and_interventions(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    decided(cluster)
    cluster.time_out(task_id(worker="w1"))
    assert run(parsed("show"), cluster) == ExitCode.DONE
    text = capsys.readouterr().out
    assert "Micro-batch 3, attempt 1, 2 tasks" in text
    assert [line.split()[4] for line in text.splitlines() if line.startswith(("0 ", "1 "))] == ["open", "lost"]
    run(parsed("abort", "--yes", "--restart", "skip", "--reason", "gone"), cluster)
    capsys.readouterr()
    assert run(parsed("show", "--output", "json"), cluster) == ExitCode.DONE
    document = json.loads(capsys.readouterr().out)
    assert {each["fate"] for each in document["transactions"]} == {"lost"}
    assert [(e["action"], e["restart"], e["reason"]) for e in document["interventions"]] == [("abort", "skip", "gone")]
    run(parsed("show"), cluster)
    assert "ann@desk  abort --restart skip of micro-batch 3: gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code"),
    [([], ExitCode.DONE), (["--prefix", "p"], ExitCode.FAILED), (["--query", "q"], ExitCode.FAILED)],
)
def test_list_of_a_named_query_fails_without_the_topic(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, words: list[str], code: ExitCode
) -> None:
    monkeypatch.setattr("spark_eos.admin.command._newest", lambda *_: ([], False))
    assert run(_parser().parse_args(["decisions", "list", "--bootstrap-server", "h:1", *words]), cluster) == code


def test_show_changes_nothing(cluster: MemoryCluster) -> None:
    decided(cluster)
    calls = len(cluster.calls)
    run(parsed("show"), cluster)
    run(_parser().parse_args(["decisions", "list", "--bootstrap-server", "h:1"]), cluster)
    assert {call.split()[0] for call in cluster.calls[calls:]} == {"describe"}


def test_query_without_a_decision_is_refused(cluster: MemoryCluster) -> None:
    cluster.logs[TopicPartition(DECISIONS, 0)] = []
    said = "No decision found for query 'q' with transactionalIdPrefix 'p'.*decisions list.*force-terminate --force"
    for command in ("show", "complete", "abort"):
        with pytest.raises(RefusedError, match=said):
            run(parsed(command), cluster)


def test_reason_with_a_line_feed_does_not_look_like_another_intervention(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    decided(cluster)
    forged = "lost\n2026-11-28 04:02:40 UTC  root@desk  abort of micro-batch 3"
    assert run(parsed("complete", "--yes", "--reason", forged), cluster) == ExitCode.DONE
    capsys.readouterr()
    run(parsed("show"), cluster)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "root@desk" in line]
    assert "ann@desk  complete of micro-batch 3: lost\\x0a2026" in line


def test_damaged_audit_record_is_reported_and_others_are_listed(cluster: MemoryCluster) -> None:
    place = TopicPartition(DECISIONS, 0)
    good = {"version": 1, "at_ms": 5, "action": "abort"}
    values = [sealed_json(good).replace(b"abort", b"abord"), sealed_json({**good, "version": 9}), sealed_json(good)]
    cluster.logs[place] = [
        (ProducerIdentity(1, 0), audit_key("p", "q", number, "x"), value) for number, value in enumerate(values)
    ]
    found = read_audit(cluster, DECISIONS, "p", "q")
    assert [each.get("problem", "")[-20:] for each in found[:2]] == [
        "decisions-0@0 is corrupt"[-20:],
        "; upgrade the package"[-20:],
    ]
    assert found[2] == good


def test_audit_and_decision_keys_are_distinct() -> None:
    audit, part = audit_key("a/b!c#d", "q!", 5, "t"), decision_key("a/b!c#d", "q!", 2)
    assert (is_audit_key(audit), is_head_key(audit)) == (True, False)
    assert (is_audit_key(part), is_head_key(part)) == (False, False)
    assert (is_audit_key(decision_key("a!b#", "q")), is_head_key(decision_key("a!b#", "q"))) == (False, True)
    assert not decision_key("p", "q!1").startswith(audit_key_prefix("p", "q"))


def test_decision_in_several_records_is_listed_completely(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "spark_eos.sink.protocol.decision_log.write_decision", lambda decision: write_decision(decision, 1)
    )
    decision = decided(cluster)
    [entry] = read_inventory(cluster, DECISIONS)
    assert entry.decision == decision
    assert entry.fates["open"] == 2
    operator = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=0)
    settled = operator.carry_out(operator.plan(decision, OperatorAction.COMPLETE)).settlement
    assert settled.took_effect
    assert set(fates_now(cluster, settled.decision).values()) == {Fate.COMMITTED}
    [entry] = read_inventory(cluster, DECISIONS)
    assert entry.state == "completed"


def test_completed_micro_batch_skips_the_activity_watch(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records behind foreign open transactions cannot be read yet; that does not matter without a rewrite."""
    place = TopicPartition("t", 0)
    cluster.logs[place] = [(ProducerIdentity(99, 0), None, b"foreign and open")]
    decision = decided(cluster)
    end(cluster, decision, 0, commit=True)
    end(cluster, decision, 1, commit=True)
    cluster.forgotten |= set(cluster.ids)
    word = Intervention(OperatorAction.ABORT, "ann", 5, "", Restart.SKIP)
    # A coordinator may have forgotten an unknown id once its transaction has timed out.
    cluster.pass_time(120_000)
    monkeypatch.setattr(cluster, "pass_time", _die)
    monkeypatch.setattr(cluster, "unstable_end", lambda *_, **__: None)
    settled = settle(cluster, replace(decision, revision=1, intervention=word))
    assert settled.is_closed
    assert [t.split for t in settled.unknown] == [0]


def test_transactions_committed_after_the_listing_are_checked_again(cluster: MemoryCluster) -> None:
    decision = decided(cluster)
    operator = DecisionOperator(cluster, DECISIONS, "ann", watch_seconds=0)
    plan = operator.plan(decision, OperatorAction.ABORT, Restart.REWRITE)
    end(cluster, decision, 0, commit=True)
    with pytest.raises(RefusedError, match="committed transaction"):
        operator.carry_out(plan)
    assert not newest(cluster).is_abandoned
    assert cluster.ids[task_id(worker="w1")].state is S.ONGOING


def test_list_shows_the_newest_record_of_a_key_and_no_tombstones(cluster: MemoryCluster) -> None:
    old, new = decided(cluster), replace(decided(cluster), micro_batch=9)
    values = {decision.micro_batch: write_decision(decision)[0] for decision in (old, new)}
    for place in [each for each in cluster.logs if each.topic == DECISIONS]:
        del cluster.logs[place]
    identity = ProducerIdentity(1, 0)
    for number, value in ((0, values[3]), (1, values[9]), (2, values[3])):
        cluster.logs[TopicPartition(DECISIONS, number)] = [(identity, b"p/q", value)]
    cluster.logs[TopicPartition(DECISIONS, 3)] = [(identity, b"p/job", values[3]), (identity, b"p/job", None)]
    found = read_inventory(cluster, DECISIONS)
    assert [each.decision and each.decision.micro_batch for each in found] == [9]
