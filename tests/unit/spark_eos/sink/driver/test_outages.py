"""Coordinators that are offline for a while stop no query whose transactions have time left."""

from typing import NoReturn

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TransactionState
from spark_eos.errors import (
    AbortableError,
    AuthorizationError,
    DeliveryTimeoutError,
    FencedError,
    LostTransactionError,
    RecordTooLargeError,
    TransactionError,
    UnansweredError,
    UnreachableError,
)
from spark_eos.open_transaction import EndAnswer
from spark_eos.sink.decision import Rank
from spark_eos.sink.protocol.answers import UnstableOffsetsError
from spark_eos.sink.protocol.decision_errors import OutdatedError, UndecidedError
from spark_eos.sink.protocol.retry_policy import rule_of
from tests.support.spark_eos.driving import log_of
from tests.support.spark_eos.interceptors import after, before, fail, instead
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, prepare, states, task_id, visible

__all__ = ["cluster"]
S = TransactionState
DRIVER = "p.q.driver"


class Outage:
    """A call that fails for some time by the cluster's clock; with `takes_effect` only its response is lost."""

    def __init__(self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, call: str, for_ms: int) -> None:
        self.failures = 0
        self._do, self._cluster, self._until_ms = getattr(cluster, call), cluster, cluster.now_ms + for_ms
        self._what, self.takes_effect = call, False
        monkeypatch.setattr(cluster, call, self)

    def __call__(self, *arguments: object, **more: object) -> object:
        if self._cluster.now_ms >= self._until_ms:
            return self._do(*arguments, **more)
        self.failures += 1
        if self.takes_effect:
            self._do(*arguments, **more)
        # The time that the client waits for a response.
        self._cluster.pass_time(4_000)
        raise UnansweredError(f"{self._what} got no answer")


@pytest.mark.parametrize("call", ["write_decision", "committed_offsets", "describe_transactions", "init_producer_id"])
@pytest.mark.parametrize("for_ms", [5_000, 40_000])
def test_outage_shorter_than_the_remaining_time_is_survived(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, call: str, for_ms: int
) -> None:
    """The group coordinator, the transaction coordinator, or both, in the first micro-batch and in a later one."""
    committer = committer_of(cluster)
    for micro_batch in range(3):
        messages = prepare(cluster, micro_batch)
        with monkeypatch.context() as away:
            outage = Outage(cluster, away, call, for_ms)
            committer.commit(messages, micro_batch)
        assert visible(cluster) == 2 * (micro_batch + 1)
        # A steady micro-batch does not read the pointer, and under V2 it initializes no id.
        is_steady = micro_batch and (call == "committed_offsets" or (call, cluster.version) == ("init_producer_id", 2))
        assert outage.failures or is_steady
    assert states(cluster) == {S.COMPLETE_COMMIT}
    newest = log_of(committer).newest()
    assert (newest.run, newest.micro_batch, newest.attempt) == ("run1", 2, 1)


