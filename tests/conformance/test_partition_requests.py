"""Single requests to one partition: sequences, epochs, unannounced transactions, aborted list, stale leaders."""

import pytest

from broker_core.types import TimestampType
from tests.support.clients import READ_UNCOMMITTED, Kafka, end_offset, make_topic, unique, values_to_end
from tests.support.messages import offsets_request
from tests.support.protocols import headers, markers
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, Identity, RawSession, record_batch
from tests.support.waiting import wait_until

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_TXN_STATE = 48
UNKNOWN_LEADER_EPOCH = 75
INVALID_RECORD = 87
TRANSACTION_ABORTABLE = 120

UNCOMMITTED, COMMITTED = 0, 1
CREATE_TIME, LOG_APPEND_TIME = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
LAST_SEQUENCE = 2**31 - 1


def plain(identity: Identity, sequence: int, count: int = 1) -> bytes:
    values = [b"%d" % (sequence + number) for number in range(count)]
    return record_batch(values, identity, sequence, transactional=False)


def test_batch_across_the_sequence_wrap_is_followed_by_the_next_sequence(kafka: Kafka, idempotent: RawSession):
    topic = make_topic(kafka)
    identity = idempotent.init()[1]
    assert idempotent.produce(topic, plain(identity, LAST_SEQUENCE, 3), version=9) == (NONE, 0)
    assert idempotent.produce(topic, plain(identity, 2), version=9) == (NONE, 3)


def test_new_epoch_begins_with_sequence_zero(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    first = session.init()[1]
    assert session.produce(topic, record_batch([b"a"], first, 0), version=12) == (NONE, 0)
    second = session.end(first, commit=True, version=5)[1]
    refused = session.produce(topic, record_batch([b"b"], second, 1), version=12)[0]
    assert refused == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert session.produce(topic, record_batch([b"b"], second, 0), version=12)[0] == NONE


# Rule C.1/27.
def test_nontransactional_batch_inside_a_transaction_is_refused(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    assert session.produce(topic, record_batch([b"x"], identity, 0), version=12)[0] == NONE
    plain_batch = record_batch([b"y"], identity, 1, transactional=False)
    assert RawSession(session.client, None).produce(topic, plain_batch, version=9)[0] == INVALID_TXN_STATE


# Rule C.1/4.
def test_missing_partition_is_unknown(kafka: Kafka, idempotent: RawSession):
    topic = make_topic(kafka)
    batch = record_batch([b"value"], NOBODY, -1, transactional=False)
    assert idempotent.produce(topic, batch, version=9, partition=5)[0] == UNKNOWN_TOPIC_OR_PARTITION
    assert idempotent.fetch(topic, 0, isolation=UNCOMMITTED, partition=5).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_fetch_lists_the_aborted_transactions(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    one, other = session, RawSession(session.client, unique("id"))
    first, second = one.init()[1], other.init()[1]
    assert one.produce(topic, record_batch([b"a"], first, 0), version=12) == (NONE, 0)
    assert other.produce(topic, record_batch([b"b"], second, 0), version=12) == (NONE, 1)
    other.end(second, commit=True, version=5)
    wait_until(lambda: end_offset(kafka, topic, isolation=READ_UNCOMMITTED) == 3, "the commit marker")
    held = session.fetch(topic, 0, isolation=COMMITTED)
    assert (held.high_watermark, held.last_stable_offset, held.log_start_offset) == (3, 0, 0)
    assert (held.aborted_transactions, bytes(held.records or b"")) == ([], b"")
    one.end(first, commit=False, version=5)
    wait_until(lambda: session.fetch(topic, 0, isolation=COMMITTED).last_stable_offset == 4, "the abort marker")
    for offset in (0, 1, 3):
        aborted = session.fetch(topic, offset, isolation=COMMITTED).aborted_transactions
        assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(first.producer_id, 0)]
    assert session.fetch(topic, 4, isolation=COMMITTED).aborted_transactions == []
    uncommitted = session.fetch(topic, 0, isolation=UNCOMMITTED)
    assert uncommitted.aborted_transactions is None
    assert len(bytes(uncommitted.records)) > 0
    assert values_to_end(kafka, topic) == [b"b"]


def list_offset(
    client: RawClient, topic: str, timestamp: int, *, version: int, leader_epoch: int = -1
) -> tuple[int, int]:
    answer = client.send(offsets_request(topic, timestamp=timestamp, leader_epoch=leader_epoch), version)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset


# Rules D.3/4, D.3/5 and D.3 errors/3.
def test_special_timestamps_need_their_versions(kafka: Kafka, client: RawClient):
    topic = make_topic(kafka)
    assert list_offset(client, topic, -3, version=6)[0] == UNSUPPORTED_VERSION
    assert list_offset(client, topic, -3, version=7) == (NONE, -1)
    assert list_offset(client, topic, -4, version=7)[0] == UNSUPPORTED_VERSION
    assert list_offset(client, topic, -4, version=8) == (NONE, 0)
    assert list_offset(client, topic, -1, version=1) == (NONE, 0)


# Rule C.6/8.
@pytest.mark.parametrize("timestamps", [CREATE_TIME, LOG_APPEND_TIME])
def test_marker_has_the_timestamp_type_of_its_topic(kafka: Kafka, session: RawSession, timestamps: TimestampType):
    name = {CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}[timestamps]
    topic = make_topic(kafka, config={"message.timestamp.type": name})
    identity = session.init()[1]
    assert session.produce(topic, record_batch([b"a"], identity, 0), version=12) == (NONE, 0)
    session.end(identity, commit=True, version=5)
    wait_until(lambda: bool(markers(session, topic)), "the marker")
    assert [header.timestamp_type for header in headers(session, topic)] == [timestamps] * 2


# Rules D.3/1, D.3/2 and D.3/4.
def test_only_a_consumer_does_not_find_the_offsets_of_an_open_transaction(kafka: Kafka, session: RawSession):
    topic = make_topic(kafka)
    identity = session.init()[1]
    assert session.produce(topic, record_batch([b"a"], identity, 0), version=12) == (NONE, 0)
    for replica_id, offsets in ((-1, [-1, 0, -1]), (-2, [0, 1, 0]), (5, [0, 1, 0])):
        asked = [
            offsets_request(topic, timestamp=timestamp, isolation=COMMITTED, replica_id=replica_id)
            for timestamp in (0, -1, -3)
        ]
        answers = [session.client.send(request, 7).topics[0].partitions[0] for request in asked]
        assert [found.offset for found in answers] == offsets, replica_id


# Rule D.3 errors/6.
def test_future_leader_epoch_is_unknown(kafka: Kafka, client: RawClient):
    topic = make_topic(kafka)
    assert list_offset(client, topic, -1, version=6, leader_epoch=1000) == (UNKNOWN_LEADER_EPOCH, -1)
