"""The outcome of decided transactions, and the resulting action."""

import itertools
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from broker_core.types import AbortedTransaction, ProducerIdentity, TopicPartition, TransactionState
from spark_eos.errors import LostTransactionError, TopicError, TransactionError, UnansweredError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.prepared import PreparedTransaction, WrittenRange
from spark_eos.sink.protocol import settlement
from spark_eos.sink.protocol.action_table import SETTLE_LIMIT_SECONDS, Fate
from spark_eos.sink.protocol.answers import BatchTrace, CommittedView, Description
from spark_eos.sink.protocol.log_fates import seen_fate
from spark_eos.sink.protocol.settlement import FATES, described_fate, must_write
from tests.support.spark_eos.driving import end_all, logged_fates, must_task_write, settle
from tests.support.spark_eos.interceptors import fail, instead, restore, watched
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.spark_eos.sink_commits import committer_of, decide_and_die, decision_of, prepare, task_id

S = TransactionState


def _transaction(version: int, epoch: int = 5) -> PreparedTransaction:
    return PreparedTransaction(
        0, OpenTransaction("id", ProducerIdentity(9, epoch), version), 60_000, 0, (WrittenRange("t", 0, 10, 12, 3),)
    )


def _described(state: TransactionState, epoch: int, producer_id: int = 9) -> Description:
    return Description("id", state, ProducerIdentity(producer_id, epoch), 60_000, -1)


# The coordinator's state after each history of a transaction at epoch 5.
HISTORIES = [
    (1, S.ONGOING, 5, Fate.OPEN),
    (2, S.ONGOING, 5, Fate.OPEN),
    (1, S.PREPARE_COMMIT, 5, Fate.COMMITTED),
    (2, S.PREPARE_COMMIT, 6, Fate.COMMITTED),
    (1, S.COMPLETE_COMMIT, 5, Fate.COMMITTED),
    (2, S.COMPLETE_COMMIT, 6, Fate.COMMITTED),
    (1, S.PREPARE_ABORT, 5, Fate.LOST),
    (2, S.PREPARE_ABORT, 6, Fate.LOST),
    (1, S.COMPLETE_ABORT, 5, Fate.LOST),
    (2, S.COMPLETE_ABORT, 6, Fate.LOST),
    # V1: timed out at 5, or committed at 5 and another one aborted at 6; the coordinator stores the same record.
    (1, S.COMPLETE_ABORT, 6, None),
    (1, S.PREPARE_ABORT, 6, None),
    # A later transaction of the same id does not determine the outcome of this one.
    (1, S.ONGOING, 6, None),
    (2, S.ONGOING, 6, None),
    (1, S.COMPLETE_COMMIT, 6, None),
    (2, S.COMPLETE_COMMIT, 7, None),
    (2, S.COMPLETE_ABORT, 7, None),
    (2, S.EMPTY, 6, None),
    (1, S.EMPTY, 6, None),
    (1, S.EMPTY, 5, None),
]


def test_outcome_table_matches_the_histories() -> None:
    tested = {(state, version >= 2, epoch - 5): fate for version, state, epoch, fate in HISTORIES if fate}
    assert tested == {case: each.fate for case, each in FATES.items()}
    for state, version, distance in itertools.product(S, (1, 2), range(-1, 4)):
        found = FATES.get((state, version >= 2, distance))
        expected = None if found is None else found.fate
        assert described_fate(_transaction(version), _described(state, 5 + distance)) is expected


@pytest.mark.parametrize("state", S)
def test_different_or_missing_producer_id_is_inconclusive(state: TransactionState) -> None:
    assert described_fate(_transaction(2), _described(state, 6, producer_id=10)) is None
    assert described_fate(_transaction(2), None) is None


OWN = BatchTrace(10, 12, ProducerIdentity(9, 5))
FOREIGN = BatchTrace(10, 12, ProducerIdentity(8, 5))


