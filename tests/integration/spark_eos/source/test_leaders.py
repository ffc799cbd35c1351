"""Leader changes under a reader, with logs that agree and logs that were truncated (KIP-320)."""

import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import LogPoint, OffsetLookup, PartitionPlace
from spark_eos.errors import DataLossError, UnansweredError
from spark_eos.options.client import ClientOptions
from spark_eos.options.source import SourceOptions, batch_options
from spark_eos.source.data_loss import DataLossPolicy, RewrittenLogs
from spark_eos.source.offsets import OffsetRange, SourceOffset
from spark_eos.source.planner import Planner
from spark_eos.source.range_reader import read_range
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import StreamReader
from tests.support.broker_core.served_apis import leave_out
from tests.support.partition_logs import truncate
from tests.support.spark_eos.source_data import create_topic, delete_records, send, send_plain, transactional_producer
from tests.support.spark_eos.source_query import offsets_in

TP = TopicPartition("t", 0)


# The driver, between micro-batches


class EpochTable:
    def __init__(self, ends: dict[TopicPartition, int | None]) -> None:
        self.ends = ends
        self.asked: dict[TopicPartition, int] = {}

    def epoch_ends(self, leader_epochs: Any) -> dict[TopicPartition, int | None]:
        self.asked |= leader_epochs
        return {tp: self.ends[tp] for tp in leader_epochs if tp in self.ends}


def watch(table: EpochTable, *looks: tuple[int, int, int, int], rewritten: RewrittenLogs | None = None) -> None:
    """Check partition TP several times; each step is the offset read up to, topic id, leader epoch and end."""
    rewritten = rewritten or RewrittenLogs(table, DataLossPolicy(fail=True))
    for read_up_to, topic_id, epoch, end in looks:
        place = PartitionPlace(UUID(int=topic_id), 1, epoch)
        rewritten.check({TP: read_up_to}, {TP: place}, {TP: LogPoint(epoch, end)}, SourceOffset({TP: read_up_to}))


@pytest.mark.parametrize("end", [9, 10, 30])
def test_new_leader_is_queried_about_the_old_epoch_between_micro_batches(end: int) -> None:
    table = EpochTable({TP: end})
    looks = [(0, 1, 4, 10), (10, 1, 5, 30)]
    if end < 10:
        with pytest.raises(
            DataLossError,
            match=r"t-0 was read up to offset 10, but leader epoch 4 ends at offset 9 .* to offset 9 were not read",
        ) as caught:
            watch(table, *looks)
        assert "LOG_TRUNCATED" in str(caught.value)
        assert "continue where the logs part, set the source option 'failOnDataLoss' to 'false'" in str(caught.value)
    else:
        watch(table, *looks)
    assert table.asked == {TP: 4}


def test_loss_that_is_not_accepted_is_reported_again() -> None:
    table = EpochTable({TP: 9})
    rewritten = RewrittenLogs(table, DataLossPolicy(fail=True))
    watch(table, (0, 1, 4, 10), rewritten=rewritten)
    for _ in range(2):
        with pytest.raises(DataLossError, match="leader epoch 4 ends at offset 9"):
            watch(table, (10, 1, 5, 30), rewritten=rewritten)


def test_leader_without_the_old_epoch_has_lost_its_records() -> None:
    with pytest.raises(DataLossError, match="leader epoch 4 is not in the current log"):
        watch(EpochTable({TP: None}), (0, 1, 4, 10), (10, 1, 5, 30))


@pytest.mark.parametrize("looks", [
    [(10, 1, 5, 30)],  # as after a restart from a checkpoint without epochs
    [(0, 1, 5, 10), (10, 1, 5, 30)],
    [(0, 1, -1, 10), (10, 1, 5, 30)],
    [(0, 1, 5, 10), (10, 1, 4, 10)],
    [(0, 1, 5, 10), (10, 2, 7, 30)],  # another topic: its id shows it
], ids=str)  # fmt: skip
def test_unknown_or_unchanged_epochs_require_no_lookup(looks: Any) -> None:
    table = EpochTable({})
    watch(table, *looks)
    assert table.asked == {}


def test_epochs_have_no_end_where_brokers_do_not_support_the_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        leave_out(monkeypatch, int(OffsetForLeaderEpochRequest.API_KEY))
        with KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
            lookup = OffsetLookup(client)
            lookup.places(["t"])
            assert lookup.epoch_ends({TP: 0}) == {}


# A cluster whose leaders move

SMALL = {"kafka.max.partition.fetch.bytes": "200", "kafka.fetch.max.wait.ms": "20"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=3) as broker:
        yield broker


