"""The driver's plan, compared with a table that replaces brokers."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Never
from uuid import UUID

import pytest

from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata
from spark_eos.client.offset_lookup import PartitionPlace, places_of
from spark_eos.errors import DataLossError, EosKafkaError, OptionError, UnansweredError
from spark_eos.options.positions import EARLIEST, LATEST
from spark_eos.options.source import SourceOptions, batch_options, stream_options
from spark_eos.source.offsets import SourceOffset
from spark_eos.source.planner import Planner
from tests.support.clocks import StandingClock

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPIC_ID = UUID(int=5)


@dataclass
class Marks:
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    times_ms: list[int] = field(default_factory=list)


class Table:
    """A table of offsets in place of brokers; the responses in `stale` come first."""

    def __init__(self, marks: Mapping[TopicPartition, Marks]) -> None:
        self.marks = dict(marks)
        self.clock = StandingClock()
        self.stale: list[dict[TopicPartition, int]] = []
        # Those that metadata still has.
        self.deleted: set[TopicPartition] = set()
        self.epoch = self.stale_epoch = 4
        self.late: set[TopicPartition] = set()
        self.rounds: list[list[Mapping[str, TopicMetadata] | None]] = [[]]
        self.asked = 0

    def places_matching(self, matches: Callable[[str], bool]) -> dict[TopicPartition, PartitionPlace]:
        return self.places({tp.topic for tp in self.marks if matches(tp.topic)})

    def places(self, topics: Collection[str], *, compare: bool = False) -> dict[TopicPartition, PartitionPlace]:
        return {tp: PartitionPlace(TOPIC_ID, 1, 4) for tp in self.marks if tp.topic in topics}

    def offsets(
        self, timestamps_ms: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int | None]:
        answers = {tp: self._offset(tp, ms, isolation) for tp, ms in timestamps_ms.items() if tp in self.marks}
        answers = {tp: offset for tp, offset in answers.items() if tp not in self.deleted}
        self.late -= timestamps_ms.keys()
        if self.stale and LATEST in timestamps_ms.values():
            late = {tp: offset for tp, offset in self.stale.pop(0).items() if tp in timestamps_ms}
            answers |= late
            self.late |= late.keys()
        return answers

    def from_each_broker(self, topics: Collection[str]) -> list[Mapping[str, TopicMetadata] | None]:
        answers = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        self.asked += 1
        return [None if each is None else {topic: each[topic] for topic in topics if topic in each} for each in answers]

    def newest_places(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionPlace]:
        topics = {tp.topic for tp in partitions}
        found = [self.places(topics), *(places_of((each or {}).values()) for each in self.from_each_broker(topics))]
        return {
            tp: max((each[tp] for each in found if tp in each), key=attrgetter("leader_epoch")) for tp in partitions
        }

    def answered_epoch(self, tp: TopicPartition) -> int:
        return self.stale_epoch if tp in self.late else self.epoch

    def _offset(self, tp: TopicPartition, timestamp_ms: int, isolation: IsolationLevel) -> int | None:
        marks = self.marks[tp]
        end = marks.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else marks.high_watermark
        if timestamp_ms == EARLIEST:
            return marks.log_start_offset
        if timestamp_ms == LATEST:
            return end
        young = (offset for offset, at in enumerate(marks.times_ms) if at >= timestamp_ms and offset < end)
        return next(young, None)


def table() -> Table:
    return Table({T0: Marks(2, 8, 10, list(range(0, 100, 10))), T1: Marks(0, 5, 5, list(range(5)))})


def seen_by(*epochs: int) -> list[Mapping[str, TopicMetadata] | None]:
    """Return what brokers say of topic t: one names itself at each of these epochs, and the last does not respond."""
    return [
        {"t": TopicMetadata("t", TOPIC_ID, False, 0, {n: PartitionMetadata(n, epoch, epoch, 0) for n in (0, 1)})}
        for epoch in epochs
    ] + [None]


def planner(lookup: Table, **options: str) -> Planner:
    return make(stream_options, lookup, options)


def batch_planner(lookup: Table, **options: str) -> Planner:
    return make(batch_options, lookup, options)


def make(parse: Callable[[Mapping[str, str]], SourceOptions], lookup: Table, options: Mapping[str, str]) -> Planner:
    base = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
    if not {"assign", "subscribe", "subscribePattern"} & options.keys():
        base["subscribe"] = "t"
    return Planner(lookup, parse(base | dict(options)))


def test_three_kinds_of_subscription_are_planned() -> None:
    lookup = table()
    lookup.marks[U0] = Marks(0, 0, 0)
    assert planner(lookup).partitions().keys() == {T0, T1}
    assert planner(lookup, assign='{"t":[1],"u":[0]}').partitions().keys() == {T1, U0}
    assert planner(lookup, subscribePattern="[u-z]").partitions().keys() == {U0}


@pytest.mark.parametrize("options", [{"subscribe": "t,nowhere"}, {"assign": '{"t":[0,7]}'}])
def test_missing_topic_is_reported_with_the_broker_address(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"Unknown topic or partition: (nowhere|t-7).*127\.0\.0\.1:9092"):
        planner(table(), **options).starting_offsets()


def test_topic_that_no_answer_has_named_yet_is_looked_up_again() -> None:
    class Late(Table):
        def places(self, topics: Collection[str], **more: bool) -> dict[TopicPartition, PartitionPlace]:
            return super().places(topics, **more) if self.clock.monotonic() > appears_at else {}

    lookup = Late(table().marks)
    appears_at = lookup.clock.monotonic() + 0.2
    assert planner(lookup, **{"kafka.metadata.max.age.ms": "3600000"}).starting_offsets() == {T0: 8, T1: 5}


def test_end_offset_is_the_last_stable_offset_unless_read_uncommitted() -> None:
    assert planner(table()).starting_offsets() == {T0: 8, T1: 5}
    assert planner(table(), **{"isolation.level": "read_uncommitted"}).starting_offsets() == {T0: 10, T1: 5}
    assert batch_planner(table()).ending_offsets() == {T0: 8, T1: 5}
    assert batch_planner(table()).starting_offsets() == {T0: 2, T1: 0}


def test_records_wait_behind_a_last_stable_offset_only() -> None:
    lookup, uncommitted = table(), {"isolation.level": "read_uncommitted"}
    committed = batch_planner(lookup)
    assert committed.waiting(committed.ending_offsets()) == [T0]
    assert batch_planner(lookup, **uncommitted).waiting({T0: 8, T1: 5}, {T0: 10, T1: 5}) == []
    assert batch_planner(lookup, endingOffsets='{"t":{"0":7,"1":-1}}').to_latest({T0: 7, T1: 5}) == {T1: 5}


def test_read_is_planned_although_no_broker_says_whether_more_records_wait() -> None:
    class Unanswered(Table):
        def offsets(self, *_: object) -> Never:
            raise EosKafkaError("no answer")

    assert batch_planner(Unanswered(table().marks)).waiting({T0: 8}) == []


def test_given_offsets_resolve_earliest_and_latest() -> None:
    assert planner(table(), startingOffsets='{"t":{"0":-2,"1":-1}}').starting_offsets() == {T0: 2, T1: 5}
    assert planner(table(), startingOffsets='{"t":{"0":9,"1":3}}').starting_offsets() == {T0: 9, T1: 3}


@pytest.mark.parametrize(
    ("option", "error_class"),
    [
        ("startingOffsets", "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        ("endingOffsets", "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        ("startingOffsetsByTimestamp", "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        ("endingOffsetsByTimestamp", "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
    ],
)
@pytest.mark.parametrize("given", ['{"t":{"0":3}}', '{"t":{"0":3,"1":3,"2":3}}'])
def test_given_offsets_must_cover_exactly_the_partitions(option: str, error_class: str, given: str) -> None:
    with pytest.raises(OptionError, match="you must specify all TopicPartitions") as caught:
        batch_planner(table(), **{option: given}).batch_bounds()
    assert error_class in str(caught.value)
    for number in re.findall(r" -\d", caught.value.happened):
        # What the error recommends is accepted.
        parse = planner if option == "startingOffsets" else batch_planner
        parse(table(), **{option: f'{{"t":{{"0":{number},"1":{number}}}}}'})


@pytest.mark.parametrize(("offset", "kind", "words"), [
    (1, DataLossError, "START_OFFSET_RESET.*t-0 was 1"),
    (11, OptionError, "startingOffsets for t-0 is 11, beyond the end of the log, 10"),
    (2**63 - 1, OptionError, "beyond the end of the log, 10"),
])  # fmt: skip
def test_starting_offset_outside_the_log_fails_or_is_reset(offset: int, kind: type[Exception], words: str) -> None:
    given = {"startingOffsets": f'{{"t":{{"0":{offset},"1":0}}}}'}
    with pytest.raises(kind, match=words):
        planner(table(), **given).starting_offsets()
    assert planner(table(), failOnDataLoss="false", **given).starting_offsets() == {T0: 2, T1: 0}


def test_starting_offset_beyond_the_log_of_one_broker_is_asked_of_the_newest_leader() -> None:
    lookup, given = table(), {"startingOffsets": '{"t":{"0":9,"1":3}}', "failOnDataLoss": "false"}
    lookup.stale, lookup.rounds = [{T0: 4, T1: 2}], [seen_by(3, 5)]
    planned = planner(lookup, **given)
    assert planned.starting_offsets() == {T0: 9, T1: 3}, "not reset to the first record, which would repeat others"
    assert planned.places == dict.fromkeys((T0, T1), PartitionPlace(TOPIC_ID, 5, 5))


def test_ending_offset_beyond_the_log_of_one_broker_is_asked_of_the_newest_leader() -> None:
    lookup, given = table(), {"endingOffsets": '{"t":{"0":8,"1":5}}', "failOnDataLoss": "false"}
    lookup.stale, lookup.rounds = [{T1: 2}], [seen_by(3, 5)]
    assert batch_planner(lookup, **given).ending_offsets() == {T0: 8, T1: 5}, "all that was wanted, and not less"


def test_starting_timestamps_are_resolved() -> None:
    assert planner(table(), startingTimestamp="3").starting_offsets() == {T0: 1, T1: 3}
    given = {"startingOffsetsByTimestamp": '{"t":{"0":45,"1":2}}'}
    assert planner(table(), **given).starting_offsets() == {T0: 5, T1: 2}


def test_records_that_become_visible_during_the_look_up_are_compared_with_the_time() -> None:
    """A transaction commits after the first answer: its records must not be left out or taken for older ones."""

    class Growing(Table):
        def offsets(self, *asked: Any) -> dict[TopicPartition, int | None]:
            answers = super().offsets(*asked)
            self.marks[T1] = Marks(0, 7, 7, [*range(5), 60, 70])
            return answers

    since = {"startingTimestamp": "50", "startingOffsetsByTimestampStrategy": "latest"}
    assert planner(Growing(table().marks), **since).starting_offsets() == {T0: 5, T1: 5}
    assert batch_planner(Growing(table().marks), endingTimestamp="50").ending_offsets() == {T0: 5, T1: 5}


def test_timestamp_after_the_last_record_fails_or_uses_the_end() -> None:
    with pytest.raises(OptionError, match="No offset matched from request of topic-partition t-1 and timestamp 50"):
        planner(table(), startingTimestamp="50").starting_offsets()
    lenient = planner(table(), startingTimestamp="50", startingOffsetsByTimestampStrategy="latest")
    assert lenient.starting_offsets() == {T0: 5, T1: 5}
    assert batch_planner(table(), endingTimestamp="50").ending_offsets() == {T0: 5, T1: 5}


def test_end_beyond_the_last_stable_offset_is_refused_or_cut() -> None:
    given = {"endingOffsets": '{"t":{"0":9,"1":4}}'}
    with pytest.raises(EosKafkaError, match="t-0: requested 9, readable 8, log end 10"):
        batch_planner(table(), **given).ending_offsets()
    lenient = batch_planner(table(), failOnDataLoss="false", **given)
    assert lenient.ending_offsets() == {T0: 8, T1: 4}


# An open transaction from offset 2 on, of which the records before offset 5 were deleted.
DELETED_INTO = Marks(5, 2, 10, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90])


def deleted_into_a_transaction() -> Table:
    return Table({T0: replace(DELETED_INTO), T1: Marks(0, 5, 5, list(range(5)))})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": '{"t":{"0":7,"1":0}}'},
        {"endingOffsets": '{"t":{"0":-1,"1":5}}'},
        {"startingOffsets": '{"t":{"0":7,"1":0}}', "endingTimestamp": "1000"},
        {"endingTimestamp": "1000"},
        {"startingOffsets": '{"t":{"0":-2,"1":0}}', "failOnDataLoss": "false"},
    ],
)
def test_batch_that_starts_behind_an_open_transaction_is_empty_there(options: dict[str, str]) -> None:
    planned = batch_planner(deleted_into_a_transaction(), **options)
    start, end, hidden = planned.batch_bounds()
    assert hidden == [T0]
    assert [(piece.topic_partition, piece.size) for piece in planned.plan(start, end)] == [(T1, 5)]


def test_batch_that_ends_at_the_log_start_of_an_open_transaction_is_not_beyond_what_can_be_read() -> None:
    planned = batch_planner(deleted_into_a_transaction(), endingOffsets='{"t":{"0":5,"1":5}}')
    assert planned.batch_bounds() == ({T0: 5, T1: 0}, {T0: 5, T1: 5}, [])


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t":{"0":-1,"1":-1}}'},
        {"startingTimestamp": "1000", "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_stream_starts_at_the_log_start_if_records_of_an_open_transaction_were_deleted(options: dict[str, str]) -> None:
    assert planner(deleted_into_a_transaction(), **options).starting_offsets() == {T0: 5, T1: 5}


def test_stream_waits_at_the_log_start_for_an_open_transaction() -> None:
    lookup = deleted_into_a_transaction()
    planned = planner(lookup)
    for known in ({}, {T1: 5}, {T0: 5, T1: 5}):
        assert planned.latest(SourceOffset(known)) == {T0: 5, T1: 5}
    lookup.marks[T0].last_stable_offset = lookup.marks[T0].high_watermark = 11
    assert planned.latest(SourceOffset({T0: 5, T1: 5})) == {T0: 11, T1: 5}


def test_batch_that_starts_after_its_end_is_an_error_of_the_options() -> None:
    given = {"startingOffsets": '{"t":{"0":7,"1":0}}', "endingTimestamp": "40"}
    with pytest.raises(OptionError, match="t-0 starts at offset 7 and ends before that, at 4"):
        batch_planner(table(), **given).batch_bounds()


def test_batch_whose_end_was_deleted_is_a_loss() -> None:
    given = {"endingOffsets": '{"t":{"0":1,"1":5}}'}
    with pytest.raises(
        DataLossError, match="COULD_NOT_READ_OFFSET_RANGE.*t-0 ends at offset 1, and the log begins at 2"
    ):
        batch_planner(table(), **given).batch_bounds()
    planned = batch_planner(table(), failOnDataLoss="false", **given)
    start, end, hidden = planned.batch_bounds()
    assert hidden == []
    assert [piece.topic_partition for piece in planned.plan(start, end)] == [T1]


@pytest.mark.parametrize("options", [
    {},
    {"startingOffsets": '{"t":{"0":2,"1":-2}}'},
    {"startingOffsets": '{"t":{"0":2,"1":0}}'},
    {"startingTimestamp": "0"},
    {"endingOffsets": '{"t":{"0":-1,"1":-1}}'},
    {"endingOffsets": '{"t":{"0":8,"1":5}}'},
    {"endingTimestamp": "1000"},
], ids=str)  # fmt: skip
def test_partition_that_is_deleted_while_a_batch_is_planned_is_a_loss(options: dict[str, str]) -> None:
    """It was there when the read began, so a read without its rows is not what was asked for."""
    lookup = table()
    lookup.deleted = {T1}
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED.*t-1"):
        batch_planner(lookup, **options).batch_bounds()
    planned = batch_planner(lookup, failOnDataLoss="false", **options)
    start, end, _ = planned.batch_bounds()
    assert {piece.topic_partition for piece in planned.plan(start, end)} == {T0}


@pytest.mark.parametrize("looks", range(1, 6))
def test_partition_that_is_deleted_while_its_end_is_checked_is_a_loss(looks: int) -> None:
    class Deleting(Table):
        left = looks

        def offsets(self, *asked: Any) -> dict[TopicPartition, int | None]:
            self.left -= 1
            self.deleted = {T1} if self.left < 0 else set()
            return super().offsets(*asked)

    given = {"assign": '{"t":[1]}', "endingOffsets": '{"t":{"1":9}}'}
    with pytest.raises(EosKafkaError, match=r"PARTITIONS_DELETED.*t-1|t-1: requested 9, readable 5, log end 5"):
        batch_planner(Deleting(table().marks), **given).batch_bounds()
    start, end, _ = batch_planner(Deleting(table().marks), failOnDataLoss="false", **given).batch_bounds()
    assert end in ({}, {T1: 5}) and start in ({}, {T1: 0})


def test_topic_of_a_pattern_that_is_deleted_while_a_batch_is_planned_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that a broker still names may have been deleted long ago."""
    lookup = table()
    lookup.deleted = {T1}
    planned = batch_planner(lookup, subscribePattern="t")
    start, end, _ = planned.batch_bounds()
    assert {piece.topic_partition for piece in planned.plan(start, end)} == {T0}
    assert not caplog.text


