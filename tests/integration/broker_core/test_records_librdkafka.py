"""Random batches exchanged with librdkafka through a broker, in every codec and in both directions.

librdkafka shares no code with `broker_core.records`: it writes lz4 with linked blocks and snappy without a frame.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from broker_core import EmbeddedBroker
from broker_core.records.batch import NewRecord, Record, build_batch, read_records
from broker_core.records.compression import Compression
from broker_core.records.header import crc_matches, iter_headers
from tests.support.broker_core.requests import produce
from tests.support.examples import examples
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.waiting import wait_until

DEADLINE_S = 30
NOW_MS = 1_700_000_000_000
BYTES = st.none() | st.binary(max_size=60) | st.integers(0, 3000).map(lambda size: b"again and " * size)
# librdkafka treats header names as C strings.
NAMES = st.text(st.characters(min_codepoint=1, codec="utf-8"), min_size=1, max_size=5)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(NewRecord, BYTES, BYTES, HEADERS, st.integers(1, 10**8).map(lambda step: NOW_MS - step)),
    min_size=1,
    max_size=12,
)
EXAMPLES = examples(8)


class Exchange(NamedTuple):
    """A broker, a topic for each codec, and both kinds of clients."""

    address: str
    client: RawClient
    consumer: Consumer
    producers: dict[Compression, Producer]

    def fetch(self, codec: Compression, offset: int, count: int) -> list[Record]:
        """Read the records from the log."""
        data = bytes(RawSession(self.client, None).fetch(codec.name, offset, isolation=0).records)
        found: list[Record] = []
        for position, header in iter_headers(data):
            assert crc_matches(data, position, header)
            found += read_records(data, position, header)
        assert found[-1].offset == offset + count - 1
        return found

    def consume(self, codec: Compression, offset: int, count: int) -> list[Record]:
        """Read the records with librdkafka."""
        self.consumer.assign([TopicPartition(codec.name, 0, offset)])
        found: list[Record] = []

        def has_all() -> bool:
            for message in self.consumer.consume(count - len(found), 0.5):
                assert message.error() is None, message.error()
                found.append(
                    Record(
                        message.offset(),
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                    )
                )
            return len(found) == count

        wait_until(has_all, f"librdkafka reads {count} records of {codec.name}", deadline_s=DEADLINE_S)
        return found

    def end(self, codec: Compression) -> int:
        """Return the log end offset."""
        return int(self.consumer.get_watermark_offsets(TopicPartition(codec.name, 0), DEADLINE_S)[1])


@pytest.fixture(scope="module")
def exchange() -> Iterator[Exchange]:
    with EmbeddedBroker() as kafka, RawClient(kafka.bootstrap_servers) as client:
        plain = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        admin = AdminClient(plain)
        for made in admin.create_topics([NewTopic(codec.name, 1, 1) for codec in Compression]).values():
            made.result(DEADLINE_S)
        consumer = Consumer(
            plain | {"group.id": "exchange", "enable.auto.commit": False, "fetch.wait.max.ms": 20, "check.crcs": True}
        )
        producers = {
            codec: Producer(plain | {"linger.ms": 20, "compression.type": codec.name.lower()}) for codec in Compression
        }
        yield Exchange(kafka.bootstrap_servers, client, consumer, producers)
        consumer.close()


def with_offsets(records: list[NewRecord], offset: int) -> list[Record]:
    return [
        Record(offset + index, record.timestamp_ms, record.key, record.value, record.headers)
        for index, record in enumerate(records)
    ]


@pytest.mark.parametrize("codec", list(Compression))
@EXAMPLES
@given(records=RECORDS)
def test_batches_sent_by_librdkafka_are_read(exchange: Exchange, codec: Compression, records: list[NewRecord]) -> None:
    offset, producer = exchange.end(codec), exchange.producers[codec]
    for record in records:
        producer.produce(
            codec.name, record.value, record.key, headers=list(record.headers), timestamp=record.timestamp_ms
        )
    assert producer.flush(DEADLINE_S) == 0
    expected = with_offsets(records, offset)
    assert exchange.fetch(codec, offset, len(records)) == expected
    assert exchange.consume(codec, offset, len(records)) == expected


@pytest.mark.parametrize("codec", list(Compression))
@EXAMPLES
@given(records=RECORDS)
def test_batches_built_by_broker_core_are_read_by_librdkafka(
    exchange: Exchange, codec: Compression, records: list[NewRecord]
) -> None:
    offset = exchange.end(codec)
    request = produce(build_batch(records, compression=codec), topic=codec.name)
    answer = exchange.client.send(*request).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, offset)
    expected = with_offsets(records, offset)
    assert exchange.fetch(codec, offset, len(records)) == expected
    assert exchange.consume(codec, offset, len(records)) == expected


def test_librdkafka_used_the_configured_codecs(exchange: Exchange) -> None:
    """Send a large batch: librdkafka does not compress small ones, and the other tests must have used all codecs."""
    for codec in Compression:
        offset = exchange.end(codec)
        exchange.producers[codec].produce(codec.name, b"again and " * 1000)
        assert exchange.producers[codec].flush(DEADLINE_S) == 0
        data = bytes(RawSession(exchange.client, None).fetch(codec.name, offset, isolation=0).records)
        assert [header.compression for _, header in iter_headers(data)] == [codec]
