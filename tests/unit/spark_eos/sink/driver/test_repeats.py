"""Repeated names and micro-batches, as users, platforms and Spark produce them, on a cluster in memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from broker_core.types import TransactionState
from spark_eos.errors import DifferentRowsError, EosKafkaError, OptionError, TransactionError, UnreachableError
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import OnLostTransaction, SinkOptions
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink import factory
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.committer import Committer, ComparedNames
from spark_eos.sink.messages import AlreadyCommitted, Place, Prepared, TaskMessage
from spark_eos.sink.naming import TaskId
from spark_eos.sink.prepared import TopicRows
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.retirement import Retirement
from spark_eos.sink.protocol.state import QueryRun, RunMemory
from tests.support.spark_eos.driving import LogOn
from tests.support.spark_eos.interceptors import before, restore
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, visible

__all__ = ["cluster"]
QUERY = "8a1c0d3e-0000-4000-8000-000000000001"
S = TransactionState


@dataclass
class Process:
    """One Python process of the driver, with the state that `factory` keeps."""

    cluster: MemoryCluster
    run: str = "run1"
    prefix: str = "p"
    decisions: str = DECISIONS
    memories: dict[str, RunMemory] = field(default_factory=dict)
    logs: dict[str, DecisionLog] = field(default_factory=dict)
    compared: ComparedNames = field(default_factory=ComparedNames)

    def commit(
        self,
        messages: Sequence[TaskMessage],
        write: str,
        *,
        discard: bool = False,
        policy: OnLostTransaction = OnLostTransaction.FAIL,
    ) -> None:
        [query] = {message.place.query for message in messages}
        log = self.logs.setdefault(query, LogOn(self.cluster, self.prefix, query, self.decisions, run=self.run))
        committer = Committer(
            self.cluster,
            QueryRun(
                log.log,
                self.prefix,
                query,
                self.run,
                policy,
                write=write,
                memory=self.memories.setdefault(query, RunMemory()),
                discard_differing_rows=discard,
            ),
            compared=self.compared,
        )
        [micro_batch] = {message.place.micro_batch for message in messages}
        try:
            committer.commit(messages, micro_batch)
        except EosKafkaError:
            committer.abort(messages, micro_batch)
            raise


def rows_of(checksum: int, count: int = 1, topic: str = "t") -> tuple[TopicRows, ...]:
    return (TopicRows(topic, count, checksum),)


def prepared(
    cluster: MemoryCluster,
    name: str = "t",
    checksum: int = 1,
    run: str = "run1",
    micro_batch: int = 0,
    worker: str = "w",
    prefix: str = "p",
    topic: str = "t",
) -> list[TaskMessage]:
    """Return the message of the only task of a write that finds no decision."""
    query = f"{QUERY}/{name}" if name else QUERY
    transactional_id = str(TaskId(prefix, query, run, worker, 0))
    cluster.init_producer_id(transactional_id, 60_000)
    transaction = replace(cluster.prepare(transactional_id, topic=topic), rows=rows_of(checksum, topic=topic))
    return [Prepared(Place(query, run, micro_batch, 0), transaction)]


def repeated(
    name: str = "t", checksum: int = 1, run: str = "run2", micro_batch: int = 0, topic: str = "t"
) -> list[TaskMessage]:
    """Return the message of the only task of a write that finds its micro-batch decided."""
    query = f"{QUERY}/{name}" if name else QUERY
    return [AlreadyCommitted(Place(query, run, micro_batch, 0), rows_of(checksum, topic=topic))]


def test_writes_of_one_function_to_one_topic_are_separate_under_distinct_names(cluster: MemoryCluster) -> None:
    process = Process(cluster)
    for micro_batch in (0, 1):
        both = {name: prepared(cluster, name, micro_batch=micro_batch) for name in ("a", "b")}
        for name, messages in both.items():
            process.commit(messages, f"{name}{micro_batch}")
    assert visible(cluster) == 4
    again = Process(cluster, "run2")
    for name in ("a", "b"):
        again.commit(repeated(name, micro_batch=1), "again")
    with pytest.raises(DifferentRowsError):
        Process(cluster, "run3").commit(repeated("a", checksum=2, run="run3", micro_batch=1), "other")
    assert visible(cluster) == 4


@pytest.mark.parametrize("is_known", [True, False])
def test_differing_rows_that_are_discarded_are_warned_of_once(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    Process(cluster).commit(prepared(cluster), "first")
    again = repeated(checksum=2) if is_known else prepared(cluster, checksum=2, run="run2")
    Process(cluster, "run2").commit(again, "again", discard=True)
    assert caplog.text.count("because of discardDifferingRows=true") == 1


def test_concurrent_writes_under_one_name_in_two_processes_are_refused(cluster: MemoryCluster) -> None:
    first, second = prepared(cluster, worker="w1"), prepared(cluster, checksum=2, worker="w2")
    Process(cluster).commit(first, "first")
    with pytest.raises(OptionError, match="writeName"):
        Process(cluster).commit(second, "second")
    assert visible(cluster) == 1


@pytest.mark.parametrize("cluster", [2], indirect=True)
@pytest.mark.parametrize("is_swept", [False, True])
def test_concurrent_writes_under_one_name_in_one_process_are_refused(cluster: MemoryCluster, is_swept: bool) -> None:
    """Both look up the decision before either decides; the second transaction may begin after the first sweep."""
    process = Process(cluster)
    early = prepared(cluster, checksum=2, worker="w2") if is_swept else None
    process.commit(prepared(cluster, worker="w1"), "first")
    with pytest.raises(OptionError, match="writeName"):
        process.commit(early or prepared(cluster, checksum=2, worker="w2"), "second")
    assert visible(cluster) == 1


def test_second_write_under_one_name_is_still_refused_after_restart(cluster: MemoryCluster) -> None:
    """The platform restarts the query after the refusal of its second write."""
    Process(cluster).commit(prepared(cluster), "first")
    Process(cluster, "run2").commit(repeated(), "first again")
    with pytest.raises(DifferentRowsError, match="writes more than once under this name.*writeName"):
        Process(cluster, "run2").commit(repeated(checksum=2), "second")
    assert visible(cluster) == 1


@pytest.mark.parametrize(("checksum", "discard"), [(1, False), (2, True)], ids=["retry", "differences are discarded"])
def test_refused_second_write_says_what_to_do_about_a_retry(
    cluster: MemoryCluster, checksum: int, discard: bool
) -> None:
    """A function that tries all of its writes again because another one failed: a new name would write them twice."""
    Process(cluster).commit(prepared(cluster), "first")
    process = Process(cluster, "run2")
    process.commit(repeated(), "first again", discard=discard)
    with pytest.raises(OptionError, match="writeName.*If this is a retry, let the exception stop the query"):
        process.commit(repeated(checksum=checksum), "second", discard=discard)


@pytest.mark.parametrize(
    ("before", "now"),
    [("t", "good"), ("", "t"), ("t", "")],
    ids=["named", "moved to foreachBatch", "moved to writeStream"],
)
def test_write_renamed_between_commit_and_checkpoint_is_not_repeated(
    cluster: MemoryCluster, before: str, now: str
) -> None:
    """The micro-batch is decided but not in Spark's checkpoint, and the function changed before the restart."""
    Process(cluster).commit(prepared(cluster, before), "" if not before else "first")
    with pytest.raises(OptionError, match="as before, until the query has passed"):
        Process(cluster, "run2").commit(prepared(cluster, now, run="run2"), "" if not now else "second")
    assert visible(cluster) == 1