def test_stale_response_is_requested_again() -> None:
    lookup = table()
    lookup.stale = [{T0: 3}]
    assert planner(lookup).latest(SourceOffset({T0: 7, T1: 0})) == {T0: 8, T1: 5}


READ = SourceOffset({T0: 7, T1: 5}, {"t": TOPIC_ID}, leader_epochs={T0: 4, T1: 4})


# Before and after what was read: the log of a leader that was replaced may have more than the newest one's.
@pytest.mark.parametrize("end", [2, 9])
def test_end_at_an_earlier_leader_is_asked_of_the_newest_one(end: int) -> None:
    lookup = table()
    lookup.stale_epoch, lookup.stale = 3, [{T1: end}] * 4
    lookup.rounds = [seen_by(3, 5)]
    planned = planner(lookup)
    assert planned.latest(READ) == {T0: 8, T1: 5}
    assert planned.places[T1] == PartitionPlace(TOPIC_ID, 5, 5)


@pytest.mark.parametrize("end", [2, 9])
def test_end_at_an_earlier_leader_is_no_loss(end: int) -> None:
    """Otherwise a query that goes on after a loss would read again what lies between the two ends."""
    lookup = table()
    lookup.stale_epoch, lookup.stale = 3, [{T1: end}] * 100
    lookup.rounds = [seen_by(3)]
    with pytest.raises(UnansweredError, match="t-1 comes from its leader of epoch 3, and epoch 4 is known"):
        planner(lookup, failOnDataLoss="false").latest(READ)


