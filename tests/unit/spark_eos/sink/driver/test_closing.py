"""The decision of a completed batch job, and the reading of revised decisions."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.admin.inventory import read_inventory
from spark_eos.errors import LostTransactionError, UnansweredError
from spark_eos.open_transaction import EndAnswer
from spark_eos.sink.decision import (
    Decision,
    Intervention,
    OperatorAction,
    Restart,
    join_parts,
    read_part,
    read_pointer,
    write_decision,
    write_pointer,
)
from spark_eos.sink.messages import Place, Prepared
from spark_eos.sink.naming import TaskId
from spark_eos.sink.protocol.answers import DecisionWrite
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.retirement import Retirement, completed
from tests.support.spark_eos.driving import LogOn, log_of, settle
from tests.support.spark_eos.interceptors import after, before, fail, watched
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster
from tests.support.spark_eos.sink_commits import (
    cluster,
    committer_of,
    decide_and_die,
    decision_of,
    prepare,
    repeated,
    task_id,
)

__all__ = ["cluster"]
# UUIDs, which Spark queries, their runs and jobs may have as names.
UUIDS = tuple(f"8a1c0d3e-0000-4000-8000-00000000000{number}" for number in range(3))
JOB_RUN = "5e0c8a7d3b1f4a26"
interventions = st.none() | st.builds(
    Intervention,
    st.sampled_from(OperatorAction),
    st.text(max_size=5),
    st.integers(0, 2**50),
    st.text(max_size=5),
    st.none() | st.sampled_from(Restart),
)


def decision_values(cluster: MemoryCluster) -> list[bytes | None]:
    return [value for place, log in cluster.logs.items() if place.topic == DECISIONS for _, _, value in log]


def forget_everything(cluster: MemoryCluster) -> None:
    """Simulate the passage of a week and of the topic's retention."""
    cluster.groups.clear()
    cluster.forgotten |= {name for name in cluster.ids if not name.endswith(".driver")}
    for place in [each for each in cluster.logs if each.topic == "t"]:
        del cluster.logs[place]


def test_named_job_is_recognized_as_done_by_its_mark_alone(cluster: MemoryCluster) -> None:
    committer_of(cluster, retirement=Retirement.MARK).commit(prepare(cluster, 0), 0)
    forget_everything(cluster)
    again = committer_of(cluster, "run2", retirement=Retirement.MARK)
    assert settle(cluster, log_of(again).newest()).took_effect
    decisions = len(decision_values(cluster))
    again.commit(repeated(), 0)
    assert len(decision_values(cluster)) == decisions, "a marked decision is not marked again"


def test_without_the_completion_mark_the_outcome_is_unknown(cluster: MemoryCluster) -> None:
    committer_of(cluster, retirement=Retirement.REPLACE).commit(prepare(cluster, 0), 0)
    forget_everything(cluster)
    log = LogOn(cluster, "p", "q", DECISIONS)
    assert len(settle(cluster, log.newest()).unknown) == 2


def test_rerun_marks_a_job_that_died_after_its_decision(cluster: MemoryCluster) -> None:
    decide_and_die(cluster)
    committer_of(cluster, "run2", retirement=Retirement.MARK).commit(repeated(), 0)
    forget_everything(cluster)
    assert LogOn(cluster, "p", "q", DECISIONS).newest().completed_at_ms is not None


def test_unnamed_job_leaves_no_decision_record(cluster: MemoryCluster) -> None:
    committer_of(cluster, retirement=Retirement.FORGET).commit(prepare(cluster, 0), 0)
    values = decision_values(cluster)
    assert values[-1] is None
    assert [value is None for value in values] == [False, True]
    cluster.groups.clear()
    assert LogOn(cluster, "p", "q", DECISIONS).newest() is None


def test_all_parts_of_an_expired_decision_are_deleted(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "spark_eos.sink.protocol.decision_log.write_decision", lambda decision: write_decision(decision, 1)
    )
    committer_of(cluster, retirement=Retirement.FORGET).commit(prepare(cluster, 0, splits=(0, 1, 2)), 0)
    keys = [key for place, log in cluster.logs.items() if place.topic == DECISIONS for _, key, _ in log]
    assert keys[:3] == keys[3:] == [b"p/q", b"p/q#1", b"p/q#2"]
    assert decision_values(cluster)[3:] == [None] * 3