@pytest.mark.parametrize("checksum", [1, 2], ids=["same rows", "other rows"])
@pytest.mark.parametrize(
    ("before", "now", "topic"),
    [("t", "u", "u"), ("t", "*", "u"), ("*", "u", "u"), ("t", "*", "t"), ("", "u", "u"), ("t", "", "u")],
)
@pytest.mark.parametrize(("prefix", "decisions"), [("p", DECISIONS), ("p", "others"), ("q", "others")])
def test_write_to_another_topic_before_the_checkpoint_does_not_repeat_the_micro_batch(
    cluster: MemoryCluster, before: str, now: str, topic: str, checksum: int, prefix: str, decisions: str
) -> None:
    """The options for prefix and decision topic may be changed with it."""
    Process(cluster).commit(prepared(cluster, before), "first" if before else "")
    messages = prepared(cluster, now, checksum, run="run2", prefix=prefix, topic=topic)
    with pytest.raises(OptionError, match=rf"run1 .* to topic 't', and now .* topic '{topic}' as {QUERY}"):
        Process(cluster, "run2", prefix, decisions).commit(messages, "second" if now else "")
    assert (visible(cluster, "t"), visible(cluster, "u")) == (1, 0)
    # As the error says.
    Process(cluster, "run3").commit(repeated(before, run="run3"), "third" if before else "")
    after = prepared(cluster, now, run="run3", micro_batch=1, topic="u")
    Process(cluster, "run3").commit(after, "fourth" if now else "")
    assert (visible(cluster, "t"), visible(cluster, "u")) == (1, 1)


