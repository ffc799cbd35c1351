"""Leader changes under a reader, with logs that agree and logs that were truncated (KIP-320)."""

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.broker_client import BrokerClient
from spark_eos.client.fetch import FetchedChunk, Gone, OffsetsGoneError, RangeFetch
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata
from spark_eos.client.offset_lookup import LogPoint, OffsetLookup, PartitionPlace
from spark_eos.client.response_decoders import FilteredMetadata, FilteredMetadataRequest
from spark_eos.errors import BrokerError, DataLossError, UnansweredError, UnsupportedError
from spark_eos.options.client import ClientOptions
from spark_eos.options.source import FetchLimits, SourceOptions, batch_options
from spark_eos.runtime import REAL
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
LIMITS = FetchLimits(max_bytes=1_000, partition_max_bytes=1_000, min_bytes=1, max_wait_ms=1, poll_timeout_ms=1_000)


# Scripted leaders


def batch(first: int, count: int = 1, epoch: int = 4) -> bytes:
    return build_batch([NewRecord(None, b"v", (), 0)] * count, base_offset=first, partition_leader_epoch=epoch)


def answer(data: bytes = b"", error: ErrorCode = ErrorCode.NONE) -> Any:
    marks = {"high_watermark": 20, "last_stable_offset": 20}
    partition = SimpleNamespace(partition_index=0, records=data, error_code=error, aborted_transactions=[], **marks)
    return SimpleNamespace(error_code=0, responses=[SimpleNamespace(topic="t", partitions=[partition])])


FENCED, UNKNOWN = (answer(error=ErrorCode(code)) for code in (74, 75))


class ScriptedCluster:
    """A cluster whose responses to Fetch, OffsetForLeaderEpoch and Metadata are scripted; the last metadata stays."""

    def __init__(self, *fetches: Any, metadata: list[tuple[int, int]], ends: list[Any] | None = None) -> None:
        self.fetches, self.leaders, self.ends = list(fetches), list(metadata), list(ends or [])
        self.fetched: list[tuple[int, int, int]] = []
        self.asked: list[tuple[int, int, int]] = []
        self.said: dict[str, TopicMetadata] = {}
        self.tries_left = 6
        self.runtime = REAL
        self.transport = SimpleNamespace(
            wait=lambda pending, deadline: None,
            poll=lambda timeout_ms: None,
            cluster=SimpleNamespace(update_metadata=lambda _: None),
        )

    def start(self, node_id: int, request: Any, _deadline: float) -> Any:
        partition = request.topics[0].partitions[0]
        self.fetched.append((node_id, partition.current_leader_epoch, partition.fetch_offset))
        return self.fetches.pop(0) if self.fetches else answer()

    def outcome(self, pending: Any, _request: Any, _node_id: int) -> Any:
        return pending

    def send(self, node_id: int, request: Any, **_: Any) -> Any:
        partition = request.topics[0].partitions[0]
        self.asked.append((node_id, partition.current_leader_epoch, partition.leader_epoch))
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        code, offset = end if isinstance(end, tuple) else (0, end)
        epoch = -1 if offset < 0 else 4
        partition, other = (
            SimpleNamespace(partition=number, error_code=code, leader_epoch=epoch, end_offset=offset - number)
            for number in (0, 1)
        )
        said = {"u": [other], "t": [other, partition]}
        return SimpleNamespace(topics=[SimpleNamespace(topic=name, partitions=each) for name, each in said.items()])

    def send_all(self, requests: Any, **_: Any) -> list[Any]:
        """Answer ListOffsets: the log is [0, 20), and that of broker 3 is [8, 20)."""
        [(node_id, request)] = requests
        first = 8 if node_id == 3 else 0
        offset = first if request.topics[0].partitions[0].timestamp == -2 else 20
        found = SimpleNamespace(partition_index=0, error_code=0, offset=offset, leader_epoch=5)
        return [SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[found])])]

    def deadline(self, timeout_ms: float | None = None) -> float:
        return timeout_ms or 0.0

    def ask_metadata(self, make: Callable[[], Any], **_: Any) -> FilteredMetadata:
        assert isinstance(make(), FilteredMetadataRequest)
        leader, epoch = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
        self.said = {"t": TopicMetadata("t", None, False, 0, {0: PartitionMetadata(0, leader, epoch, 0)})}
        return FilteredMetadata(None, self.said)

    def topics_by_broker(self, _topics: Any) -> dict[int, dict[str, TopicMetadata]]:
        """Return for the only broker what it has just said."""
        return {1: self.said}

    attempts = BrokerClient.attempts

    def back_off(self, _attempt: int, _deadline: float, **_: Any) -> bool:
        self.tries_left -= 1
        return self.tries_left >= 0


def read(cluster: Any, planned: LogPoint, place: PartitionPlace | None = None) -> list[FetchedChunk]:
    place = place or PartitionPlace(None, 1, 4)
    return list(RangeFetch(cluster, TP, place, IsolationLevel.READ_COMMITTED, LIMITS, planned).chunks(0, 4))


PLANNED, UNPLANNED = LogPoint(4, 4), LogPoint()


