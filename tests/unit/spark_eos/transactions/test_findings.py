"""The words about an open transaction, and its age."""

from dataclasses import replace

import pytest

from broker_core.types import TopicPartition
from spark_eos.admin.watch_model import Order, WatchSnapshot, waited_text
from spark_eos.client.inspection import TransactionDescription
from spark_eos.client.producer_scan import ActiveProducer
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.sink.naming import TaskId, driver_id
from spark_eos.transactions.findings import (
    HIDDEN,
    NOT_JUDGED,
    HangingFinding,
    Owner,
    PartitionTransaction,
    hanging_finding,
    live_finding,
    possible_start,
    unknown_finding,
)
from spark_eos.transactions.standstills import Standstill

NOW_MS = 1_790_000_000_000
MINUTE_MS = 60_000
IN_NANOSECONDS, AN_HOUR_AHEAD = NOW_MS * 1_000_000, NOW_MS + 60 * MINUTE_MS
TP = TopicPartition("t", 0)


def opened(last_timestamp_ms: int, place: TopicPartition = TP) -> PartitionTransaction:
    return PartitionTransaction(place, ActiveProducer(7, 1, 0, last_timestamp_ms, -1, 5))


def described(start_time_ms: int) -> TransactionDescription:
    return TransactionDescription("an-id", 0, "Ongoing", 7, 1, 900_000, start_time_ms, (TP,))


def live(start_time_ms: int, record_ms: int, place: TopicPartition = TP) -> HangingFinding:
    found = live_finding(opened(record_ms, place), [Owner(1, described(start_time_ms))])
    assert found is not None
    return found


def test_live_transaction_of_the_sink_leads_to_its_decision_and_not_to_its_end() -> None:
    """It may be decided: to end it then loses its rows."""
    commands = OperatorCommands(("b:1",))
    name = str(TaskId("pre.fix", "a query", "0123456789abcdef", "worker", 0))
    described_now = replace(described(NOW_MS), transactional_id=name)
    found = live_finding(opened(-1), [Owner(1, described_now)])
    assert found is not None
    show = "eos-kafka decisions --bootstrap-server b:1 show --prefix=pre.fix '--query=a query'"
    assert found.advice(commands) == f"to see its decision: {show}"
    said = found.sentence(commands, NOW_MS)
    assert said.endswith(f" The eos-kafka sink wrote it: `{show}` shows whether it is decided.")
    assert "force-terminate" not in said
    hanging = hanging_finding(opened(-1), [Owner(1, described_now)])
    assert hanging.advice(commands).startswith("to end it: eos-kafka transactions --bootstrap-server b:1 abort ")
    assert "force-terminate" in live(NOW_MS, -1).advice(commands), "an id of another application"
    springs = replace(described_now, transactional_id="tx-billing.v1.eu.orders.3")
    found = live_finding(opened(-1), [Owner(1, springs)])
    assert found is not None
    assert "force-terminate" in found.advice(commands), "an id of another application with dots"
    assert "The eos-kafka sink wrote it" not in found.sentence(commands, NOW_MS)


@pytest.mark.parametrize(("count", "end"), [(20, ", t-19"), (21, ", t-19 and 1 more"), (3000, ", t-19 and 2980 more")])
def test_transaction_in_many_partitions_does_not_name_all_of_them_in_each(count: int, end: str) -> None:
    many = replace(described(NOW_MS), topic_partitions=tuple(TopicPartition("t", each) for each in range(count)))
    assert Owner(1, many).says().endswith(end)
    assert f"partitions: t-{count - 1}, t-0, " in Owner(1, many).says(TopicPartition("t", count - 1))


@pytest.mark.parametrize(
    ("owner", "says_so"),
    [(None, True), (str(TaskId("p", "q", "0123456789abcdef", "w", 0)), True), ("an-id", False)],
)
def test_hanging_transaction_that_the_sink_may_have_decided_is_not_aborted_at_once(
    owner: str | None, says_so: bool
) -> None:
    """If brokers have lost what its coordinator knew, only the query's decision tells how it has to end."""
    forgotten = replace(described(NOW_MS), transactional_id=owner or "", topic_partitions=())
    found = hanging_finding(opened(-1), [] if owner is None else [Owner(1, forgotten)])
    assert ("start it first: its error names what is decided" in found.why) == says_so


def test_hidden_transaction_has_the_command_for_an_operator_who_may_see_it() -> None:
    commands = OperatorCommands(("b:1",))
    said = unknown_finding(opened(-1), HIDDEN, is_hidden=True).sentence(commands, NOW_MS)
    assert f"`{commands.find_hanging('t')}` shows what it is" in said
    assert "find-hanging" not in unknown_finding(opened(-1), NOT_JUDGED).sentence(commands, NOW_MS)


@pytest.mark.parametrize(
    ("start_ms", "age_ms"),
    [
        (NOW_MS - 5, 5),
        (NOW_MS + 5, 0),
        (AN_HOUR_AHEAD, None),
        (-1, None),
        (NOW_MS - 900_000, 900_000),
        # Its coordinator would have ended it 45 minutes ago: the clock here is ahead.
        (NOW_MS - 3_600_000, None),
    ],
)
@pytest.mark.parametrize("record_ms", [NOW_MS - 3_600_000, IN_NANOSECONDS, -1])
def test_age_comes_from_the_coordinator_and_never_from_a_record(
    start_ms: int, age_ms: int | None, record_ms: int
) -> None:
    assert live(start_ms, record_ms).age_ms(NOW_MS) == age_ms
    assert hanging_finding(opened(record_ms), [Owner(1, described(start_ms))]).age_ms(NOW_MS) is None