def test_rolled_back_release_that_wrote_to_another_topic_is_noticed(cluster: MemoryCluster) -> None:
    """The write before and after is known from earlier micro-batches; only the crash was under another name."""
    old = Process(cluster)
    for micro_batch in (0, 1):
        old.commit(prepared(cluster, "t", micro_batch=micro_batch), f"{micro_batch}")
    Process(cluster, "run2").commit(prepared(cluster, "u", run="run2", micro_batch=2, topic="u"), "2")
    with pytest.raises(OptionError, match="to topic 'u', and now .* topic 't'"):
        Process(cluster, "run3").commit(prepared(cluster, "t", run="run3", micro_batch=2), "2")
    with pytest.raises(TransactionError, match="micro-batch 2 is already decided"):
        Process(cluster, "run4").commit(prepared(cluster, "new", run="run4", micro_batch=1), "1")
    assert (visible(cluster, "t"), visible(cluster, "u")) == (2, 1)


def test_writes_of_one_function_go_on_after_a_crash_between_them(cluster: MemoryCluster) -> None:
    Process(cluster).commit(prepared(cluster, "t"), "t0")
    first, second = Process(cluster, "run2"), Process(cluster, "run2")
    second.compared = first.compared
    first.commit(repeated("t"), "t0")
    second.commit(prepared(cluster, "u", run="run2", topic="u"), "u0")
    assert (visible(cluster, "t"), visible(cluster, "u")) == (1, 1)


def decide_in_part(cluster: MemoryCluster, micro_batch: int, lost: int) -> None:
    """Decide two transactions of the write u, of which some time out and the others are open or committed."""
    found = [prepared(cluster, "u", worker=worker, micro_batch=micro_batch, topic="u")[0] for worker in "vw"]
    one, two = (each.transaction for each in found if isinstance(each, Prepared))
    log = LogOn(cluster, "p", f"{QUERY}/u", DECISIONS, run="run1")
    decision = Decision("p", f"{QUERY}/u", "run1", micro_batch, 1, 2, 0, (one, replace(two, split=1)))
    log.decide(decision, log.take_over())
    for each in (one, two)[:lost]:
        cluster.time_out(each.transactional_id)
    if lost == 1:
        cluster.end_transactions([two.opened], True)


@pytest.mark.parametrize(("lost", "seen"), [(0, 2), (1, None), (2, 0)], ids=["open", "lost in part", "lost"])
def test_decided_write_that_the_function_makes_no_more_is_not_left_in_part(
    cluster: MemoryCluster, lost: int, seen: int | None
) -> None:
    """Its driver died before it was completed, and only the other write is made after the restart."""
    Process(cluster).commit(prepared(cluster, "t"), "t0")
    decide_in_part(cluster, 0, lost)
    again = Process(cluster, "run2")
    again.commit(repeated("t"), "t0")
    following = prepared(cluster, "t", run="run2", micro_batch=1)
    if seen is None:
        with pytest.raises(TransactionError, match=f"{QUERY}/u was decided, but 1 of its 2"):
            again.commit(following, "t1")
    else:
        again.commit(following, "t1")
        assert (visible(cluster, "t"), visible(cluster, "u")) == (2, seen)