@pytest.mark.parametrize("refusal", [FENCED, UNKNOWN, answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_fetch_carries_the_leader_epoch_and_follows_the_new_leader_on_refusal(refusal: Any) -> None:
    cluster = ScriptedCluster(refusal, answer(batch(0, 4)), metadata=[(2, 5)], ends=[4])
    assert [chunk.next_position for chunk in read(cluster, PLANNED)] == [4]
    assert cluster.fetched == [(1, 4, 0), (2, 5, 0)]
    assert cluster.asked == [(2, 5, 4)], "where, in the log of the leader of epoch 5, did epoch 4 end"


def test_unchanged_leader_requires_no_epoch_lookup() -> None:
    cluster = ScriptedCluster(answer(batch(0, 2)), answer(batch(2, 2)), metadata=[(1, 4)])
    assert [chunk.next_position for chunk in read(cluster, PLANNED)] == [2, 4]
    assert cluster.asked == []


def test_leader_newer_than_the_plan_is_checked_before_reading() -> None:
    cluster = ScriptedCluster(answer(batch(0, 4)), metadata=[(2, 6)], ends=[5])
    read(cluster, PLANNED, PartitionPlace(None, 2, 6))
    assert (cluster.asked, cluster.fetched) == ([(2, 6, 4)], [(2, 6, 0)])


@pytest.mark.parametrize("end", [3, 0, -1])
def test_log_truncated_below_the_planned_end_is_reported(end: int) -> None:
    cluster = ScriptedCluster(FENCED, metadata=[(2, 5)], ends=[end])
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
    cluster = ScriptedCluster(
        answer(batch(0, 2, epoch=3)), FENCED, answer(batch(2, 2, epoch=5)), metadata=[(2, 5)], ends=[end]
    )
    if is_cut:
        with pytest.raises(OffsetsGoneError, match="LOG_TRUNCATED"):
            read(cluster, UNPLANNED)
    else:
        assert [chunk.next_position for chunk in read(cluster, UNPLANNED)] == [2, 4]
    assert cluster.asked == [(2, 5, 3)]


def test_batch_with_an_older_leader_epoch_requires_no_lookup() -> None:
    cluster = ScriptedCluster(answer(batch(0, 2, epoch=0)), answer(batch(2, 2, epoch=1)), metadata=[(1, 4)])
    assert len(read(cluster, UNPLANNED)) == 2
    assert cluster.asked == []


def test_metadata_older_than_the_known_leader_is_retried() -> None:
    cluster = ScriptedCluster(FENCED, answer(batch(0, 4)), metadata=[(1, 3), (1, 3), (2, 5)], ends=[4])
    read(cluster, PLANNED)
    assert cluster.fetched == [(1, 4, 0), (2, 5, 0)]


def test_leader_older_than_the_plan_is_never_read() -> None:
    """A broker that is cut off from the others names itself as the leader, and its log may end before the plan."""
    cluster = ScriptedCluster(UNKNOWN, answer(batch(0, 4)), metadata=[(1, 3), (2, 4)])
    assert [chunk.next_position for chunk in read(cluster, PLANNED, PartitionPlace(None, 1, 3))] == [4]
    assert cluster.fetched == [(1, 4, 0), (2, 4, 0)]


def test_read_whose_leader_nobody_names_says_which_is_known() -> None:
    """Also if a cluster was restored from a backup, so that its epochs begin again."""
    with pytest.raises(UnansweredError, match="the leader of epoch 4 is known, and brokers name the leader of epoch 3"):
        read(ScriptedCluster(*[UNKNOWN] * 9, metadata=[(1, 3)]), PLANNED, PartitionPlace(None, 1, 3))


def test_leader_whose_metadata_has_no_epoch_is_not_asked_for_one() -> None:
    cluster = ScriptedCluster(answer(batch(0, 4)), metadata=[(1, -1)])
    read(cluster, PLANNED, PartitionPlace(None, 1, -1))
    assert cluster.fetched == [(1, -1, 0)]


def test_leader_that_refuses_an_offset_says_where_its_log_begins() -> None:
    """The metadata may come from a broker that is cut off from the others."""
    refusal = answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    cluster = ScriptedCluster(*[refusal] * 9, metadata=[(1, 3)])
    with pytest.raises(OffsetsGoneError) as caught:
        read(cluster, PLANNED, PartitionPlace(None, 3, 4))
    assert (caught.value.reason, caught.value.log_start_offset) == (Gone.BELOW_LOG_START, 8)


@pytest.mark.parametrize("trouble", [(74, -1), (75, -1), (6, -1), UnansweredError("the connection was lost")])
def test_unanswered_epoch_lookup_is_retried_at_the_current_leader(trouble: Any) -> None:
    cluster = ScriptedCluster(FENCED, answer(batch(0, 4)), metadata=[(2, 5), (3, 6)], ends=[trouble, 4])
    read(cluster, PLANNED)
    assert cluster.asked == [(2, 5, 4), (3, 6, 4)]
    assert cluster.fetched == [(1, 4, 0), (3, 6, 0)]


def test_logs_are_not_compared_where_brokers_do_not_support_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unsupported = UnsupportedError("OffsetForLeaderEpochRequest to broker 2 requires a newer broker")
    cluster = ScriptedCluster(FENCED, answer(batch(0, 2)), answer(batch(2, 2)), metadata=[(2, 5)], ends=[unsupported])
    assert [chunk.next_position for chunk in read(cluster, PLANNED)] == [2, 4]
    assert cluster.asked == [(2, 5, 4)], "a new leader receives one request"
    with EmbeddedBroker(topics={"t": 1}) as broker:
        leave_out(monkeypatch, int(OffsetForLeaderEpochRequest.API_KEY))
        with KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
            lookup = OffsetLookup(client)
            lookup.places(["t"])
            assert lookup.epoch_ends({TP: 0}) == {}


def test_fatal_epoch_lookup_error_is_raised() -> None:
    with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION while looking up where leader epoch 4 ended"):
        read(ScriptedCluster(FENCED, metadata=[(2, 5)], ends=[(35, -1)]), PLANNED)


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
