"""The bounded fetch and the task's reader on a real broker, without Spark."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.errors import DataLossError, TopicError, UnansweredError
from spark_eos.options.positions import EARLIEST, LATEST
from spark_eos.options.source import SourceOptions, batch_options
from spark_eos.source.offsets import OffsetRange
from spark_eos.source.planner import Planner
from spark_eos.source.range_reader import read_range
from spark_eos.source.schema import arrow_schema
from tests.support.spark_eos.source_data import (
    abort,
    commit,
    create_topic,
    delete_records,
    delete_topic,
    read_committed,
    send,
    send_plain,
    transactional_producer,
)


def options_for(address: str, topic: str, **options: str) -> SourceOptions:
    return batch_options({"kafka.bootstrap.servers": address, "subscribe": topic} | options)


def rows(piece: OffsetRange, options: SourceOptions) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for columns in read_range(piece, options):
        assert columns.schema == arrow_schema(options.include_headers)
        found += zip(columns.column("offset").to_pylist(), columns.column("value").to_pylist(), strict=True)
    return found


def plan(address: str, topic: str, **options: str) -> list[OffsetRange]:
    chosen = options_for(address, topic, **options)
    with KafkaClient(chosen.client) as client:
        planner = Planner(OffsetLookup(client), chosen)
        return planner.plan(planner.starting_offsets(), planner.ending_offsets())


@pytest.fixture
def client(kafka_address: str) -> Iterator[KafkaClient]:
    with KafkaClient(options_for(kafka_address, "any").client) as opened:
        yield opened


# Rule D.3/2.
def test_end_offsets_are_looked_up_at_both_isolation_levels(kafka_address: str, client: KafkaClient) -> None:
    topic = create_topic(kafka_address, partitions=2)
    producer = transactional_producer(kafka_address)
    commit(producer, topic, ["a", "b"])
    producer.begin_transaction()
    send(producer, topic, ["open"])
    t0, t1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    lookup = OffsetLookup(client)
    assert lookup.offsets({t0: LATEST, t1: LATEST}, IsolationLevel.READ_COMMITTED) == {t0: 3, t1: 0}
    assert lookup.offsets({t0: LATEST}, IsolationLevel.READ_UNCOMMITTED) == {t0: 4}
    assert lookup.offsets({t0: EARLIEST}, IsolationLevel.READ_COMMITTED) == {t0: 0}
    assert lookup.offsets({t1: 5}, IsolationLevel.READ_COMMITTED) == {t1: None}
    producer.abort_transaction(30)


def test_missing_partitions_are_omitted(kafka_address: str, client: KafkaClient, topic: str) -> None:
    lookup = OffsetLookup(client)
    assert lookup.places([topic, "not-there"]).keys() == {TopicPartition(topic, 0)}
    gone = TopicPartition("not-there", 0)
    assert lookup.offsets({gone: LATEST, TopicPartition(topic, 0): LATEST}, IsolationLevel.READ_COMMITTED) == {
        TopicPartition(topic, 0): 0
    }
    names = {tp.topic for tp in lookup.places_matching(lambda _: True)}
    assert topic in names
    assert "__transaction_state" not in names
    with pytest.raises(TopicError, match="INVALID_TOPIC"):
        lookup.places(["not a topic"])


def test_open_transaction_limits_the_plan(kafka_address: str, topic: str) -> None:
    producer = transactional_producer(kafka_address)
    commit(producer, topic, ["a", "b"])
    producer.begin_transaction()
    send(producer, topic, ["later"])
    send_plain(kafka_address, topic, ["behind"])
    (piece,) = plan(kafka_address, topic)
    assert (piece.start, piece.end) == (0, 3)
    assert rows(piece, options_for(kafka_address, topic)) == [(0, b"a"), (1, b"b")]
    producer.commit_transaction(30)
    (piece,) = plan(kafka_address, topic)
    assert (piece.start, piece.end) == (0, 6)
    found = rows(piece, options_for(kafka_address, topic))
    assert found == [(0, b"a"), (1, b"b"), (3, b"later"), (4, b"behind")]


def test_small_fetches_of_any_range_yield_the_same_rows_as_librdkafka(kafka_address: str, topic: str) -> None:
    chance = random.Random(5)
    producers = [transactional_producer(kafka_address) for _ in range(3)]
    opened: set[int] = set()
    for number in range(120):
        who = chance.randrange(3)
        if who not in opened:
            producers[who].begin_transaction()
            opened.add(who)
        send(producers[who], topic, [f"{number}-{'x' * chance.randrange(200)}"])
        if chance.random() < 0.3:
            finish = producers[who].commit_transaction if chance.random() < 0.5 else producers[who].abort_transaction
            finish(30)
            opened.remove(who)
    for who in opened:
        producers[who].abort_transaction(30)
    (piece,) = plan(kafka_address, topic)
    small = {"kafka.max.partition.fetch.bytes": "700"}
    for start, end in [(0, piece.end), (1, piece.end - 1), (piece.end // 3, 2 * piece.end // 3), (7, 8)]:
        part = OffsetRange(topic, 0, start, end, piece.topic_id, piece.leader_id)
        expected = read_committed(kafka_address, topic, 0, start, end)
        assert rows(part, options_for(kafka_address, topic)) == expected
        assert rows(part, options_for(kafka_address, topic, **small)) == expected


def test_read_uncommitted_yields_all_records_and_no_markers(kafka_address: str, topic: str) -> None:
    producer = transactional_producer(kafka_address)
    commit(producer, topic, ["a"])
    abort(producer, topic, ["b"])
    choice = {"kafka.isolation.level": "read_uncommitted"}
    (piece,) = plan(kafka_address, topic, **choice)
    assert rows(piece, options_for(kafka_address, topic, **choice)) == [(0, b"a"), (2, b"b")]
    assert rows(piece, options_for(kafka_address, topic)) == [(0, b"a")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(kafka_address: str, codec: str, topic: str) -> None:
    values = [f"value {number} " * 10 for number in range(500)]
    send_plain(kafka_address, topic, values, settings={"compression.type": codec, "linger.ms": 20})
    (piece,) = plan(kafka_address, topic)
    assert rows(piece, options_for(kafka_address, topic)) == [
        (offset, value.encode()) for offset, value in enumerate(values)
    ]
    middle = OffsetRange(topic, 0, 123, 321)
    assert [offset for offset, _ in rows(middle, options_for(kafka_address, topic))] == list(range(123, 321))


def test_fetch_falls_back_to_topic_names_and_finds_leaders(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, ["a"])
    for hint in (-1, 77):
        piece = OffsetRange(topic, 0, 0, 1, topic_id=None, leader_id=hint)
        assert rows(piece, options_for(kafka_address, topic)) == [(0, b"a")]


def test_record_larger_than_the_limit_is_read(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, [b"x" * 500_000, b"y"])
    piece = OffsetRange(topic, 0, 0, 2)
    found = rows(piece, options_for(kafka_address, topic, **{"kafka.max.partition.fetch.bytes": "1000"}))
    assert [len(value or b"") for _, value in found] == [500_000, 1]


def test_records_below_the_log_start_offset_are_lost(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, range(10))
    (piece,) = plan(kafka_address, topic)
    delete_records(kafka_address, topic, 6)
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*below the log start offset.*\[6, 10\)"):
        rows(piece, options_for(kafka_address, topic))
    lenient = options_for(kafka_address, topic, failOnDataLoss="false")
    assert [offset for offset, _ in rows(piece, lenient)] == [6, 7, 8, 9]
    assert rows(OffsetRange(topic, 0, 0, 5), lenient) == []


def test_offsets_above_the_log_end_offset_are_lost(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, range(3))
    beyond = OffsetRange(topic, 0, 8, 12)
    with pytest.raises(DataLossError, match="above the log end offset"):
        rows(beyond, options_for(kafka_address, topic))
    assert rows(beyond, options_for(kafka_address, topic, failOnDataLoss="false")) == []


@pytest.mark.parametrize(("again", "reason"), [(True, "deleted and created again"), (False, "no longer exists")])
def test_recreated_topic_is_detected(kafka_address: str, again: bool, reason: str, topic: str) -> None:
    send_plain(kafka_address, topic, range(3))
    (piece,) = plan(kafka_address, topic)
    delete_topic(kafka_address, topic)
    if again:
        create_topic(kafka_address, name=topic)
        send_plain(kafka_address, topic, range(3))
    with pytest.raises(DataLossError, match=reason):
        rows(piece, options_for(kafka_address, topic))
    assert rows(piece, options_for(kafka_address, topic, failOnDataLoss="false")) == []


def test_unreadable_range_times_out(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, range(3))
    options = options_for(kafka_address, topic, **{"kafkaConsumer.pollTimeoutMs": "1500"})
    with pytest.raises(UnansweredError, match=r"no progress at offset 3 \(planned end 5\).*only up to 3"):
        rows(OffsetRange(topic, 0, 0, 5), options)


def test_transaction_that_hides_a_planned_range_is_named(kafka_address: str, topic: str) -> None:
    """As after an unclean election, which loses the marker of a transaction that had ended when the plan was made."""
    producer = transactional_producer(kafka_address)
    send_plain(kafka_address, topic, ["a"])
    producer.begin_transaction()
    send(producer, topic, ["open"])
    (piece,) = plan(kafka_address, topic, **{"kafka.isolation.level": "read_uncommitted"})
    options = options_for(kafka_address, topic, **{"kafkaConsumer.pollTimeoutMs": "300"})
    with pytest.raises(
        UnansweredError, match=r"only up to 1.*pollTimeoutMs.*It is the transaction of 'id-.*force-terminate"
    ):
        rows(piece, options)
    producer.abort_transaction(30)


def test_columns_match_the_schema(kafka_address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_address})
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", None)]
    producer.produce(topic, b"v", b"k", timestamp=1_234_567_890_123, headers=headers)
    producer.produce(topic, None, None, timestamp=5)
    assert producer.flush(30) == 0
    options = options_for(kafka_address, topic, includeHeaders="true")
    table = pa.Table.from_batches(read_range(OffsetRange(topic, 0, 0, 2), options))
    assert table.drop_columns(["timestamp"]).to_pylist() == [
        {"key": b"k", "value": b"v", "topic": topic, "partition": 0, "offset": 0, "timestampType": 0,
         "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]},
        {"key": None, "value": None, "topic": topic, "partition": 0, "offset": 1, "timestampType": 0, "headers": None},
    ]  # fmt: skip
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1_234_567_890_123_000, 5_000]