@pytest.mark.parametrize(("is_new", "micro_batch", "following"), [(True, 0, 1), (True, 0, 3), (False, 1, 1)])
def test_open_write_that_the_function_makes_no_more_is_completed(
    cluster: MemoryCluster, is_new: bool, micro_batch: int, following: int
) -> None:
    """The other write is new, perhaps after micro-batches without rows, or comes after it in the function."""
    if not is_new:
        Process(cluster).commit(prepared(cluster, "t"), "t0")
    (found,) = prepared(cluster, "u", micro_batch=micro_batch, topic="u")
    assert isinstance(found, Prepared)
    log = LogOn(cluster, "p", f"{QUERY}/u", DECISIONS, run="run1")
    log.decide(Decision("p", f"{QUERY}/u", "run1", micro_batch, 1, 1, 0, (found.transaction,)), log.take_over())
    Process(cluster, "run2").commit(prepared(cluster, "t", 2, run="run2", micro_batch=following), "t1")
    assert visible(cluster, "u") == 1


@pytest.mark.parametrize("policy", OnLostTransaction)
def test_write_that_came_first_and_was_left_in_part_stops_the_writes_after_it(
    cluster: MemoryCluster, policy: OnLostTransaction
) -> None:
    """No later micro-batch looks at it again: the run has decided by then, and a later run is beyond it."""
    Process(cluster).commit(prepared(cluster, "t"), "t0")
    decide_in_part(cluster, 1, lost=1)
    again = Process(cluster, "run2")
    with pytest.raises(TransactionError, match=f"{QUERY}/u was decided, but 1 of its 2.*let it make it first"):
        again.commit(prepared(cluster, "t", 2, run="run2", micro_batch=1), "t1", policy=policy)
    assert visible(cluster, "t") == 1


def test_writes_of_threads_wait_for_one_another(cluster: MemoryCluster) -> None:
    """The write that was not decided commits first; another process compares the other one meanwhile."""
    Process(cluster).commit(prepared(cluster, "t"), "t0")
    first, second = Process(cluster, "run2"), Process(cluster, "run2")
    second.compared = first.compared
    before(cluster, "pass_time", lambda: first.commit(repeated("t"), "t0"))
    second.commit(prepared(cluster, "u", run="run2", topic="u"), "u0")
    assert (visible(cluster, "t"), visible(cluster, "u")) == (1, 1)


def test_write_waits_for_a_thread_that_writes_again_what_another_write_lost(cluster: MemoryCluster) -> None:
    """Both are made at the same time after a restart, with onLostTransaction=rewrite."""
    Process(cluster).commit(prepared(cluster, "t"), "t0")
    decide_in_part(cluster, 1, lost=1)
    first, second = Process(cluster, "run2"), Process(cluster, "run2")
    second.compared = first.compared
    [again] = prepared(cluster, "u", run="run2", micro_batch=1, topic="u")
    kept = AlreadyCommitted(again.place._replace(split=1), rows_of(1, topic="u"))
    rewrite = OnLostTransaction.REWRITE
    before(cluster, "pass_time", lambda: first.commit([again, kept], "u1", policy=rewrite))
    second.commit(prepared(cluster, "t", 2, run="run2", micro_batch=1), "t1", policy=rewrite)
    assert (visible(cluster, "t"), visible(cluster, "u")) == (2, 2)


@pytest.mark.parametrize("checksum", [1, 2], ids=["same rows", "other rows"])
def test_order_of_known_writes_may_change_if_their_rows_differ(cluster: MemoryCluster, checksum: int) -> None:
    process = Process(cluster)
    for micro_batch in (0, 1):
        process.commit(prepared(cluster, "t", 1, micro_batch=micro_batch), f"t{micro_batch}")
        if micro_batch == 0:
            process.commit(prepared(cluster, "u", checksum, topic="u"), "u0")
    again = Process(cluster, "run2")
    other_first = prepared(cluster, "u", checksum, run="run2", micro_batch=1, topic="u")
    if checksum == 1:
        with pytest.raises(OptionError, match="let it make that one first"):
            again.commit(other_first, "u1")
        again = Process(cluster, "run3")
        again.commit(repeated("t", run="run3", micro_batch=1), "t1")
        again.commit(prepared(cluster, "u", run="run3", micro_batch=1, topic="u"), "u1")
    else:
        again.commit(other_first, "u1")
        again.commit(repeated("t", micro_batch=1), "t1")
    assert (visible(cluster, "t"), visible(cluster, "u")) == (2, 2)