@pytest.mark.parametrize("change", [{"leader_epochs": {}}, {"topic_ids": {}}])
def test_end_at_a_leader_that_is_not_known_to_be_earlier_is_believed(change: dict[str, Any]) -> None:
    lookup = table()
    lookup.stale_epoch, lookup.stale = 3, [{T1: 2}] * 100
    other = replace(READ, **change)
    lookup.rounds = [seen_by(3)]
    assert planner(lookup, failOnDataLoss="false").latest(other)[T1] == 2


def test_start_above_the_last_stable_offset_waits_without_reporting_loss() -> None:
    assert planner(table()).latest(SourceOffset({T0: 9, T1: 0})) == {T0: 9, T1: 5}
    assert planner(table()).latest(SourceOffset({T0: 11, T1: 0})) == {T0: 8, T1: 5}


def test_plan_carries_the_metadata_of_the_driver() -> None:
    piece = planner(table()).plan({T0: 2, T1: 5}, {T0: 8, T1: 5})[0]
    assert (piece.topic_partition, piece.start, piece.end) == (T0, 2, 8)
    assert (piece.topic_id, piece.leader_id, piece.leader_epoch) == (TOPIC_ID, 1, 4)


def test_plan_contains_the_leader_epoch_of_its_end_offset_when_known() -> None:
    lookup = table()
    planned = planner(lookup)
    assert planned.plan({T0: 2}, {T0: 8})[0].end_epoch == -1, "the epoch is unknown, as for a plan from a checkpoint"
    lookup.epoch = 5
    end = planned.latest(SourceOffset({}))
    planned.high_watermarks([T0])
    lookup.epoch = 6
    assert [piece.end_epoch for piece in planned.plan({T0: 2, T1: 0}, end)] == [5, 5]
    assert planned.plan({T0: 2}, {T0: 9})[0].end_epoch == -1, "the end is not one that latest() returned"