def options_for(broker: EmbeddedBroker, topic: str, **options: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return batch_options(base | SMALL | options)


def fill(broker: EmbeddedBroker, topic: str, values: range) -> None:
    """Write each value in its own batch, so that small fetches return a few at a time."""
    for value in values:
        send_plain(broker.bootstrap_servers, topic, [value])


def plan(options: SourceOptions) -> OffsetRange:
    with KafkaClient(options.client) as client:
        planner = Planner(OffsetLookup(client), options)
        [piece] = planner.plan(planner.starting_offsets(), planner.ending_offsets())
        return piece


def move(broker: EmbeddedBroker, topic: str) -> None:
    broker.move_leader((topic, 0), broker.leader((topic, 0)) % 3 + 1)


def cut(broker: EmbeddedBroker, topic: str, offset: int) -> None:
    """Elect a leader whose log ends at `offset`."""
    tp = TopicPartition(topic, 0)
    broker._call(lambda cluster: truncate(cluster.logs.get(tp, cluster.now_ms), offset))
    move(broker, topic)


def values(batches: Any) -> list[int]:
    return [int(value) for columns in batches for value in columns.column("value").to_pylist()]


def test_leader_that_moves_during_a_read_loses_and_duplicates_nothing(cluster: EmbeddedBroker) -> None:
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(12))
    options = options_for(cluster, topic)
    piece = plan(options)
    assert (piece.leader_epoch, piece.end_epoch) == (0, 0)
    found: list[int] = []
    for columns in read_range(piece, options):
        found += values([columns])
        move(cluster, topic)
    assert found == list(range(12))
    assert plan(options).end_epoch > 2


def test_end_of_an_epoch_without_records_is_known(cluster: EmbeddedBroker) -> None:
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(2))
    move(cluster, topic)
    piece = plan(options := options_for(cluster, topic))
    assert piece.end_epoch == 1
    move(cluster, topic)
    move(cluster, topic)
    assert values(read_range(piece, options)) == [0, 1]


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("regrown", [0, 4, 20])
@pytest.mark.parametrize("when", ["before", "inside"])
def test_log_truncated_below_the_planned_end_is_not_taken_for_a_recreated_topic(
    cluster: EmbeddedBroker, caplog: pytest.LogCaptureFixture, when: str, regrown: int, is_last: bool
) -> None:
    """A batch read goes on in the new log; of a stream, the next micro-batch begins where the logs part."""
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(12))
    options = options_for(cluster, topic)
    lenient = options_for(cluster, topic, failOnDataLoss="false")
    piece = plan(options)

    def cut_and_grow() -> None:
        cut(cluster, topic, 8)
        fill(cluster, topic, range(100, 100 + regrown))

    if when == "before":
        cut_and_grow()
        readings = [read_range(piece, each, is_last=is_last) for each in (options, lenient)]
        first: list[list[int]] = [[], []]
    else:
        readings = [read_range(piece, each, is_last=is_last) for each in (options, lenient)]
        first = [values([next(reading)]) for reading in readings]
        cut_and_grow()
    with pytest.raises(
        DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*records from offset 8 are gone.*truncated the"
    ):
        values(readings[0])
    with caplog.at_level(logging.WARNING):
        found = first[1] + values(readings[1])
    assert "records from offset 8 are gone" in caplog.text
    assert found == list(range(8)) + list(range(100, 100 + min(regrown, 4 * is_last)))


def restarted(broker: EmbeddedBroker, topic: str, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **options}
    return StreamReader(given, source_schema(False))