def test_takeover_with_a_lost_response_is_recognized_as_own(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer, messages = committer_of(cluster), prepare(cluster, 0)
    Outage(cluster, monkeypatch, "init_producer_id", 20_000).takes_effect = True
    committer.commit(messages, 0)
    assert visible(cluster) == 2


def time_out_the_decision(cluster: MemoryCluster, times: int) -> list[int]:
    """Make the driver's transaction time out while its decision is written, as with a coordinator offline for 30 s."""
    timed_out_at_ms = list[int]()

    def slow() -> None:
        timed_out_at_ms.append(cluster.now_ms)
        cluster.pass_time(8_000)
        cluster.ids[DRIVER].state = S.ONGOING
        cluster.time_out(DRIVER)

    before(cluster, "write_decision", slow, times)
    return timed_out_at_ms


@pytest.mark.parametrize("decides", [False, True])
def test_late_takeover_with_a_lost_response_is_recognized_as_own(cluster: MemoryCluster, decides: bool) -> None:
    """The request waits at a paused coordinator while the retry succeeds. A newer driver that decides wins."""
    messages, init = prepare(cluster, 0), cluster.init_producer_id

    def arrive() -> None:
        init(DRIVER, 30_000)
        if decides:
            committer_of(cluster, "run2").commit(prepare(cluster, 0, "run2"), 0)

    fail(cluster, "init_producer_id", UnansweredError("the transaction coordinator is offline"), times=1)
    before(cluster, "write_decision", arrive)
    committer = committer_of(cluster)
    if decides:
        with pytest.raises(FencedError, match="run run2 has decided micro-batch 0"):
            committer.commit(messages, 0)
        assert cluster.calls.count(f"init {DRIVER}") == 3, "the newer driver is not fenced"
    else:
        committer.commit(messages, 0)
        assert visible(cluster) == 2


def test_decision_whose_transaction_timed_out_is_retried_with_another(cluster: MemoryCluster) -> None:
    committer = committer_of(cluster)
    committer.commit(prepare(cluster, 0), 0)
    messages = prepare(cluster, 1)
    timed_out = time_out_the_decision(cluster, 3)
    committer.commit(messages, 1)
    assert len(timed_out) == 3 and visible(cluster) == 4
    committer.commit(prepare(cluster, 2), 2)
    assert visible(cluster) == 6


def test_error_without_remaining_time_says_what_the_brokers_answered(cluster: MemoryCluster) -> None:
    late = DeliveryTimeoutError("Records were late", checked="the last one failed with: NOT_ENOUGH_REPLICAS")
    fail(cluster, "write_decision", late)
    with pytest.raises(TransactionError, match=r"was not decided: Records were late .*NOT_ENOUGH_REPLICAS"):
        committer_of(cluster).commit(prepare(cluster, 0), 0)


def test_error_without_remaining_time_states_that_nothing_is_visible(cluster: MemoryCluster) -> None:
    committer, messages = committer_of(cluster), prepare(cluster, 0)
    time_out_the_decision(cluster, 100)
    with pytest.raises(
        TransactionError,
        match=r"(?s)was not decided: .*No row of the micro-batch is visible: run the job again, with jobId=q",
    ):
        committer.commit(messages, 0)
    committer.abort(messages, 0)
    assert visible(cluster) == 0
    assert states(cluster) == {S.COMPLETE_ABORT}


def test_newer_driver_deciding_during_the_outage_stops_this_one(cluster: MemoryCluster) -> None:
    old, messages = committer_of(cluster), prepare(cluster, 0)

    def away() -> NoReturn:
        committer_of(cluster, "run2").commit(prepare(cluster, 0, "run2"), 0)
        raise UnansweredError("the group's coordinator is offline")

    instead(cluster, "write_decision", away)
    taken_over = cluster.calls.count(f"init {DRIVER}")
    with pytest.raises(FencedError, match="run run2 has decided micro-batch 0"):
        old.commit(messages, 0)
    assert visible(cluster) == 2
    assert cluster.calls.count(f"init {DRIVER}") == taken_over + 2, "the newer driver is not fenced"


def test_newer_driver_that_took_over_during_the_outage_is_not_fenced(cluster: MemoryCluster) -> None:
    old, messages = committer_of(cluster), prepare(cluster, 0)

    def away() -> NoReturn:
        log_of(committer_of(cluster, "run2")).take_over()
        raise UnansweredError("the group's coordinator is offline")

    instead(cluster, "write_decision", away)
    with pytest.raises(FencedError, match="newer driver is running query q"):
        old.commit(messages, 0)
    assert cluster.calls.count(f"init {DRIVER}") == 2


@pytest.mark.parametrize("lost", [1, 3, 5])
def test_epochs_that_come_again_are_no_other_drivers(cluster: MemoryCluster, lost: int) -> None:
    """A process takes its id over until the epoch is a later one; then its first attempt to decide fails."""
    for micro_batch in range(6):
        committer_of(cluster).commit(prepare(cluster, micro_batch), micro_batch)
    producer_id, epoch = cluster.ids[DRIVER].identity
    cluster.ids[DRIVER].identity = ProducerIdentity(producer_id, epoch - lost)
    time_out_the_decision(cluster, 1)
    committer_of(cluster).commit(prepare(cluster, 6), 6)
    assert visible(cluster) == 14


@pytest.mark.parametrize("is_made", [False, True])
def test_unanswered_end_txn_during_an_outage_is_resolved_afterwards(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    committer, messages = committer_of(cluster), prepare(cluster, 0)

    def unclear() -> EndAnswer:
        Outage(cluster, monkeypatch, "describe_transactions", 20_000)
        Outage(cluster, monkeypatch, "committed_offsets", 20_000)
        cluster.lose_answer_of.clear()
        return EndAnswer(None)

    cluster.lose_answer_of = {DRIVER}
    (after if is_made else instead)(cluster, "write_decision", unclear)
    committer.commit(messages, 0)
    assert visible(cluster) == 2 and states(cluster) == {S.COMPLETE_COMMIT}
    committer.commit(prepare(cluster, 1), 1)
    newest = log_of(committer).newest()
    assert (newest.micro_batch, newest.attempt) == (1, 1)


def test_steady_micro_batch_only_describes_its_transactions(cluster: MemoryCluster) -> None:
    """Under V1 each decision initializes the id; the check replaces a read of the pointer."""
    committer = committer_of(cluster)
    for micro_batch in range(2):
        committer.commit(prepare(cluster, micro_batch), micro_batch)
    messages = prepare(cluster, 2)
    cluster.calls.clear()
    committer.commit(messages, 2)
    tasks = [f"end {task_id(worker=f'w{split}')} commit" for split in (0, 1)]
    renewal = ["describe 1", f"init {DRIVER}"] if cluster.version == 1 else []
    decision = ["decide", f"end {DRIVER} commit"]
    assert cluster.calls == [*renewal, "describe 2", *decision, *tasks]


def test_alternating_processes_of_a_run_look_up_the_newest_decision_first(cluster: MemoryCluster) -> None:
    """A process that learns of another process's decision from a refusal reads the pointer first the next time."""
    one, other = committer_of(cluster), committer_of(cluster)
    one.commit(prepare(cluster, 0), 0)
    other.commit(prepare(cluster, 1), 1)
    one.commit(prepare(cluster, 2), 2)
    assert visible(cluster) == 6

    def asks(micro_batch: int) -> list[str]:
        messages = prepare(cluster, micro_batch)
        cluster.calls.clear()
        one.commit(messages, micro_batch)
        return [call for call in cluster.calls if call in ("pointer", "decide")]

    assert asks(3) == ["pointer", "decide"]
    assert asks(4) == ["decide"], "no other process has decided"
    other.commit(prepare(cluster, 5), 5)
    assert visible(cluster) == 12


def test_fatal_errors_are_not_retried(cluster: MemoryCluster) -> None:
    asked = list[int]()
    fail(cluster, "write_decision", AuthorizationError("no right to write"))
    before(cluster, "write_decision", lambda: asked.append(1), times=9)
    with pytest.raises(AuthorizationError):
        committer_of(cluster).commit(prepare(cluster, 0), 0)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (UnansweredError("x"), True),
        (UnreachableError("x"), True),
        (UnstableOffsetsError("x"), True),
        (UndecidedError("x"), True),
        (OutdatedError("x", rank=Rank(1, 1)), True),
        (TransactionError("too late"), False),
        (LostTransactionError("x"), False),
        (FencedError("x"), False),
        (AuthorizationError("x"), False),
    ],
)
def test_errors_caused_by_an_outage_are_retried(error: TransactionError, again: bool) -> None:
    assert rule_of(error).commits_again is again


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (AbortableError("x"), True),
        (FencedError("x"), True),
        (TransactionError("x", error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING), True),
        (AbortableError("x", error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), True),
        (AbortableError("x", error_code=ErrorCode.POLICY_VIOLATION), False),
        (AbortableError("x", error_code=ErrorCode.INVALID_RECORD), False),
        (RecordTooLargeError("x"), False),
        (TransactionError("too late"), False),
    ],
)
def test_undecided_decision_may_be_retried_with_another_transaction(error: TransactionError, again: bool) -> None:
    assert rule_of(error).decides_again is again