def test_transaction_that_is_being_ended_may_be_older_than_its_timeout() -> None:
    """A marker waits for the leader of its partition."""
    ending = replace(described(NOW_MS - 3_600_000), state="PrepareCommit")
    assert possible_start(ending, NOW_MS) == NOW_MS - 3_600_000


@pytest.mark.parametrize(
    ("opened_now", "began_ms", "text"),
    [
        ((live(NOW_MS - 65_000, -1),), NOW_MS - 65_000, "1m 05s"),
        ((hanging_finding(opened(NOW_MS - 3_600_000), []),), NOW_MS - 7_000, ">7 s"),
        ((), NOW_MS - 7_000, "7 s"),
    ],
)
def test_wait_without_a_coordinator_counts_from_when_it_was_seen(
    opened_now: tuple[HangingFinding, ...], began_ms: int, text: str
) -> None:
    waiting = Standstill(TP, 5, 9, NOW_MS - 7_000, opened_now)
    assert (waiting.began_at_ms(NOW_MS), waited_text(waiting, NOW_MS)) == (began_ms, text)


@pytest.mark.parametrize(
    ("at_ms", "words"),
    [
        (NOW_MS - 5 * MINUTE_MS, "is dated 2026-09-21 14:08:20 UTC by its producer, 5m 00s ago"),
        (NOW_MS + 500, "is dated 2026-09-21 14:13:20 UTC by its producer, 0 s ago"),
        (
            AN_HOUR_AHEAD,
            "is dated 2026-09-21 15:13:20 UTC by its producer, which is in the future and says nothing about its age",
        ),
        (IN_NANOSECONDS, "is dated 56724811-12-05 14:13:20 UTC by its producer, which is in the future"),
        (-1, "has no time"),
    ],
)
def test_an_odd_time_is_named(at_ms: int, words: str) -> None:
    assert f"its last record there {words}" in opened(at_ms).says(NOW_MS)


def test_watch_sorts_an_unknown_age_first() -> None:
    places = [TopicPartition("t", number) for number in range(3)]
    hanging = [hanging_finding(opened(NOW_MS - 3_600_000, place), []) for place in places[1:]]
    partitions = [
        Standstill(each.transaction.topic_partition, 5, 9, since_ms, (each,))
        for each, since_ms in ((live(NOW_MS - 60_000, -1), NOW_MS), (hanging[0], NOW_MS), (hanging[1], NOW_MS - 9))
    ]
    ordered = WatchSnapshot(NOW_MS, 3, tuple(partitions)).ordered(Order.AGE)
    assert [each.topic_partition.partition for each in ordered] == [2, 1, 0]


QUERY_ID = "6f1c2d34-9b1e-4c55-8a0e-2f6f0f1f7a01"


@pytest.mark.parametrize(
    ("name", "epoch", "is_v2", "is_committed"),
    [
        # Under V2 the coordinator has forgotten it: that it was committed is not known.
        (str(TaskId("p", "q", "0123456789abcdef", "w", 0)), 1, True, False),
        (str(TaskId("p", "q", "0123456789abcdef", "w", 0)), 1, False, True),
        (str(TaskId("p", "q", "0123456789abcdef", "w", 0)), 2, False, False),
        (driver_id("p", f"{QUERY_ID}/a write"), 1, False, True),
        (driver_id("p", f"job-{QUERY_ID}"), 1, False, True),
        (driver_id("p", "a job"), 1, False, False),
        ("tx-billing.v1.eu.orders.3", 1, False, False),
        ("tx-billing.v1.eu.orders.3", 2, True, True),
        ("tx-billing.v1.eu.orders.3", 2, False, False),
    ],
)
def test_commit_that_lost_its_marker_is_recognized_by_its_epoch(
    name: str, epoch: int, is_v2: bool, is_committed: bool
) -> None:
    """The sink writes one transaction in each epoch, also under V1; other applications of V1 write many."""
    done = TransactionDescription(name, 0, "CompleteCommit", 7, epoch, 900_000, NOW_MS, ())
    found = hanging_finding(opened(-1), [Owner(1, done)], is_v2=is_v2)
    assert found.is_committed is is_committed
    assert found.advice(OperatorCommands(("b:1",))).endswith(" --commit") is is_committed
    assert ("writes the missing marker" in found.why) is is_committed
    aborted = hanging_finding(opened(-1), [Owner(1, replace(done, state="CompleteAbort"))], is_v2=is_v2)
    assert not aborted.is_committed


@pytest.mark.parametrize(
    ("name", "is_v2", "is_doubtful"),
    [
        ("tx-billing.v1.eu.orders.3", None, True),
        ("tx-billing.v1.eu.orders.3", True, False),
        (str(TaskId("p", "q", "0123456789abcdef", "w", 0)), None, False),
    ],
)
def test_commit_that_only_an_unknown_client_may_have_made_is_doubtful(
    name: str, is_v2: bool | None, is_doubtful: bool
) -> None:
    done = TransactionDescription(name, 0, "CompleteCommit", 7, 2, 900_000, NOW_MS, ())
    found = hanging_finding(opened(-1), [Owner(1, done)], is_v2=is_v2)
    assert found.is_committed
    assert ("look into the application's log first" in found.why) is is_doubtful
