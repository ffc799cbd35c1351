"""Outdated responses of a broker that is cut off from its peers: no row is lost or repeated."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker_core.types import ProducerIdentity, TransactionState
from spark_eos.errors import DifferentRowsError, EosKafkaError, FencedError, TransactionError, UnansweredError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.messages import Empty, Place, Prepared
from spark_eos.sink.prepared import PreparedTransaction, TopicRows
from spark_eos.sink.protocol import commit as committer_module
from spark_eos.sink.protocol import descriptions
from spark_eos.sink.protocol.answers import Description, FoundRecords
from spark_eos.sink.protocol.descriptions import why_earlier
from spark_eos.sink.protocol.settlement import Fate, complete
from spark_eos.sink.task.identity_pool import IdentityPool
from tests.support.spark_eos.driving import LogOn, describe_prepared, fates_of, log_of, verify
from tests.support.spark_eos.interceptors import watched
from tests.support.spark_eos.sink_cluster import DECISIONS, Id, MemoryCluster
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


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "_PAUSE_SECONDS", 0.0)


def commit_unseen(cluster: MemoryCluster, micro_batch: int, run: str = "run1") -> None:
    """Commit a micro-batch that is missing from a stale group coordinator and from Spark's checkpoint."""
    committer = committer_of(cluster, run)
    for number in range(micro_batch):
        committer.commit(prepare(cluster, number, run), number)
    past = dict(cluster.groups.get("p.q", {}))
    committer.commit(prepare(cluster, micro_batch, run), micro_batch)
    cluster.past_offsets["p.q"] = past


# The pointer