def test_incomplete_job_keeps_its_decision(cluster: MemoryCluster) -> None:
    messages = prepare(cluster, 0)
    after(cluster, "write_decision", lambda: cluster.time_out(task_id()))
    with pytest.raises(LostTransactionError):
        committer_of(cluster, retirement=Retirement.FORGET).commit(messages, 0)
    assert None not in decision_values(cluster)


@pytest.mark.parametrize("retirement", [Retirement.MARK, Retirement.FORGET])
def test_unwritable_completion_note_does_not_fail_the_job(
    cluster: MemoryCluster, retirement: Retirement, caplog: pytest.LogCaptureFixture
) -> None:
    fail(cluster, "write_decision", UnansweredError("the broker is offline"), first=2)
    writes = watched(cluster, "write_decision")
    committer_of(cluster, retirement=retirement).commit(prepare(cluster, 0), 0)
    assert len(writes) == 2
    assert "is committed; its completion could not be recorded" in caplog.text


@pytest.mark.parametrize("retirement", [Retirement.MARK, Retirement.FORGET])
def test_job_does_not_close_its_decision_over_a_newer_one(retirement: Retirement) -> None:
    """Under V1 closing takes a new epoch; another process decides between the check of the id and that epoch."""
    cluster = MemoryCluster(version=1)
    first, messages, others = (
        committer_of(cluster, retirement=retirement),
        prepare(cluster, 0),
        prepare(cluster, 1, "run2"),
    )
    before(cluster, "init_producer_id", lambda: committer_of(cluster, "run2").commit(others, 1), first=2)
    first.commit(messages, 0)
    newest = LogOn(cluster, "p", "q", DECISIONS).newest()
    assert (newest.run, newest.micro_batch, newest.completed_at_ms) == ("run2", 1, None)
    assert None not in decision_values(cluster)


@pytest.mark.parametrize(("code", "word"), [(ErrorCode.PRODUCER_FENCED, "PRODUCER_FENCED"), (None, "no response")])
def test_unconfirmed_deletion_is_logged(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, code: ErrorCode | None, word: str
) -> None:
    committer, write = committer_of(cluster, retirement=Retirement.FORGET), cluster.write_decision

    def refuse_deletions(decision_write: DecisionWrite) -> EndAnswer:
        return write(decision_write) if decision_write.metadata is not None else EndAnswer(code)

    cluster.write_decision = refuse_deletions  # type: ignore[method-assign]
    committer.commit(prepare(cluster, 0), 0)
    assert (
        "its completion could not be recorded in the decision topic: The decision of q may not have been deleted: "
        in caplog.text
    )
    assert f"got {word}" in caplog.text
    assert committer.own.state.identity is None, "the driver keeps no identity after an unconfirmed write"


def test_revision_supersedes_the_decision_it_revises_in_any_order(cluster: MemoryCluster) -> None:
    log = LogOn(cluster, "p", "q", DECISIONS)
    decision = decision_of(prepare(cluster, 0))
    driver = log.decide(decision, log.take_over())
    driver = log.renew(driver) if driver.spent else driver
    log.amend(completed(decision, 5), driver, 5)
    other = LogOn(cluster, "p", "q", DECISIONS)
    assert other.newest() == completed(decision, 5)
    cluster.groups.clear()
    assert LogOn(cluster, "p", "q", DECISIONS).newest() == completed(decision, 5), "found by a scan"


def test_last_usable_epoch_is_never_used_for_writing() -> None:
    """Its end would change the producer id, which looks like a takeover by a newer driver."""
    cluster = MemoryCluster(version=2)
    log = LogOn(cluster, "p", "q", DECISIONS)
    log.take_over()
    known = cluster.ids["p.q.driver"]
    known.identity = ProducerIdentity(known.identity.producer_id, 32_764)
    driver = log.take_over()
    assert driver.producer.producer_epoch == 32_765
    decision = decision_of(prepare(cluster, 0))
    driver = log.decide(decision, driver)
    assert driver.spent, "the next epoch is the last usable one"
    renewed = log.renew(driver)
    assert renewed.producer.producer_epoch == 0
    cluster.ids["p.q.driver"].identity = renewed.producer._replace(producer_epoch=32_765)
    assert log.take_over().producer.producer_epoch == 0, "32766 is skipped"


