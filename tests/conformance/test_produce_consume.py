"""Production and consumption of plain records: codecs, keys, nulls, headers, partitions, timestamps."""

import pytest
from confluent_kafka.admin import OffsetSpec

from tests.support.clients import (
    DEADLINE_S,
    READ_UNCOMMITTED,
    Kafka,
    end_offset,
    find_offset,
    make_producer,
    make_topic,
    read_to_end,
    send,
    values_to_end,
)
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_OFFSET = -1

RECORDS = [
    (b"key", b"value", [("trace", b"\x00\x01"), ("empty", b""), ("null", None), ("trace", b"again")]),
    (None, b"no key", []),
    (b"no value", None, []),
    (None, None, [("only", b"header")]),
    (b"", b"", []),
    (b"big", b"kafka " * 20_000, []),
    ("schlüssel".encode(), bytes(range(256)), [("größe", "ü".encode())]),
]


@pytest.mark.parametrize("codec", CODECS)
def test_consumed_records_match_produced_records(kafka: Kafka, codec: str):
    topic = make_topic(kafka)
    producer = make_producer(kafka, compression_type=codec)
    for key, value, headers in RECORDS:
        producer.produce(topic, value, key, partition=0, headers=headers)
    assert producer.flush(DEADLINE_S) == 0
    messages = read_to_end(kafka, topic)
    assert [(m.key(), m.value(), m.headers() or []) for m in messages] == RECORDS
    assert [m.offset() for m in messages] == list(range(len(RECORDS)))


def test_many_records_in_several_partitions_keep_their_order(kafka: Kafka):
    partitions, count = 3, 6000
    topic = make_topic(kafka, partitions=partitions)
    producer = make_producer(kafka, compression_type="zstd", enable_idempotence=True, batch_num_messages=200)
    for number in range(count):
        producer.produce(topic, b"value %d" % number, partition=number % partitions)
    assert producer.flush(DEADLINE_S) == 0
    messages = read_to_end(kafka, topic, partitions=partitions)
    for partition in range(partitions):
        mine = [m for m in messages if m.partition() == partition]
        assert [m.value() for m in mine] == [b"value %d" % n for n in range(partition, count, partitions)]
        assert [m.offset() for m in mine] == list(range(count // partitions))


# The lowest and the highest level of each codec.
@pytest.mark.parametrize(("codec", "levels"), [("gzip", ("1", "9")), ("lz4", ("1", "17")), ("zstd", ("1", "22"))])
def test_level_of_compression_changes_the_size_in_the_log(
    kafka: Kafka, client: RawClient, codec: str, levels: tuple[str, str]
):
    value = b"".join(b"%d %d;" % (number % 89, number * number) for number in range(30_000))
    sizes = []
    for level in levels:
        topic = make_topic(kafka, config={"compression.type": codec, f"compression.{codec}.level": level})
        send(make_producer(kafka), topic, [value])
        assert values_to_end(kafka, topic) == [value]
        sizes.append(len(RawSession(client, None).fetch(topic, 0, isolation=0).records))
    least, most = sizes
    assert most < 0.95 * least < 0.95 * len(value), sizes


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_delivers(kafka: Kafka, acks: str):
    topic = make_topic(kafka)
    send(make_producer(kafka, acks=acks), topic, [b"one", b"two"])
    wait_until(lambda: values_to_end(kafka, topic) == [b"one", b"two"], "both values arrive")


def test_offsets_are_found_by_timestamp(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_producer(kafka)
    base_ms = 1_700_000_000_000
    for number in range(5):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=base_ms + 1000 * number)
        assert producer.flush(DEADLINE_S) == 0

    assert find_offset(kafka, topic, OffsetSpec.for_timestamp(0)) == (0, base_ms)
    assert find_offset(kafka, topic, OffsetSpec.for_timestamp(base_ms + 1500)) == (2, base_ms + 2000)
    assert find_offset(kafka, topic, OffsetSpec.for_timestamp(base_ms + 4000)) == (4, base_ms + 4000)
    assert find_offset(kafka, topic, OffsetSpec.for_timestamp(base_ms + 4001))[0] == NO_OFFSET
    assert find_offset(kafka, topic, OffsetSpec.earliest())[0] == 0
    assert find_offset(kafka, topic, OffsetSpec.latest())[0] == 5
    assert find_offset(kafka, topic, OffsetSpec.max_timestamp()) == (4, base_ms + 4000)


def test_timestamp_type_selects_client_or_broker_time(kafka: Kafka):
    client_ms = 1_700_000_000_000
    for kind, expected in (("CreateTime", True), ("LogAppendTime", False)):
        topic = make_topic(kafka, config={"message.timestamp.type": kind})
        producer = make_producer(kafka)
        producer.produce(topic, b"x", partition=0, timestamp=client_ms)
        assert producer.flush(DEADLINE_S) == 0
        (message,) = read_to_end(kafka, topic)
        assert (message.timestamp()[1] == client_ms) is expected


def test_topic_is_created_by_producing_to_it(kafka: Kafka):
    topic = make_topic(kafka) + "-by-producing"
    producer = make_producer(kafka)
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    assert values_to_end(kafka, topic) == [b"first"]
    assert end_offset(kafka, topic, isolation=READ_UNCOMMITTED) == 1