@pytest.mark.parametrize(
    ("view", "fate"),
    [
        (CommittedView(14, (OWN,), ()), Fate.COMMITTED),
        (CommittedView(14, (OWN,), (AbortedTransaction(9, 10),)), Fate.LOST),
        (CommittedView(14, (OWN,), (AbortedTransaction(8, 10), AbortedTransaction(9, 3))), Fate.COMMITTED),
        (CommittedView(12, (OWN,), ()), None),
        (CommittedView(14, (FOREIGN,), ()), None),
        (CommittedView(14, (BatchTrace(10, 12, ProducerIdentity(9, 6)),), ()), None),
        (CommittedView(14, (), ()), None),
        (None, None),
    ],
)
def test_outcome_follows_from_the_log(view: CommittedView | None, fate: Fate | None) -> None:
    transaction = _transaction(2)
    assert seen_fate(transaction, transaction.ranges[0], view) is fate


def _decision(*transactions: PreparedTransaction) -> Decision:
    return Decision("p", "q", "r", 3, 1, len(transactions), 0, transactions)


@pytest.mark.parametrize("version", [1, 2])
def test_open_transactions_are_committed_and_committed_ones_kept(version: int) -> None:
    cluster = MemoryCluster(version=version)
    one, two = cluster.prepare("one", 0), cluster.prepare("two", 1)
    for _ in range(2):
        settled = settle(cluster, _decision(one, two))
        assert settled.took_effect and settled.committed == (one, two)
    assert cluster.calls.count("end one commit") == 1


def test_abort_after_a_downgrade_is_not_taken_for_the_previous_transaction() -> None:
    """EndTxn of V1 keeps the epoch, so the abort of the next transaction looks like one of the committed one."""
    cluster = MemoryCluster(version=2)
    one = cluster.prepare("one")
    assert settle(cluster, _decision(one)).took_effect
    next_one = cluster.prepare("one", 1)
    cluster.end_transactions([OpenTransaction("one", next_one.producer, 1)], commit=False)
    assert described_fate(one, cluster.describe_transactions(["one"])["one"]) is Fate.LOST
    assert settle(cluster, _decision(one)).took_effect


@pytest.mark.parametrize("version", [1, 2])
def test_committed_transaction_is_recognized_after_its_id_was_reused(version: int) -> None:
    cluster = MemoryCluster(version=version)
    one = cluster.prepare("one")
    settle(cluster, _decision(one))
    cluster.init_producer_id("one", 60_000)
    cluster.prepare("one", 1)
    cluster.time_out("one")
    assert settle(cluster, _decision(one)).took_effect


def test_outcome_without_coordinator_and_log_is_unknown_and_nothing_is_written(cluster: MemoryCluster) -> None:
    one = cluster.prepare("one")
    cluster.forgotten = {"one"}
    cluster.logs.clear()
    settled = settle(cluster, _decision(one))
    assert settled.unknown == (one,) and not settled.took_effect and not settled.took_no_effect
    for policy in OnLostTransaction:
        with pytest.raises(LostTransactionError, match="fate unknown"):
            must_write(settled, 0, policy)


def test_partial_loss_stops_with_a_report_or_rewrites_the_lost_tasks(cluster: MemoryCluster) -> None:
    one, two = cluster.prepare("one", 0, records=3), cluster.prepare("two", 1, records=4)
    settle(cluster, _decision(one))
    cluster.time_out("two")
    settled = settle(cluster, _decision(one, two))
    assert (settled.committed, settled.lost) == ((one,), (two,))
    with pytest.raises(LostTransactionError, match=r"1 of its 2 transactions \(4 of 7 records\).*two.*t-1@0\.\.3"):
        must_write(settled, 0, OnLostTransaction.FAIL)
    writes = [must_write(settled, split, OnLostTransaction.REWRITE) for split in (0, 1, 2)]
    assert writes == [False, True, False]


def test_total_loss_is_rewritten_under_both_policies(cluster: MemoryCluster) -> None:
    decision = _decision(cluster.prepare("one", 0), cluster.prepare("two", 1))
    cluster.time_out("one")
    cluster.time_out("two")
    settled = settle(cluster, decision)
    assert {must_write(settled, 0, policy) for policy in OnLostTransaction} == {True}


def block(cluster: MemoryCluster) -> None:
    """Let a foreign transaction block the last stable offset; its partition has no end, as before its marker."""
    instead(cluster, "unstable_end", lambda: None, times=100_000)
    cluster.prepare("foreign", 0)