# A function that continues after a failed write


def take_away(cluster: MemoryCluster) -> None:
    """Take the coordinators of the tasks' transactions offline: nothing is committed until they are back."""
    end = cluster.end_transactions

    def end_transactions(opened: Collection[OpenTransaction], commit: bool, *more: Any) -> Mapping[str, EndAnswer]:
        if commit:
            raise UnreachableError("the coordinator is offline")
        return end(opened, commit, *more)

    cluster.end_transactions = end_transactions  # type: ignore[method-assign]


@pytest.mark.parametrize("is_same_process", [True, False])
def test_function_that_swallows_a_failed_commit_loses_no_decided_rows(
    cluster: MemoryCluster, is_same_process: bool
) -> None:
    process = Process(cluster)
    take_away(cluster)
    with pytest.raises(TransactionError, match="is decided, but could not be completed"):
        process.commit(prepared(cluster), "first")
    restore(cluster, "end_transactions")
    following = process if is_same_process else Process(cluster)
    following.commit(prepared(cluster, micro_batch=1, worker="w2"), "second")
    assert visible(cluster) == 2


def test_function_that_retries_a_failed_write_does_not_duplicate_it(cluster: MemoryCluster) -> None:
    process = Process(cluster)
    take_away(cluster)
    with pytest.raises(TransactionError, match="is decided, but could not be completed"):
        process.commit(prepared(cluster), "first")
    restore(cluster, "end_transactions")
    with pytest.raises(OptionError, match="If this is a retry"):
        process.commit([AlreadyCommitted(Place(f"{QUERY}/t", "run1", 0, 0), rows_of(1))], "retry")
    Process(cluster, "run2").commit(repeated(), "after the restart")
    assert visible(cluster) == 1


# Lost transactions


def test_rewrite_never_mixes_rows_of_two_runs(cluster: MemoryCluster) -> None:
    query = f"{QUERY}/t"
    whole: list[TaskMessage] = []
    for split in (0, 1):
        name = str(TaskId("p", query, "run1", f"w{split}", 0))
        cluster.init_producer_id(name, 60_000)
        whole.append(
            Prepared(Place(query, "run1", 0, split), replace(cluster.prepare(name, split), rows=rows_of(split)))
        )
    committer = committer_of(cluster, policy=OnLostTransaction.REWRITE, query=query)
    lost = whole[1]
    assert isinstance(lost, Prepared)
    before(cluster, "end_transactions", lambda: cluster.time_out(lost.transaction.transactional_id))
    with pytest.raises(TransactionError):
        committer.commit(whole, 0)
    name = str(TaskId("p", query, "run2", "w", 0))
    cluster.init_producer_id(name, 60_000)
    again: list[TaskMessage] = [
        AlreadyCommitted(Place(query, "run2", 0, 0), rows_of(1)),
        Prepared(Place(query, "run2", 0, 1), replace(cluster.prepare(name, 1), rows=rows_of(0))),
    ]
    with pytest.raises(DifferentRowsError, match="they differ in tasks 0, 1"):
        Process(cluster, "run2").commit(again, "w", discard=True, policy=OnLostTransaction.REWRITE)
    assert visible(cluster) == 1


# Prefixes and clusters


def test_transactions_left_open_under_a_changed_prefix_are_swept_at_restart(cluster: MemoryCluster) -> None:
    Process(cluster).commit(prepared(cluster, ""), "")
    process = Process(cluster, "run2", prefix="new")
    process.commit(prepared(cluster, "", run="run2", micro_batch=1, prefix="new"), "")
    [lost_attempt] = prepared(cluster, "", run="run2", micro_batch=1, worker="w9", prefix="new")
    assert isinstance(lost_attempt, Prepared)
    Process(cluster, "run3", prefix="new").commit(repeated("", run="run3", micro_batch=1), "")
    assert cluster.ids[lost_attempt.transaction.transactional_id].state is not S.ONGOING