@given(revision=st.integers(0, 3), completed_at_ms=st.none() | st.integers(0, 2**50), word=interventions)
def test_revised_decision_is_read_back(revision: int, completed_at_ms: int | None, word: Intervention | None) -> None:
    plain = Decision("p", "q", "r", 7, 1, 0, 123, ())
    decision = replace(plain, revision=revision, completed_at_ms=completed_at_ms, intervention=word)
    value = write_decision(decision)[0]
    assert (b'"revision"' in value) == (revision > 0)
    # Without a revision these fields are empty, so an older reader misses nothing.
    assert join_parts([read_part(value, "here")], "here") == (decision if revision else plain)
    pointer = read_pointer(TopicPartition("d", 0), 1, write_pointer(decision, 1), "g")
    assert pointer.rank == decision.rank
    assert read_pointer(TopicPartition("d", 0), 1, '{"v":1,"batch":7,"attempt":1,"parts":1}', "g").rank == plain.rank


def test_tombstone_hides_only_earlier_records(cluster: MemoryCluster) -> None:
    log = LogOn(cluster, "p", "q", DECISIONS)
    decision = decision_of(prepare(cluster, 0))
    place = TopicPartition(DECISIONS, 0)
    [value] = write_decision(decision)
    cluster.logs[place] = [(ProducerIdentity(1, 0), b"p/q", each) for each in (value, None, value)]
    assert log.newest() == decision


# Retention of decisions

DAY_MS = 24 * 60 * 60 * 1000


def named_job(cluster: MemoryCluster, name: str, prefix: str = "p") -> None:
    """Run a job of one task under this jobId."""
    task = str(TaskId(prefix, name, JOB_RUN, "w0", 0))
    cluster.init_producer_id(task, 60_000)
    messages = [Prepared(Place(name, JOB_RUN, 0, 0), cluster.prepare(task))]
    committer_of(cluster, JOB_RUN, prefix, query=name, retirement=Retirement.MARK).commit(messages, 0)


def known_jobs(cluster: MemoryCluster) -> set[str]:
    return {entry.query for entry in read_inventory(cluster, DECISIONS)}


@pytest.mark.parametrize(
    ("job_id", "later"), [("monday/2026", "later"), (UUIDS[0], UUIDS[1]), (f"{UUIDS[0]}/a", "later")]
)
@pytest.mark.parametrize(("days", "is_kept"), [(29, True), (31, False)])
def test_completed_job_is_remembered_for_a_month_then_deleted(
    cluster: MemoryCluster, days: int, is_kept: bool, job_id: str, later: str
) -> None:
    named_job(cluster, job_id)
    cluster.pass_time(days * DAY_MS)
    cluster.groups.clear()
    named_job(cluster, later)
    assert known_jobs(cluster) == {later} | ({job_id} if is_kept else set())
    rows = sum(cluster.outcomes.values())
    named_job(cluster, job_id)
    assert sum(cluster.outcomes.values()) == rows + (not is_kept)


@pytest.mark.parametrize("query", [UUIDS[0], f"{UUIDS[0]}/orders"])
def test_completed_decision_of_a_query_is_never_deleted(cluster: MemoryCluster, query: str) -> None:
    """An operator has completed it; the query may go on after any time."""
    log = LogOn(cluster, "p", query, DECISIONS)
    decision = replace(decision_of(prepare(cluster, 0)), query=query, run=UUIDS[2])
    log.amend(completed(decision, cluster.now_ms), log.decide(decision, log.take_over()), cluster.now_ms)
    cluster.pass_time(100 * DAY_MS)
    cluster.groups.clear()
    named_job(cluster, "later")
    assert known_jobs(cluster) == {query, "later"}


def test_referenced_incomplete_or_foreign_decisions_are_not_deleted(cluster: MemoryCluster) -> None:
    named_job(cluster, "pointed")
    pointers = dict(cluster.groups)
    named_job(cluster, "theirs", "other")
    decide_and_die(cluster)
    cluster.pass_time(100 * DAY_MS)
    cluster.groups = pointers
    named_job(cluster, "later")
    assert known_jobs(cluster) == {"pointed", "theirs", "q", "later"}


def test_cleanup_deletes_few_decisions_and_never_fails_a_job(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"job{number}" for number in range(5)}
    for name in names:
        named_job(cluster, name)
    cluster.pass_time(31 * DAY_MS)
    cluster.groups.clear()
    with monkeypatch.context() as failing:
        failing.setattr(DecisionLog, "forget", _refuse)
        named_job(cluster, "first")
    assert known_jobs(cluster) == names | {"first"}
    for later, left in (("second", 2), ("third", 0)):
        named_job(cluster, later)
        assert len(known_jobs(cluster) & names) == left


def _refuse(*_: object) -> None:
    raise UnansweredError("the leader is offline")