# Seed 4023 of the simulation: the query stopped over transactions that were committed.
@pytest.mark.parametrize("lost", [False, True])
def test_abort_of_the_next_transaction_is_no_loss_while_the_log_cannot_be_read(
    lost: bool, cluster: MemoryCluster
) -> None:
    """After a downgrade an abort leaves the epoch as it is: it looks like an abort of the transaction before."""
    one = cluster.prepare("one", 0)
    if lost:
        cluster.time_out("one")
    else:
        assert settle(cluster, _decision(one)).took_effect
    entry = cluster.ids["one"]
    cluster.ids["one"] = replace(entry, state=TransactionState.COMPLETE_ABORT)
    instead(cluster, "views", dict, times=100_000)
    assert settle(cluster, _decision(one)).pending == (one,)
    restore(cluster, "views")
    settled = settle(cluster, _decision(one))
    assert settled.took_no_effect if lost else settled.took_effect


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("others_lost", [False, True])
def test_records_above_the_last_stable_offset_are_unresolved_and_not_lost(
    caplog: pytest.LogCaptureFixture, raises: bool, others_lost: bool, cluster: MemoryCluster
) -> None:
    """Another transaction blocks the last stable offset, and the coordinator no longer knows the decided one."""
    block(cluster)
    one, two = cluster.prepare("one", 0), cluster.prepare("two", 1)
    settle(cluster, _decision(one))
    cluster.time_out("two")
    cluster.forgotten = {"one"}
    if raises:
        fail(cluster, "view", UnansweredError("not in time"))
    decision = _decision(one, two) if others_lost else _decision(one)
    with caplog.at_level(logging.INFO):
        settled = settle(cluster, decision)
    # What the coordinator reports as aborted may be the next transaction of the id, so its log must be readable too.
    pending = decision.transactions if raises else (one,)
    assert settled.pending == pending and not settled.took_effect and not settled.took_no_effect
    assert f"not settled of {len(decision.transactions)} decided" in caplog.text
    for policy in OnLostTransaction:
        so_far = "two .*The lost transactions stay lost" if others_lost and not raises else "Nothing is lost so far"
        with pytest.raises(TransactionError, match=so_far) as caught:
            must_write(settled, 0, policy)
        assert not isinstance(caught.value, LostTransactionError)
    if not raises:
        cluster.time_out("foreign")
        assert settle(cluster, _decision(one)).took_effect


def test_hidden_decision_of_this_micro_batch_is_waited_for_once(cluster: MemoryCluster) -> None:
    """Coordinators have lost what they knew; the query stops without a take-over, and fences no other one."""
    block(cluster)
    decide_and_die(cluster, splits=(0,))
    cluster.forgotten = {task_id()}
    messages, before = prepare(cluster, 0, "run2", splits=(0,)), cluster.now_ms
    cluster.calls.clear()
    with pytest.raises(TransactionError, match="Nothing is lost so far"):
        committer_of(cluster, "run2").commit(messages, 0)
    assert cluster.now_ms - before < 1.5 * 1_000 * settlement.SETTLE_LIMIT_SECONDS
    assert not any(call.startswith("init") for call in cluster.calls)


def test_older_micro_batch_that_stays_hidden_leaves_time_for_the_next_one(
    caplog: pytest.LogCaptureFixture, cluster: MemoryCluster
) -> None:
    """It was committed; a transaction that hangs hides that, at each restart."""
    block(cluster)
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    cluster.forgotten = {task_id(worker="w0")}
    committer_of(cluster, "run2").commit(prepare(cluster, 1, "run2"), 1)
    assert "micro-batch 1: continuing although an older one of " in caplog.text


def test_older_micro_batch_is_waited_for_as_long_as_an_election_takes(
    monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster
) -> None:
    """The next one has little time left; but a part that is lost is reported now or never."""
    one, two = decision_of(decide_and_die(cluster)).transactions
    cluster.time_out(one.transactional_id)
    cluster.end_transactions([two.opened], True)
    following = prepare(cluster, 1, "run2")
    cluster.pass_time(50_000)
    cluster.forgotten, readable_ms, view = {one.transactional_id}, cluster.now_ms + 5_000, cluster.view

    def elected(place: TopicPartition, offset: int, wait_ms: int) -> CommittedView | None:
        if cluster.now_ms < readable_ms:
            raise UnansweredError("no leader yet")
        return view(place, offset, wait_ms)

    monkeypatch.setattr(cluster, "view", elected)
    with pytest.raises(LostTransactionError, match="1 of its 2 .*will not run the older one again"):
        committer_of(cluster, "run2").commit(following, 1)