def job(
    cluster: MemoryCluster, run: str, prefix: str, checksum: int = 1, topic: str = "t", name: str = "report"
) -> list[TaskMessage]:
    """Run a batch job of one task, which has found no decision under its prefix."""
    transactional_id = str(TaskId(prefix, name, run, "w", 0))
    cluster.init_producer_id(transactional_id, 60_000)
    rows = (TopicRows(topic, 1, checksum),)
    transaction = replace(cluster.prepare(transactional_id, topic=topic), rows=rows)
    messages: list[TaskMessage] = [Prepared(Place(name, run, 0, 0), transaction)]
    committer_of(cluster, run, prefix, query=name, retirement=Retirement.MARK).commit(messages, 0)
    return messages


def test_job_under_another_prefix_finds_what_it_wrote(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    job(cluster, "run1", "p")
    for run, prefix in (("run2", "new"), ("run3", "p"), ("run4", "newer")):
        job(cluster, run, prefix)
    assert visible(cluster) == 1
    assert "report keeps its decisions under transactionalIdPrefix=p" in caplog.text
    with pytest.raises(DifferentRowsError, match="jobId=report was already written"):
        job(cluster, "run5", "new", checksum=2)
    assert visible(cluster) == 1


def test_undecided_job_completes_under_its_first_prefix(cluster: MemoryCluster) -> None:
    """The driver dies between the decision and its completion, and the job is run again under another prefix."""
    name = str(TaskId("p", "report", "run1", "w", 0))
    cluster.init_producer_id(name, 60_000)
    log, transaction = (LogOn(cluster, "p", "report", DECISIONS), replace(cluster.prepare(name), rows=rows_of(1)))
    log.decide(Decision("p", "report", "run1", 0, 1, 1, 0, (transaction,)), log.take_over())
    job(cluster, "run2", "new")
    assert visible(cluster) == 1
    assert cluster.ids[name].state is S.COMPLETE_COMMIT


@pytest.mark.parametrize("knows_tasks", [True, False])
def test_abort_of_a_job_keeps_what_it_decided_under_its_first_prefix(cluster: MemoryCluster, knows_tasks: bool) -> None:
    """The first run's transactions were lost; the second one decides under the old prefix and cannot complete.

    What sweeps after the end of a driver has no message of a task.
    """
    take_away(cluster)
    with pytest.raises(TransactionError, match="is decided"):
        job(cluster, "run1", "p")
    cluster.time_out(str(TaskId("p", "report", "run1", "w", 0)))
    with pytest.raises(TransactionError, match="is decided"):
        job(cluster, "run2", "new")
    name = str(TaskId("new", "report", "run2", "w", 0))
    decision = LogOn(cluster, "p", "report", DECISIONS).newest()
    assert decision.run == "run2"
    messages = [Prepared(Place("report", "run2", 0, 0), decision.transactions[0])]
    committer = committer_of(cluster, "run2", "new", query="report", retirement=Retirement.MARK)
    committer.abort(messages if knows_tasks else (), 0)
    assert cluster.ids[name].state is S.ONGOING
    restore(cluster, "end_transactions")
    job(cluster, "run3", "new")
    assert visible(cluster) == 1


def test_jobs_of_one_name_under_two_prefixes_with_other_topics_are_two(cluster: MemoryCluster) -> None:
    job(cluster, "run1", "staging", topic="staging-orders")
    job(cluster, "run2", "live", topic="orders")
    assert (visible(cluster, "staging-orders"), visible(cluster, "orders")) == (1, 1)
    for run, prefix, topic in (("run3", "live", "orders"), ("run4", "staging", "staging-orders")):
        job(cluster, run, prefix, topic=topic)
    assert (visible(cluster, "staging-orders"), visible(cluster, "orders")) == (1, 1)


@pytest.mark.parametrize("change", ["cluster", "decisionTopic"])
def test_function_that_mirrors_rows_to_two_clusters_keeps_two_decision_logs(change: str) -> None:
    options = SinkOptions(ClientOptions(("one:1",)), topic="t", prefix="p")
    other = (
        replace(options, client=ClientOptions(("two:1",)))
        if change == "cluster"
        else replace(options, decision_topic="other-decisions")
    )
    process, logs = ProcessState(REAL), []
    for each in (options, other):
        logs.append(factory._log(process, each, f"{QUERY}/t", "run1"))
    assert logs[0] is not logs[1]
