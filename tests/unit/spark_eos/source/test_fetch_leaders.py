"""The fetch follows leaders that change, and compares their logs (KIP-320), on a scripted client."""

from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import IsolationLevel
from spark_eos.client.fetch import FetchedChunk, Gone, OffsetsGoneError, RangeFetch
from spark_eos.client.offset_lookup import LogPoint, PartitionPlace
from spark_eos.errors import BrokerError, UnansweredError, UnsupportedError
from tests.support.spark_eos.scripted_fetch import LIMITS, TP, ScriptedClient, answer, batch, topic

FENCED, UNKNOWN = (answer(error=ErrorCode(code)) for code in (74, 75))


def read(cluster: Any, planned: LogPoint, place: PartitionPlace | None = None, start: int = 0) -> list[FetchedChunk]:
    place = place or PartitionPlace(None, 1, 4)
    fetch = RangeFetch(cluster, TP, place, IsolationLevel.READ_COMMITTED, LIMITS, planned)
    return list(fetch.chunks(start, start + 4))


PLANNED, UNPLANNED = LogPoint(4, 4), LogPoint()


@pytest.mark.parametrize("refusal", [FENCED, UNKNOWN, answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_fetch_carries_the_leader_epoch_and_follows_the_new_leader_on_refusal(refusal: Any) -> None:
    cluster = ScriptedClient(refusal, answer(batch(0, 4)), said=[topic(2, 5)], ends=[4])
    assert [chunk.next_position for chunk in read(cluster, PLANNED)] == [4]
    assert cluster.fetched == [(1, 4, 0), (2, 5, 0)]
    assert cluster.asked == [(2, 5, 4)], "where, in the log of the leader of epoch 5, did epoch 4 end"


def test_unchanged_leader_requires_no_epoch_lookup() -> None:
    cluster = ScriptedClient(answer(batch(0, 2)), answer(batch(2, 2)), said=[topic(1, 4)])
    assert [chunk.next_position for chunk in read(cluster, PLANNED)] == [2, 4]
    assert cluster.asked == []


def test_leader_newer_than_the_plan_is_checked_before_reading() -> None:
    cluster = ScriptedClient(answer(batch(0, 4)), said=[topic(2, 6)], ends=[5])
    read(cluster, PLANNED, PartitionPlace(None, 2, 6))
    assert (cluster.asked, cluster.fetched) == ([(2, 6, 4)], [(2, 6, 0)])


@pytest.mark.parametrize("end", [3, 0, -1])
def test_log_truncated_below_the_planned_end_is_reported(end: int) -> None:
    cluster = ScriptedClient(FENCED, said=[topic(2, 5)], ends=[end])
    with pytest.raises(OffsetsGoneError) as caught:
        read(cluster, PLANNED)
    assert caught.value.reason is Gone.LOG_TRUNCATED
    assert (caught.value.cut_at, caught.value.log_start_offset, caught.value.end_offset) == (
        end if end >= 0 else None,
        0,
        20,
    )
    assert cluster.fetched == [(1, 4, 0)], "nothing is read from the new log"


@pytest.mark.parametrize(("end", "is_cut"), [(2, False), (1, True)])
def test_last_batch_gives_the_leader_epoch_when_the_plan_has_none(end: int, is_cut: bool) -> None:
    cluster = ScriptedClient(
        answer(batch(0, 2, epoch=3)), FENCED, answer(batch(2, 2, epoch=5)), said=[topic(2, 5)], ends=[end]
    )
    if is_cut:
        with pytest.raises(OffsetsGoneError, match="LOG_TRUNCATED"):
            read(cluster, UNPLANNED)
    else:
        assert [chunk.next_position for chunk in read(cluster, UNPLANNED)] == [2, 4]
    assert cluster.asked == [(2, 5, 3)]


def test_batch_with_an_older_leader_epoch_requires_no_lookup() -> None:
    cluster = ScriptedClient(answer(batch(0, 2, epoch=0)), answer(batch(2, 2, epoch=1)), said=[topic(1, 4)])
    assert len(read(cluster, UNPLANNED)) == 2
    assert cluster.asked == []


def test_metadata_older_than_the_known_leader_is_retried() -> None:
    cluster = ScriptedClient(FENCED, answer(batch(0, 4)), said=[topic(1, 3), topic(1, 3), topic(2, 5)], ends=[4])
    read(cluster, PLANNED)
    assert cluster.fetched == [(1, 4, 0), (2, 5, 0)]


def test_leader_older_than_the_plan_is_never_read() -> None:
    """A broker that is cut off from the others names itself as the leader, and its log may end before the plan."""
    cluster = ScriptedClient(UNKNOWN, answer(batch(0, 4)), said=[topic(1, 3), topic(2, 4)])
    assert [chunk.next_position for chunk in read(cluster, PLANNED, PartitionPlace(None, 1, 3))] == [4]
    assert cluster.fetched == [(1, 4, 0), (2, 4, 0)]


def test_read_whose_leader_nobody_names_says_which_is_known() -> None:
    """Also if a cluster was restored from a backup, so that its epochs begin again."""
    with pytest.raises(UnansweredError, match="the leader of epoch 4 is known, and brokers name the leader of epoch 3"):
        read(ScriptedClient(*[UNKNOWN] * 9, said=[topic(1, 3)]), PLANNED, PartitionPlace(None, 1, 3))


def test_leader_whose_metadata_has_no_epoch_is_not_asked_for_one() -> None:
    cluster = ScriptedClient(answer(batch(0, 4)), said=[topic(1, -1)])
    read(cluster, PLANNED, PartitionPlace(None, 1, -1))
    assert cluster.fetched == [(1, -1, 0)]


@pytest.mark.parametrize(("start", "reason"), [(0, Gone.BELOW_LOG_START), (21, Gone.ABOVE_LOG_END)])
def test_leader_that_refuses_an_offset_says_where_its_log_is(start: int, reason: Gone) -> None:
    """The metadata may come from a broker that is cut off from the others."""
    refusal = answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    cluster = ScriptedClient(*[refusal] * 9, said=[topic(1, 3)])
    with pytest.raises(OffsetsGoneError) as caught:
        read(cluster, PLANNED, PartitionPlace(None, 3, 4), start)
    found = caught.value
    assert (found.reason, found.position, found.log_start_offset, found.end_offset) == (reason, start, 8, 20)


@pytest.mark.parametrize("trouble", [(74, -1), (75, -1), (6, -1), UnansweredError("the connection was lost")])
def test_unanswered_epoch_lookup_is_retried_at_the_current_leader(trouble: Any) -> None:
    cluster = ScriptedClient(FENCED, answer(batch(0, 4)), said=[topic(2, 5), topic(3, 6)], ends=[trouble, 4])
    read(cluster, PLANNED)
    assert cluster.asked == [(2, 5, 4), (3, 6, 4)]
    assert cluster.fetched == [(1, 4, 0), (3, 6, 0)]


def test_logs_are_not_compared_where_brokers_do_not_support_it() -> None:
    unsupported = UnsupportedError("OffsetForLeaderEpochRequest to broker 2 requires a newer broker")
    cluster = ScriptedClient(FENCED, answer(batch(0, 2)), answer(batch(2, 2)), said=[topic(2, 5)], ends=[unsupported])
    assert [chunk.next_position for chunk in read(cluster, PLANNED)] == [2, 4]
    assert cluster.asked == [(2, 5, 4)], "a new leader receives one request"


def test_fatal_epoch_lookup_error_is_raised() -> None:
    with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION while looking up where leader epoch 4 ended"):
        read(ScriptedClient(FENCED, said=[topic(2, 5)], ends=[(35, -1)]), PLANNED)