@pytest.mark.parametrize("is_known", [True, False])
def test_log_of_a_topic_made_again_tells_nothing_of_earlier_records(is_known: bool) -> None:
    """The explorer found it: the new topic is too short, or has other records of the producer at the same offset."""
    cluster = MemoryCluster(topic_ids={"t": UUID(int=2)})
    written = cluster.prepare("one", 0)
    one = replace(written, ranges=tuple(replace(each, topic_id=UUID(int=1)) for each in written.ranges))
    cluster.time_out("one")
    if is_known:
        fail(cluster, "view", UnansweredError("not in time"))
    else:
        cluster.forgotten = {"one"}
        aborted = (AbortedTransaction(one.producer.producer_id, one.ranges[0].first_offset),)
        instead(cluster, "view", lambda: CommittedView(1, (), aborted), times=100_000)
    settled = settle(cluster, _decision(one))
    assert settled.pending == ()
    assert (settled.lost if is_known else settled.unknown) == (one,)


def test_topic_that_is_gone_does_not_hide_another_that_was_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MemoryCluster(topic_ids={"t": UUID(int=2)})
    written, replaced = cluster.prepare("one", 0), cluster.replaced_topics
    ranges = tuple(replace(each, topic_id=UUID(int=1)) for each in written.ranges)
    one = replace(written, ranges=(*(replace(each, topic="gone") for each in ranges), *ranges))
    cluster.time_out("one")
    cluster.forgotten = {"one"}

    def ask(written: Mapping[str, Collection[UUID]], ids: Collection[str]) -> Collection[str]:
        if "gone" in written:
            raise TopicError("Topic 'gone' does not exist")
        return replaced(written, ids)

    def view(place: TopicPartition, *_: object, **__: object) -> CommittedView | None:
        if place.topic == "gone":
            return None
        raise UnansweredError("not in time")

    monkeypatch.setattr(cluster, "replaced_topics", ask)
    monkeypatch.setattr(cluster, "view", view)
    settled = settle(cluster, _decision(one))
    assert settled.pending == ()
    assert settled.unknown == (one,)


def test_time_limit_covers_all_unresolved_transactions_together(
    monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster
) -> None:
    began_ms = cluster.now_ms
    transactions = tuple(cluster.prepare(f"id{number}", number) for number in range(200))
    cluster.forgotten = set(cluster.ids)

    def away(_: object, wait_ms: int) -> dict[object, object]:
        cluster.pass_time(wait_ms)
        return {}

    monkeypatch.setattr(cluster, "views", away)
    assert settle(cluster, _decision(*transactions)).pending == transactions
    assert cluster.now_ms - began_ms == pytest.approx(SETTLE_LIMIT_SECONDS * 1000, abs=2000)


def test_time_limit_does_not_apply_while_transactions_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MemoryCluster()
    began_ms = cluster.now_ms
    transactions = tuple(cluster.prepare(f"id{number}", number) for number in range(5))
    for each in transactions:
        cluster.time_out(each.transactional_id)
    cluster.forgotten = set(cluster.ids)
    views = cluster.views

    def one_by_one(offsets: Mapping[TopicPartition, int], wait_ms: int) -> object:
        cluster.pass_time(round(SETTLE_LIMIT_SECONDS * 900))
        found = views(offsets, wait_ms=wait_ms)
        return {place: found[place] for place in list(found)[:1]}

    monkeypatch.setattr(cluster, "views", one_by_one)
    assert settle(cluster, _decision(*transactions)).took_no_effect
    assert cluster.now_ms - began_ms > 4000 * SETTLE_LIMIT_SECONDS


def test_many_transactions_are_resolved_with_few_partition_reads() -> None:
    cluster = MemoryCluster()
    transactions = tuple(cluster.prepare(f"id{number}", number % 4) for number in range(400))
    transactions = tuple(replace(each, split=number) for number, each in enumerate(transactions))
    for each in transactions[:300]:
        cluster.time_out(each.transactional_id)
    end_all(cluster, transactions[300:], commit=True)
    cluster.forgotten = set(cluster.ids)
    looks = watched(cluster, "views")
    settled = settle(cluster, _decision(*transactions))
    assert (settled.lost, settled.committed) == (transactions[:300], transactions[300:])
    assert [len(offsets) for offsets, _ in looks] == [4]