def begun(broker: EmbeddedBroker, topic: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the bounds of a first micro-batch that nothing has read yet."""
    first = restarted(broker, topic, startingOffsets="earliest")
    start = first.initialOffset()
    end = first.latestOffset(start, first.getDefaultReadLimit())
    first.stop()
    return start, end


def read_two(
    broker: EmbeddedBroker, topic: str, start: dict[str, Any], end: dict[str, Any], **options: str
) -> tuple[list[int], list[int], dict[str, Any]]:
    """Accept the loss; return what a micro-batch and the next one read, and where that ends."""
    reader = restarted(broker, topic, startingOffsets="earliest", failOnDataLoss="false", **options)
    first = [row for piece in reader.partitions(start, end) for row in values(reader.read(piece))]
    then = reader.latestOffset(end, reader.getDefaultReadLimit())
    second = [row for piece in reader.partitions(end, then) for row in values(reader.read(piece))]
    reader.stop()
    return first, second, then


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("lacks", ["epoch", "topic id"])
def test_answer_that_lacks_something_does_not_hide_that_a_log_is_truncated(
    cluster: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, lacks: str, restarts: bool
) -> None:
    """As of a broker, or through a proxy, with an older version of a request; the offset is the same as before."""
    topic, other = (create_topic(cluster.bootstrap_servers) for _ in range(2))
    fill(cluster, topic, range(12))
    reader = restarted(cluster, f"{topic},{other}", startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), limit := reader.getDefaultReadLimit())
    fill(cluster, other, range(1))
    lookup = reader._driver.planner._lookup
    known = lookup.places([topic, other])
    with monkeypatch.context() as patch:
        if lacks == "epoch":
            patch.setattr(lookup, "answered_epoch", lambda _: -1)
        else:
            patch.setattr(lookup, "places", lambda *_, **__: {tp: p._replace(topic_id=None) for tp, p in known.items()})
        end = reader.latestOffset(end, limit)
    cut(cluster, topic, 8)
    fill(cluster, topic, range(100, 108))
    after = restarted(cluster, f"{topic},{other}") if restarts else reader
    with pytest.raises(DataLossError, match=f"{topic}-0 was read up to offset 12, but leader epoch 0 ends at offset 8"):
        after.latestOffset(end, limit)
    reader.stop()
    after.stop()


def test_answer_without_an_epoch_does_not_hide_what_is_new_in_a_cut_log(
    cluster: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is as long as before: its end is no point of the epoch that was read."""
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(12))
    reader = restarted(cluster, topic, startingOffsets="earliest", failOnDataLoss="false")
    end = reader.latestOffset(reader.initialOffset(), limit := reader.getDefaultReadLimit())
    cut(cluster, topic, 8)
    fill(cluster, topic, range(100, 104))
    driver = reader._driver
    admit = driver._admission.admit

    def unanswered(*_: Any, **__: Any) -> None:
        """As a look-up between the comparison and the plan, after which another broker answers."""
        monkeypatch.setattr(driver._admission, "admit", admit)
        monkeypatch.setattr(driver.planner._lookup, "answered_epoch", lambda _: -1)
        raise UnansweredError("late")

    monkeypatch.setattr(driver._admission, "admit", unanswered)
    rows = []
    for _ in range(2):
        start, end = end, reader.latestOffset(end, limit)
        rows += [row for piece in reader.partitions(start, end) for row in values(reader.read(piece))]
    assert rows == [100, 101, 102, 103]
    reader.stop()


def test_task_that_finds_two_losses_leaves_the_new_log_to_the_next_micro_batch(cluster: EmbeddedBroker) -> None:
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(10))
    start, end = begun(cluster, topic)
    cut(cluster, topic, 6)
    fill(cluster, topic, range(100, 110))
    delete_records(cluster.bootstrap_servers, topic, 3)
    first, second, _ = read_two(cluster, topic, start, end)
    assert (first, second) == ([3, 4, 5], list(range(100, 110)))


def test_transaction_whose_marker_is_lost_is_neither_waited_for_nor_read_again(cluster: EmbeddedBroker) -> None:
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(2))
    producer = transactional_producer(cluster.bootstrap_servers)
    producer.begin_transaction()
    send(producer, topic, [2])
    fill(cluster, topic, range(3, 5))
    producer.commit_transaction(30)
    fill(cluster, topic, range(6, 10))
    start, end = begun(cluster, topic)
    cut(cluster, topic, 5)
    fill(cluster, topic, range(100, 103))
    first, second, then = read_two(cluster, topic, start, end)
    assert (first, second, offsets_in(then)) == ([0, 1], [], {topic: {"0": 5}})


def test_micro_batch_without_leader_epochs_is_read_to_its_end(cluster: EmbeddedBroker) -> None:
    """That of Spark's own source: the driver cannot find the cut that its task finds in the batches."""
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(12))
    start, end = ({topic: {"0": offset}} for offset in (0, 12))
    reader = restarted(cluster, topic, startingOffsets="earliest", failOnDataLoss="false", **SMALL)
    [piece] = reader.partitions(start, end)
    rows = reader.read(piece)
    first = values([next(rows)])
    cut(cluster, topic, 3)
    fill(cluster, topic, range(100, 112))
    first += values(rows)
    assert first[:1] == [0] and first[-1] == 108
    reader.stop()


def test_run_of_available_now_reads_a_cut_log_to_its_end(cluster: EmbeddedBroker) -> None:
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(20))
    reader = restarted(
        cluster, topic, startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="8",
    )  # fmt: skip
    reader.prepareForTriggerAvailableNow()
    limit, start, read = reader.getDefaultReadLimit(), reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        read.append([row for piece in reader.partitions(start, end) for row in values(reader.read(piece))])
        start = end
        if len(read) == 1:
            cut(cluster, topic, 6)
            fill(cluster, topic, range(100, 105))
    assert read == [list(range(10)), list(range(100, 105))]
    reader.stop()


def test_restart_on_a_shorter_recreated_topic_stops(cluster: EmbeddedBroker) -> None:
    topic = create_topic(cluster.bootstrap_servers)
    fill(cluster, topic, range(2))
    again = StreamReader(
        {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}, source_schema(False)
    )
    position = {topic: {"0": 3}}
    end = again.latestOffset(position, again.getDefaultReadLimit())
    with pytest.raises(DataLossError, match=rf"PARTITION_OFFSET_CHANGED.*{topic}-0's offset was changed from 3 to 2"):
        again.partitions(position, end)
    again.stop()
