"""The age of an open transaction, from the times of its coordinator and of its records."""

import pytest

from broker_core.types import TopicPartition
from spark_eos.admin.hanging import HangingFinding, HangingVerdict, Owner, PartitionTransaction
from spark_eos.admin.transaction_age import began_at
from spark_eos.admin.watch_model import LaggingPartition, OpenTransaction, Order, Snapshot
from spark_eos.client.active_producers import ActiveProducer
from spark_eos.client.inspection import TransactionDescription

NOW_MS = 1_790_000_000_000
MINUTE_MS = 60_000
IN_NANOSECONDS, AN_HOUR_AHEAD = NOW_MS * 1_000_000, NOW_MS + 60 * MINUTE_MS
TP = TopicPartition("t", 0)


def opened(last_timestamp_ms: int, place: TopicPartition = TP) -> PartitionTransaction:
    return PartitionTransaction(place, ActiveProducer(7, 1, 0, last_timestamp_ms, -1, 5))


def described(start_time_ms: int) -> TransactionDescription:
    return TransactionDescription("an-id", 0, "Ongoing", 7, 1, 900_000, start_time_ms, (TP,))


@pytest.mark.parametrize(
    ("start_ms", "record_ms", "seen_ms", "began_ms"),
    [
        (NOW_MS - 5, NOW_MS - 3_600_000, NOW_MS - 2, NOW_MS - 5),
        (NOW_MS - 5, IN_NANOSECONDS, None, NOW_MS - 5),
        (NOW_MS + 5, None, None, NOW_MS),
        (AN_HOUR_AHEAD, NOW_MS - 7, None, NOW_MS - 7),
        (None, NOW_MS - 7, None, NOW_MS - 7),
        (None, NOW_MS - 7, NOW_MS - 9, NOW_MS - 9),
        (None, AN_HOUR_AHEAD, NOW_MS - 9, NOW_MS - 9),
        (None, IN_NANOSECONDS, None, None),
        (None, -1, None, None),
        (-1, None, None, None),
    ],
)
def test_the_coordinator_is_right_and_the_future_says_nothing(
    start_ms: int | None, record_ms: int | None, seen_ms: int | None, began_ms: int | None
) -> None:
    coordinator = None if start_ms is None else described(start_ms)
    assert began_at(coordinator, record_ms, NOW_MS, seen_ms=seen_ms) == began_ms


@pytest.mark.parametrize(
    ("at_ms", "words"),
    [
        (NOW_MS - 5 * MINUTE_MS, "is from 2026-09-21 14:08:20 UTC, 5 min ago"),
        (NOW_MS + 500, "is from 2026-09-21 14:13:20 UTC, 0 min ago"),
        (AN_HOUR_AHEAD, "is from 2026-09-21 15:13:20 UTC, which is in the future and says nothing about its age"),
        (IN_NANOSECONDS, "is from 56724811-12-05 14:13:20 UTC, which is in the future"),
        (-1, "has no time"),
    ],
)
def test_an_odd_time_is_named(at_ms: int, words: str) -> None:
    assert f"its last record there {words}" in opened(at_ms).says(NOW_MS)


def test_watch_sorts_an_unknown_age_first_and_believes_the_coordinator() -> None:
    places = [TopicPartition("t", number) for number in range(3)]
    hanging = [
        HangingFinding(opened(at_ms, place), HangingVerdict.HANGING, (), "why")
        for at_ms, place in zip((NOW_MS - 7_000, IN_NANOSECONDS), places[1:], strict=True)
    ]
    owners = (Owner(1, described(NOW_MS - 60_000)),)
    live = HangingFinding(opened(NOW_MS - 3_600_000), HangingVerdict.LIVE, owners, "why")
    partitions = [
        LaggingPartition(each.transaction.topic_partition, 5, 9, (OpenTransaction(each.transaction, each),))
        for each in (live, *hanging)
    ]
    ordered = Snapshot(NOW_MS, 3, tuple(partitions)).ordered(Order.AGE)
    assert [(each.topic_partition.partition, each.age_ms(NOW_MS)) for each in ordered] == [
        (2, None), (0, 60_000), (1, 7_000),
    ]  # fmt: skip