def test_transaction_that_a_fetch_does_not_reach_is_found_by_the_next() -> None:
    """A fetch has a limit; what is behind it is not gone."""
    cluster = MemoryCluster()
    transactions = tuple(cluster.prepare(f"id{number}", 0) for number in range(3))
    end_all(cluster, transactions, commit=True)
    cluster.forgotten = set(cluster.ids)
    view = cluster.view

    def view_of_one(place: TopicPartition, offset: int, wait_ms: int) -> CommittedView | None:
        found = view(place, offset, wait_ms)
        return None if found is None else found._replace(batches=found.batches[:1])

    cluster.view = view_of_one  # type: ignore[method-assign]
    assert settle(cluster, _decision(*transactions)).committed == transactions


def test_transaction_with_many_unreadable_partitions_is_unresolved_after_a_few() -> None:
    cluster = MemoryCluster()
    instead(cluster, "views", dict, times=99)
    looks = watched(cluster, "views")
    ranges = tuple(WrittenRange("t", number, 0, 0, 1) for number in range(500))
    each = replace(_transaction(2), ranges=ranges)
    assert logged_fates(cluster, [each]) == {each: Fate.HIDDEN}
    assert len(looks) == 3


# Transactions that a task looks up


@pytest.mark.parametrize(
    ("letters", "courses", "described"),
    [
        # Partial or whole: committed rows are read and lost rows are written; the driver judges.
        ("CC", "SS", [1, 1]),
        ("LL", "WW", [1, 1]),
        ("CL", "SW", [1, 1]),
        # Open: the first task settles all transactions.
        ("OO", "SS", [1, 2, 1]),
        ("OC", "SS", [1, 2, 1]),
        ("OL", "WW", [1, 2, 1, 1]),
    ],
)
@pytest.mark.parametrize("policy", OnLostTransaction)
def test_task_looks_up_its_own_transaction(
    letters: str, courses: str, described: list[int], policy: OnLostTransaction, cluster: MemoryCluster
) -> None:
    transactions = [cluster.prepare(f"id{split}", split) for split in range(len(letters))]
    decision = _decision(*transactions)
    for letter, each in zip(letters, transactions, strict=True):
        if letter == "C":
            end_all(cluster, [each], commit=True)
        elif letter == "L":
            cluster.time_out(each.transactional_id)
    cluster.calls.clear()
    found = ["SW"[must_task_write(cluster, decision, split, policy)] for split in range(len(letters))]
    assert "".join(found) == courses
    asked = [int(call.split()[1]) for call in cluster.calls if call.startswith("describe")]
    assert asked[: len(described)] == described[: len(asked)]
    assert must_task_write(cluster, decision, 7, policy), "the task had no rows then"
    assert not must_task_write(cluster, replace(decision, completed_at_ms=1), 7, policy)


# What a long recovery logs


def test_completion_of_many_transactions_logs_how_many_are_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settlement, "_GROUP_SIZE", 4)
    cluster = MemoryCluster()
    transactions = tuple(cluster.prepare(f"id-{split}", split) for split in range(10))
    with caplog.at_level(logging.INFO):
        settled = settle(cluster, Decision("p", "q", "r", 3, 1, 10, 0, transactions))
    assert settled.took_effect
    assert re.findall(r"micro-batch 3 of q: (\d+) transactions? left to end of 10 decided", caplog.text) == ["6", "2"]


def test_recovery_that_waits_logs_at_intervals(caplog: pytest.LogCaptureFixture, cluster: MemoryCluster) -> None:
    block(cluster)
    one = cluster.prepare("one", 0)
    decision = Decision("p", "q", "r", 3, 1, 1, 0, (one,))
    settle(cluster, decision)
    cluster.forgotten = {"one"}
    with caplog.at_level(logging.INFO):
        assert settle(cluster, decision).pending == (one,)
    logged = caplog.text.count("1 transaction not settled of 1 decided")
    assert 10 <= logged <= SETTLE_LIMIT_SECONDS / settlement._REPORT_SECONDS + 1