def test_plan_is_split_according_to_the_options() -> None:
    start, end = {T0: 2, T1: 0}, {T0: 8, T1: 5}
    assert len(planner(table()).plan(start, end)) == 2
    assert len(planner(table(), minPartitions="6").plan(start, end)) >= 5
    assert max(piece.size for piece in planner(table(), maxRecordsPerPartition="2").plan(start, end)) == 2


def test_added_partitions_start_at_their_first_record() -> None:
    pieces = planner(table(), startingOffsets="latest").plan({T0: 8}, {T0: 8, T1: 5})
    assert [(piece.topic_partition, piece.start, piece.end) for piece in pieces] == [(T1, 0, 5)]


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ({T1: 0}, {T0: 8, T1: 5}, "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO.*t-0 starts at 2"),
        ({T0: 2, T1: 0, TopicPartition("t", 2): 3}, {T0: 8, T1: 5}, "PARTITIONS_DELETED.*t-2"),
        ({T0: 2, T1: 0}, {T0: 8, T1: 5, U0: 3}, "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS.*u-0"),
        ({T0: 9, T1: 0}, {T0: 8, T1: 5}, "PARTITION_OFFSET_CHANGED.*t-0's offset was changed from 9 to 8"),
    ],
)
def test_data_loss_between_two_offsets_is_detected(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], words: str
) -> None:
    with pytest.raises(DataLossError, match=words) as caught:
        planner(table()).plan(start, end)
    assert "failOnDataLoss" in str(caught.value)
    lenient = planner(table(), failOnDataLoss="false").plan(start, end)
    assert all(piece.topic_partition != U0 and piece.size > 0 for piece in lenient)