@pytest.mark.parametrize("micro_batch", [0, 1])
def test_restart_with_a_pointer_from_a_stale_broker_writes_no_row_twice(
    cluster: MemoryCluster, micro_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run 1 dies after the commit and before Spark records it; tasks and driver of run 2 read a stale pointer."""
    commit_unseen(cluster, micro_batch)
    with monkeypatch.context() as blind:
        # The stale broker also leads the decision topic.
        blind.setattr(cluster, "find_records", lambda starts, _: FoundRecords((), (), dict.fromkeys(starts, 0)))
        committer_of(cluster, "run2").commit(prepare(cluster, micro_batch, "run2"), micro_batch)
    assert visible(cluster) == 2 * (micro_batch + 1)
    newest = log_of(committer_of(cluster)).newest()
    assert (newest.run, newest.micro_batch) == ("run1", micro_batch)
    assert {cluster.ids[task_id("run2", f"w{split}")].state for split in (0, 1)} == {S.COMPLETE_ABORT}
    committer_of(cluster, "run2").commit(prepare(cluster, micro_batch + 1, "run2"), micro_batch + 1)
    assert visible(cluster) == 2 * (micro_batch + 2)


def test_first_decision_after_a_takeover_checks_again_and_later_ones_do_not(cluster: MemoryCluster) -> None:
    written = watched(cluster, "append_decision")
    committer = committer_of(cluster)
    for micro_batch in range(3):
        committer.commit(prepare(cluster, micro_batch), micro_batch)
    # Under V1 each decision initializes the id.
    assert [each.reads_offsets for (each,) in written] == [True, cluster.version == 1, cluster.version == 1]


def test_superseded_run_does_not_decide_on_a_stale_pointer(cluster: MemoryCluster) -> None:
    """The process took over long ago, so a decision that it has not seen since belongs to a newer driver."""
    paused = committer_of(cluster, "run0")
    paused.commit(prepare(cluster, 0, "run0"), 0)
    past = dict(cluster.groups["p.q"])
    committer_of(cluster, "run1").commit(prepare(cluster, 1), 1)
    cluster.past_offsets["p.q"] = past
    rows = visible(cluster)
    with pytest.raises(FencedError):
        paused.commit(prepare(cluster, 1, "run0"), 1)
    assert visible(cluster) == rows


@pytest.mark.parametrize("unseen", [1, 2])
def test_stale_response_does_not_make_a_sibling_look_like_a_newer_driver(cluster: MemoryCluster, unseen: int) -> None:
    """Two processes of one run commit in turns; the stale response hides the decisions of the second from the first."""
    first, second = committer_of(cluster), committer_of(cluster)
    for micro_batch in range(2):
        first.commit(prepare(cluster, micro_batch), micro_batch)
    past = dict(cluster.groups["p.q"])
    for micro_batch in range(2, 2 + unseen):
        second.commit(prepare(cluster, micro_batch), micro_batch)
    cluster.past_offsets["p.q"] = past
    first.commit(prepare(cluster, 2 + unseen), 2 + unseen)
    assert visible(cluster) == 2 * (3 + unseen)
    assert log_of(committer_of(cluster)).newest().micro_batch == 2 + unseen


def test_decision_older_than_a_known_one_is_not_a_newer_driver(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run 1 made the stale decision; since then two processes of run 2 have decided, one without a response."""
    committer_of(cluster, "run1").commit(prepare(cluster, 0), 0)
    past = dict(cluster.groups["p.q"])
    first, second = committer_of(cluster, "run2"), committer_of(cluster, "run2")
    first.commit(prepare(cluster, 1, "run2"), 1)
    with monkeypatch.context() as failing:
        failing.setattr(committer_module, "complete", completed_and_failing)
        with pytest.raises(TransactionError, match="on the way"):
            second.commit(prepare(cluster, 2, "run2"), 2)
    committer_of(cluster, "run2").commit(prepare(cluster, 3, "run2"), 3)
    cluster.past_offsets["p.q"] = past
    second.commit(prepare(cluster, 4, "run2"), 4)
    assert visible(cluster) == 10


async def completed_and_failing(*args: Any, **options: Any) -> None:
    await complete(*args, **options)
    raise TransactionError("on the way")


@pytest.mark.parametrize("has_decided", [True, False])
def test_process_with_stale_responses_stops_for_a_newer_driver(cluster: MemoryCluster, has_decided: bool) -> None:
    first, newer = committer_of(cluster), committer_of(cluster, "run2")
    first.commit(prepare(cluster, 0), 0)
    past = dict(cluster.groups["p.q"])
    log_of(newer).take_over()
    if has_decided:
        newer.commit(prepare(cluster, 1, "run2"), 1)
    epoch = cluster.ids["p.q.driver"].identity
    cluster.past_offsets["p.q"] = past
    why = "run run2 has decided micro-batch 1" if has_decided else "A newer driver is running query q"
    with pytest.raises(FencedError, match=why):
        first.commit(prepare(cluster, 1), 1)
    assert cluster.ids["p.q.driver"].identity == epoch, "the newer driver is not fenced"


def test_note_in_a_decision_that_is_not_the_newest_is_refused(cluster: MemoryCluster) -> None:
    commit_unseen(cluster, 1)
    log = LogOn(cluster, "p", "q", DECISIONS)
    driver, old = log.take_over(), log.newest()
    assert old is not None and old.micro_batch == 0
    with pytest.raises(TransactionError, match="has a decision for micro-batch 1, which this driver did not know"):
        log.amend(replace(old, revision=1), driver, cluster.now_ms)
    assert LogOn(cluster, "p", "q", DECISIONS).newest().micro_batch == 1


def test_query_with_other_rows_fences_no_driver_although_a_stale_broker_hides_the_decision(
    cluster: MemoryCluster,
) -> None:
    """Found by the explorer: the tasks know the decision, so the driver's own look is the outdated one."""
    commit_unseen(cluster, 1)
    driver = cluster.ids["p.q.driver"]
    others = [replace(each, rows=(TopicRows("t", 2, 0),)) for each in repeated(micro_batch=1)]
    with pytest.raises(DifferentRowsError):
        committer_of(cluster, "run2").commit(others, 1)
    assert cluster.ids["p.q.driver"] == driver


@pytest.mark.parametrize("found_again", [3, 10_000])
def test_driver_with_persistently_stale_responses_finds_what_its_tasks_know(
    cluster: MemoryCluster, found_again: int
) -> None:
    commit_unseen(cluster, 1)
    cluster.past_found_again = found_again
    rows = visible(cluster)
    committer_of(cluster, "run2").commit(repeated(micro_batch=1), 1)
    assert visible(cluster) == rows == 4


def test_driver_that_does_not_find_what_its_tasks_know_reports_possible_causes(cluster: MemoryCluster) -> None:
    commit_unseen(cluster, 1)
    cluster.past_found_again = 10_000
    for place, log in cluster.logs.items():
        if place.topic == DECISIONS:
            del log[1:]
    words = r"found micro-batch 1 .*the driver found no decision.*outdated.*is safe"
    with pytest.raises(TransactionError, match=words):
        committer_of(cluster, "run2").commit(repeated(micro_batch=1), 1)


@pytest.mark.parametrize("agrees", [True, False])
def test_abort_with_a_stale_response_ends_no_decided_transaction(cluster: MemoryCluster, agrees: bool) -> None:
    """Spark calls it in another process if the committing one dies between the decision and its completion."""
    past = dict(cluster.groups)
    messages = decide_and_die(cluster)
    cluster.past_offsets["p.q"] = dict(past.get("p.q", {}))
    cluster.past_found_again = 0 if agrees else 1
    if agrees:
        committer_of(cluster).abort(messages, 0)
    else:
        with pytest.raises(UnansweredError, match="disagree"):
            committer_of(cluster).abort(messages, 0)
    assert states(cluster) == {S.ONGOING}


# Descriptions of prepared transactions


def described(state: TransactionState, epoch: int, producer_id: int = 7) -> Description:
    return Description("id", state, ProducerIdentity(producer_id, epoch), 60_000, -1)


@pytest.mark.parametrize(
    ("state", "epoch", "versions"),
    [
        (S.COMPLETE_COMMIT, 4, (1, 2)),
        (S.ONGOING, 4, (1, 2)),
        (S.COMPLETE_ABORT, 4, (1, 2)),
        (S.EMPTY, 5, (1, 2)),
        (S.COMPLETE_COMMIT, 5, (2,)),
        (S.PREPARE_COMMIT, 5, (2,)),
        # The transaction is open in the rest, or has ended since.
        (S.ONGOING, 5, ()),
        (S.COMPLETE_ABORT, 5, ()),
        (S.PREPARE_ABORT, 5, ()),
        (S.DEAD, 5, ()),
        (S.COMPLETE_COMMIT, 6, ()),
        (S.COMPLETE_ABORT, 6, ()),
        (S.EMPTY, 6, ()),
        (S.ONGOING, 6, ()),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_descriptions_older_than_a_transaction_are_recognized(
    state: TransactionState, epoch: int, versions: Sequence[int], version: int
) -> None:
    begun = ProducerIdentity(7, 5)
    assert (why_earlier(OpenTransaction("id", begun, version), described(state, epoch)) is not None) is (
        version in versions
    )
    assert why_earlier(OpenTransaction("id", begun, version), described(state, epoch, producer_id=6)) is None


def prepared_again(cluster: MemoryCluster, name: str = "p.q.run1.w.0") -> tuple[PreparedTransaction, Id]:
    """Prepare the second transaction of an id; return it and the coordinator's earlier state."""
    first = cluster.prepare(name)
    cluster.end_transactions([first.opened], commit=True)
    past = replace(cluster.ids[name])
    if cluster.version == 1:
        cluster.init_producer_id(name, 60_000)
    return cluster.prepare(name), past


@pytest.mark.parametrize("is_known", [True, False])
def test_verify_asks_another_coordinator_after_a_stale_response(cluster: MemoryCluster, is_known: bool) -> None:
    transaction, past = prepared_again(cluster)
    cluster.past_ids["p.q.run1.w.0"] = past if is_known else None
    cluster.past_found_again = 2
    ends_at_ms, *_ = verify(cluster, "q", 0, [transaction])
    assert ends_at_ms == cluster.now_ms + 60_000


def test_commit_waits_until_coordinators_stop_sending_stale_responses(cluster: MemoryCluster) -> None:
    transaction, past = prepared_again(cluster)
    cluster.past_ids["p.q.run1.w.0"] = past
    cluster.past_found_again = 40
    committer_of(cluster).commit([Prepared(Place("q", "run1", 0, 0), transaction)], 0)
    assert visible(cluster) == 2
    assert cluster.ids["p.q.run1.w.0"].state is S.COMPLETE_COMMIT


def test_persistently_stale_coordinator_is_reported_with_the_reason(cluster: MemoryCluster) -> None:
    transaction, past = prepared_again(cluster)
    cluster.past_ids["p.q.run1.w.0"] = past
    cluster.past_found_again = 10_000
    with pytest.raises(
        UnansweredError, match=r"before its transaction began: CompleteCommit.*epoch.*restarting is safe"
    ):
        verify(cluster, "q", 0, [transaction])
    with pytest.raises(EosKafkaError, match="before its transaction began"):
        committer_of(cluster).commit([Prepared(Place("q", "run1", 0, 0), transaction)], 0)
    assert cluster.ids["p.q.run1.w.0"].state is S.ONGOING


def test_unknown_id_is_left_to_the_caller_and_stale_one_asked_once(cluster: MemoryCluster) -> None:
    transaction, _ = prepared_again(cluster)
    cluster.forgotten.add(transaction.transactional_id)
    cluster.calls.clear()
    assert describe_prepared(cluster, [transaction], cluster.now_ms) == {}
    assert cluster.calls.count("describe 1") == 6
    cluster.calls.clear()
    assert describe_prepared(cluster, [transaction], cluster.now_ms + 60_000) == {}
    assert cluster.calls == ["describe 1"]


def test_outcome_is_not_taken_from_a_stale_response(cluster: MemoryCluster) -> None:
    """Under V1 the earlier transaction had a lower epoch; under V2 its end had the same epoch."""
    transaction, past = prepared_again(cluster)
    cluster.past_ids["p.q.run1.w.0"] = past
    assert fates_of(cluster, [transaction]) == {transaction: Fate.OPEN}


# The identity pool


def taken(cluster: MemoryCluster, pool: IdentityPool, micro_batch: int) -> str:
    found = pool.take(60_000, micro_batch)
    assert cluster.ids[found.transactional_id].identity == found.producer
    return found.transactional_id


def ended(cluster: MemoryCluster, name: str, *, commit: bool = True) -> Id:
    cluster.end_transactions([OpenTransaction(name, cluster.ids[name].identity, cluster.version)], commit)
    return replace(cluster.ids[name])


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_pool_does_not_initialize_an_id_that_a_stale_coordinator_reports_ended(
    cluster: MemoryCluster, micro_batch: int
) -> None:
    """The open transaction is of micro-batch 1; 2 begins only after its end, but the pool need not rely on that."""
    pool = IdentityPool(cluster, "p", "q", "run1", "w")
    name = taken(cluster, pool, 0)
    cluster.prepare(name)
    past = ended(cluster, name)
    assert taken(cluster, pool, 1) == name
    cluster.prepare(name)
    cluster.past_ids[name] = past
    other = taken(cluster, pool, micro_batch)
    assert other != name and cluster.ids[name].state is S.ONGOING
    ended(cluster, name)
    assert taken(cluster, pool, 3) in (name, other), "the pool looked the coordinator up again"
    assert len(pool) == 2


@pytest.mark.parametrize(
    "past", [Id(ProducerIdentity(-1, 0), state=S.EMPTY), Id(ProducerIdentity(99, 32_766), state=S.COMPLETE_COMMIT)]
)
def test_pool_initializes_no_id_of_its_micro_batch_on_an_inconclusive_response(
    cluster: MemoryCluster, past: Id
) -> None:
    """An empty id at this epoch, and another producer id: the first may be current if a task sent nothing."""
    pool = IdentityPool(cluster, "p", "q", "run1", "w")
    name = taken(cluster, pool, 0)
    cluster.prepare(name)
    identity = cluster.ids[name].identity if past.identity.producer_id < 0 else past.identity
    cluster.past_ids[name] = replace(past, identity=identity)
    assert taken(cluster, pool, 0) != name
    assert cluster.ids[name].state is S.ONGOING


def test_id_of_a_task_that_sent_nothing_is_reused_in_the_next_micro_batch(cluster: MemoryCluster) -> None:
    pool = IdentityPool(cluster, "p", "q", "run1", "w")
    name = taken(cluster, pool, 0)
    assert taken(cluster, pool, 1) == name
    assert len(pool) == 1


def test_empty_micro_batch_accepts_a_single_broker_response(cluster: MemoryCluster) -> None:
    """Without a decision nothing can be decided twice, and the next decision is checked."""
    commit_unseen(cluster, 1)
    committer = committer_of(cluster, "run2")
    committer.commit([Empty(Place("q", "run2", 1, 0))], 1)
    committer.commit(prepare(cluster, 2, "run2"), 2)
    assert visible(cluster) == 6
    assert states(cluster) == {S.COMPLETE_COMMIT}
