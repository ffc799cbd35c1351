"""Batches that no well-behaved client sends, one for each rule of the produce pipeline (rules C.1/5 to C.1/20).

The expected responses are those of Apache Kafka. An accepted batch must also be stored as the rules say: trimmed, with
the largest timestamp of its records, of the topic's timestamp type.
"""

import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import crc32c
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.producer import ProduceRequest

from broker_core.records.batch import NewRecord, build_batch, read_records
from broker_core.records.compression import Compression, compress
from broker_core.records.header import HEADER_SIZE, BatchHeader
from broker_core.records.varint import append_varint
from tests.support.clients import Kafka, unique
from tests.support.messages import filled
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.waiting import wait_until

DEADLINE_S = 60
NONE, NOT_LEADER, UNKNOWN_SERVER_ERROR = 0, 6, -1
CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_REQUIRED_ACKS = 2, 10, 18, 21
INVALID_TIMESTAMP, INVALID_PRODUCER_EPOCH, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 32, 47, 76, 87
INVALID_PRODUCER_ID_MAPPING, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID = 49, 53, 100
# A day behind this machine's clock, so that all limits around the present are far away.
BASE_MS = int(time.time() * 1000) - 86_400_000
FAR_MS = 10**9
GZIP, ZSTD = Compression.GZIP, Compression.ZSTD
COMPACTED = {"cleanup.policy": "compact"}
STAMPED = {"message.timestamp.type": "LogAppendTime"}
NARROW = {"message.timestamp.before.max.ms": str(2 * 86_400_000)}


def sealed(data: bytes) -> bytes:
    """Return the batch with the checksum of its current content."""
    return data[:17] + crc32c.crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def put(position: int, form: str, value: int, data: bytes) -> bytes:
    """Change a field of the header and nothing else."""
    field = struct.pack(form, value)
    return data[:position] + field + data[position + len(field) :]


def varint(value: int) -> bytes:
    data = bytearray()
    append_varint(data, value)
    return bytes(data)


def batch(count: int = 3, **fields: Any) -> bytes:
    return build_batch([NewRecord(b"k", b"v", (), BASE_MS + at) for at in range(count)], **fields)


def record(
    offset_delta: int,
    timestamp_delta: int = 0,
    *,
    key: bytes | None = b"k",
    key_size: int | None = None,
    size: int | None = None,
    headers: bytes = b"\0",
    offset: bytes | None = None,
    attributes: int = 0,
) -> bytes:
    """Build one record, optionally with a wrong length or two."""
    key_field = varint((-1 if key is None else len(key)) if key_size is None else key_size) + (key or b"")
    body = (
        bytes([attributes])
        + varint(timestamp_delta)
        + (varint(offset_delta) if offset is None else offset)
        + key_field
        + b"\2v"
        + headers
    )
    return varint(len(body) if size is None else size) + body


def of(
    *records: bytes, count: int | None = None, codec: Compression = Compression.NONE, max_ms: int = BASE_MS
) -> bytes:
    """Build a batch of these records."""
    wanted = len(records) if count is None else count
    body = compress(codec, b"".join(records))
    head = bytearray(batch(max(wanted, 1))[:HEADER_SIZE])
    head[22] |= codec
    data = put(8, ">i", HEADER_SIZE - 12 + len(body), bytes(head) + body)
    return sealed(put(35, ">q", max_ms, put(57, ">i", wanted, put(23, ">i", wanted - 1, data))))


class Case(NamedTuple):
    """A batch and the expected response; `errors` are the numbers of the records that the response names."""

    name: str
    data: bytes
    code: int
    errors: tuple[int, ...] = ()
    settings: Mapping[str, str] = {}
    version: int = 9
    acks: int = -1
    says_start: bool = True


GOOD = batch()
R0, R1, R2 = record(0), record(1), record(2)

FRAMING = [
    Case("nothing", b"", INVALID_RECORD, says_start=False),
    Case("less than a length", GOOD[:11], INVALID_RECORD, says_start=False),
    Case("no magic", GOOD[:16], INVALID_RECORD, says_start=False),
    Case("half a header", GOOD[:60], INVALID_RECORD, says_start=False),
    Case("a batch cut short", GOOD[:-1], INVALID_RECORD, says_start=False),
    Case("two batches", GOOD + GOOD, INVALID_RECORD, says_start=False),
    Case("magic 0", put(16, ">b", 0, GOOD), INVALID_RECORD, says_start=False),
    Case("magic 1", put(16, ">b", 1, GOOD), INVALID_RECORD, says_start=False),
    Case("magic 3", put(16, ">b", 3, GOOD), CORRUPT_MESSAGE, says_start=False),
    Case("magic -1", put(16, ">b", -1, GOOD), CORRUPT_MESSAGE, says_start=False),
    Case("length 13", put(8, ">i", 13, GOOD), CORRUPT_MESSAGE, says_start=False),
    Case("a negative length", put(8, ">i", -5, GOOD), CORRUPT_MESSAGE, says_start=False),
    Case("length 14", put(8, ">i", 14, GOOD), CORRUPT_MESSAGE, says_start=False),
    Case("length 48", put(8, ">i", 48, GOOD), CORRUPT_MESSAGE, says_start=False),
    Case("a header alone", put(8, ">i", 49, GOOD)[:61], CORRUPT_MESSAGE, says_start=False),
    Case("zeros behind", GOOD + bytes(17), CORRUPT_MESSAGE, says_start=False),
    Case("a flipped bit", GOOD[:65] + bytes([GOOD[65] ^ 1]) + GOOD[66:], CORRUPT_MESSAGE, says_start=False),
    Case("zstd before Produce 7", batch(compression=ZSTD), UNSUPPORTED_COMPRESSION, version=6, says_start=False),
    Case("acks 5 before the checksum", GOOD[:65] + b"?" + GOOD[66:], INVALID_REQUIRED_ACKS, acks=5, says_start=False),
    *[Case(f"acks {acks}", GOOD, INVALID_REQUIRED_ACKS, acks=acks, says_start=False) for acks in (-2, 2)],
    Case(
        "transactional without an id",
        batch(1, is_transactional=True),
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        says_start=False,
    ),
]
HEADERS = [
    Case("a base offset", batch(base_offset=1), INVALID_RECORD),
    Case("too large", batch(9), MESSAGE_TOO_LARGE, settings={"max.message.bytes": "80"}, says_start=False),
    Case(
        "too large before the checksum",
        batch(9)[:-1] + b"?",
        MESSAGE_TOO_LARGE,
        settings={"max.message.bytes": "80"},
        says_start=False,
    ),
    Case(
        "too large when decompressed",
        build_batch([NewRecord(b"k", bytes(500), (), BASE_MS)], compression=GZIP),
        MESSAGE_TOO_LARGE,
        settings={"max.message.bytes": "300", "compression.type": "uncompressed"},
        says_start=False,
    ),
    Case(
        "too large for a segment",
        build_batch([NewRecord(b"k", bytes(1 << 20), (), BASE_MS)]),
        RECORD_LIST_TOO_LARGE,
        settings={"segment.bytes": str(1 << 20), "max.message.bytes": "2000000"},
        says_start=False,
    ),
    *[Case(f"codec {code}", sealed(put(21, ">h", code, GOOD)), UNKNOWN_SERVER_ERROR) for code in (5, 6, 7)],
    *[
        Case(f"not {codec.name}", sealed(put(21, ">h", codec, GOOD)), UNKNOWN_SERVER_ERROR)
        for codec in Compression
        if codec
    ],
    Case("count 0", sealed(put(57, ">i", 0, GOOD)), INVALID_RECORD),
    Case("count -1", sealed(put(57, ">i", -1, GOOD)), INVALID_RECORD),
    Case("last offset below the first", sealed(put(23, ">i", -1, GOOD)), INVALID_RECORD),
    Case("more offsets than records", sealed(put(23, ">i", 5, GOOD)), INVALID_RECORD),
    Case("no record at all", of(count=0), INVALID_RECORD),
    Case("control", batch(1, is_control=True), INVALID_RECORD),
    Case("a producer without sequence", batch(1, producer_id=901, producer_epoch=0), INVALID_RECORD),
    Case("an epoch below none", batch(1, producer_id=903, producer_epoch=-5, base_sequence=0), INVALID_PRODUCER_EPOCH),
]


def stamped(*records: bytes, codec: Compression, **fields: int) -> bytes:
    """Build a batch whose timestamps are said to be the broker's."""
    return sealed(put(22, ">b", 8 | codec, of(*records, codec=codec, **fields)))


BEHIND, FUTURE, PAST, WITHOUT_KEY = R2 + b"x", record(1, FAR_MS), record(1, -FAR_MS), record(0, key=None)
FORMS: dict[str, tuple[Any, ...]] = {
    "bytes behind the records": (of, (R0, R1, BEHIND), {}, INVALID_RECORD),
    "more records than counted": (of, (R0, R1, R2), {"count": 2}, INVALID_RECORD),
    "fewer records than counted": (of, (R0, R1, R2), {"count": 4}, INVALID_RECORD),
    "a negative length": (of, (R0, record(1, size=-3), R2), {}, INVALID_RECORD),
    "a key behind the end": (of, (R0, record(1, key_size=90), R2), {}, INVALID_RECORD),
    "a negative header count": (of, (record(0, headers=b"\1"), R1), {}, INVALID_RECORD),
    "too many headers": (of, (record(0, headers=varint(99)), R1), {}, INVALID_RECORD),
    "a header without a name": (of, (record(0, headers=b"\2\1\1"),), {}, INVALID_RECORD),
    "an offset of six bytes": (of, (R0, record(1, offset=b"\x82\x80\x80\x80\x80\0")), {}, INVALID_RECORD),
    "records without keys": (
        *(of, (R0, record(1, key=None), record(2, key=None)), {}),
        *(INVALID_RECORD, (1, 2), COMPACTED),
    ),
    "the future": (of, (R0, FUTURE, R2), {}, INVALID_TIMESTAMP, (1,)),
    "the past": (of, (R0, PAST, record(2, -FAR_MS)), {}, INVALID_TIMESTAMP, (1, 2), NARROW),
    "no key and the future": (of, (WITHOUT_KEY, FUTURE, R2), {}, INVALID_TIMESTAMP, (0, 1), COMPACTED),
    "stamped by the client, unused": (stamped, (R0, R1), {}, INVALID_TIMESTAMP, (0, 1), STAMPED),
    "stamped by the client without a stamp": (stamped, (R0, R1), {"max_ms": -1}, INVALID_TIMESTAMP, (0, 1)),
    "stamped by the client with the future": (
        *(stamped, (R0, R1), {"max_ms": BASE_MS + FAR_MS}),
        *(INVALID_TIMESTAMP, (0, 1)),
    ),
    "no key and stamped by the client": (
        *(stamped, (WITHOUT_KEY, R1), {}),
        *(INVALID_TIMESTAMP, (0, 1), STAMPED | COMPACTED),
    ),
}
RECORDS = [
    Case(f"{name}, {codec.name}", build(*records, codec=codec, **fields), *expected)
    for codec in (Compression.NONE, GZIP)
    for name, (build, records, fields, *expected) in FORMS.items()
]


class Taken(NamedTuple):
    """A batch that is accepted, and what is stored of it: timestamps relative to the base, attributes, values."""

    name: str
    data: bytes
    attributes: int = 0
    max_ms: int = 0
    stamps: tuple[int, ...] = (0, 0, 0)
    settings: Mapping[str, str] = {}


TAKEN = [
    Taken("as it is", batch(), max_ms=2, stamps=(0, 1, 2)),
    Taken("with a few bytes behind it", batch() + bytes(5), max_ms=2, stamps=(0, 1, 2)),
    Taken("with half a batch behind it", batch() + batch()[:-1], max_ms=2, stamps=(0, 1, 2)),
    Taken("attributes of records", of(record(0, attributes=7), R1, R2)),
    Taken("a null of another kind", of(R0, record(1, key=b"", key_size=-5), R2)),
    Taken("undefined attributes", sealed(put(21, ">h", 0x7F80, batch())), 0x7F80, 2, (0, 1, 2)),
    Taken(
        "undefined attributes are lost with a wrong timestamp",
        sealed(put(35, ">q", BASE_MS, put(21, ">h", 0x7F80, batch()))),
        0,
        2,
        (0, 1, 2),
    ),
    Taken("a delete horizon", sealed(put(22, ">b", 0x40, batch())), 0x40, 2, (0, 1, 2)),
    Taken(
        "a record without timestamp among others",
        of(R0, record(1, -1 - BASE_MS), R2),
        0,
        0,
        (0, -1 - BASE_MS, 0),
        NARROW,
    ),
    *[
        taken
        for codec in (Compression.NONE, GZIP)
        for taken in (
            Taken(f"a timestamp too low, {codec.name}", of(R0, record(1, 9), R2, codec=codec), codec, 9, (0, 9, 0)),
            Taken(f"a timestamp too high, {codec.name}", of(R0, R1, R2, codec=codec, max_ms=BASE_MS + 7), codec),
            Taken(
                f"a timestamp far too high, {codec.name}", of(R0, R1, R2, codec=codec, max_ms=BASE_MS + FAR_MS), codec
            ),
            Taken(f"stamped by the client, {codec.name}", stamped(R0, R1, R2, codec=codec), codec),
        )
    ],
]


class Produced(NamedTuple):
    """One broker with a topic for each case."""

    client: RawClient
    topics: dict[str, str]


@pytest.fixture(scope="module")
def asked(kafka: Kafka) -> Iterator[Produced]:
    cases = [*FRAMING, *HEADERS, *RECORDS, *TAKEN]
    topics = {case.name: unique("batch") for case in cases}
    assert len(topics) == len(cases)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    made = admin.create_topics([NewTopic(topics[case.name], 1, 1, config=dict(case.settings)) for case in cases])
    for future in made.values():
        future.result(DEADLINE_S)
    with RawClient(kafka.bootstrap_servers) as client:
        yield Produced(client, topics)


def produce(*topics: dict[str, Any], transactional_id: str | None = None, acks: int = -1) -> Any:
    """Return a Produce to topics by name or id: the batches in "partition_data" go to the partitions from 0."""
    data = [
        each | {"partition_data": [{"index": at, "records": batch} for at, batch in enumerate(each["partition_data"])]}
        for each in topics
    ]
    return filled(ProduceRequest, transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=data)


def sent(asked: Produced, case: Case | Taken) -> Any:
    """Send the case's batch and return the partition's response, once the new topic has a leader."""
    topic = {"name": asked.topics[case.name], "partition_data": [case.data]}
    request = produce(topic, acks=getattr(case, "acks", -1))
    found: list[Any] = []

    def answered() -> bool:
        answer = asked.client.send(request, getattr(case, "version", 9)).responses[0].partition_responses[0]
        found.append(answer)
        return bool(answer.error_code not in (3, NOT_LEADER))

    wait_until(answered, f"{case.name} is answered", deadline_s=DEADLINE_S)
    return found[-1]


ALL_REFUSED = [*FRAMING, *HEADERS, *RECORDS]


# Rules C.1/1, C.1/5, C.1/6, C.1/9, C.1/13, C.1/14, C.1/15, C.1/16, C.1/17, C.1/18, C.1/19, C.1/20 and C.1 more/5.
@pytest.mark.parametrize("case", ALL_REFUSED, ids=[case.name for case in ALL_REFUSED])
def test_refused(asked: Produced, case: Case):
    answer = sent(asked, case)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (case.code, -1, -1)
    assert answer.log_start_offset == (0 if case.says_start else -1)
    if case.version >= 8:
        assert tuple(error.batch_index for error in answer.record_errors) == case.errors


# Rules B.4/4 and C.1 more/7.
@pytest.mark.parametrize("case", TAKEN, ids=[case.name for case in TAKEN])
def test_taken(asked: Produced, case: Taken):
    answer = sent(asked, case)
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (NONE, 0, 0)
    data = bytes(RawSession(asked.client, None).fetch(asked.topics[case.name], 0, isolation=0).records)
    header = BatchHeader.parse(data)
    assert header.size_bytes == len(data)
    assert crc32c.crc32c(data[21:]) == header.crc
    assert (header.attributes, header.max_timestamp - BASE_MS) == (case.attributes, case.max_ms)
    records = read_records(data, 0, header)
    assert [record.offset for record in records] == [0, 1, 2]
    assert tuple(record.timestamp_ms - BASE_MS for record in records) == case.stamps


# Rule C.1 more/6.
def test_invalid_batch_fails_the_whole_request(asked: Produced):
    """Kafka checks the whole request for transactional batches before it looks at any partition."""
    topic = {"name": asked.topics["as it is"], "partition_data": [GOOD, put(16, ">b", 3, GOOD)]}
    answer = asked.client.send(produce(topic), 9).responses[0].partition_responses
    assert {entry.index: entry.error_code for entry in answer} == {0: CORRUPT_MESSAGE, 1: CORRUPT_MESSAGE}


def several(asked: Produced, transactional_id: str | None, *batches: tuple[str, bytes]) -> dict[str, int]:
    """Send one batch to each of these topics in one request and return the error codes."""
    topics = [{"name": topic, "partition_data": [data]} for topic, data in batches]
    answer = asked.client.send(produce(*topics, transactional_id=transactional_id), 9)
    return {entry.name: entry.partition_responses[0].error_code for entry in answer.responses}


# Rule C.1/7.
def test_transactional_batches_of_two_producers_fail_the_request(asked: Produced):
    """A batch outside of any transaction fails with them."""
    one, other, plain = (asked.topics[taken.name] for taken in TAKEN[:3])
    mixed = [
        (one, batch(1, producer_id=901, producer_epoch=0, base_sequence=0, is_transactional=True)),
        (other, batch(1, producer_id=902, producer_epoch=0, base_sequence=0, is_transactional=True)),
        (plain, batch(1)),
    ]
    assert several(asked, "two", *mixed) == dict.fromkeys((one, other, plain), INVALID_PRODUCER_ID_MAPPING)


# Rule C.1 more/4.
def test_transactional_batch_without_a_producer_id_is_nontransactional(asked: Produced):
    """The batch has the bit and a transactional id beside it, but no producer id to open a transaction for."""
    topic = asked.topics[TAKEN[0].name]
    assert several(asked, "unknown", (topic, batch(1, is_transactional=True))) == {topic: NONE}
    answer = RawSession(asked.client, None).fetch(topic, 0, isolation=1)
    assert answer.last_stable_offset == answer.high_watermark > 0


def test_min_insync_replicas_is_capped_at_the_replica_count(asked: Produced, kafka: Kafka):
    """Rule C.1/12: min.insync.replicas is limited to the number of replicas."""
    topic = unique("strict")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config={"min.insync.replicas": "2"})])[topic].result(DEADLINE_S)
    wait_until(
        lambda: several(asked, None, (topic, batch(1))) == {topic: NONE},
        "the batch is taken",
        deadline_s=DEADLINE_S,
    )


# Rule C.1 more/1.
def test_error_without_acks_closes_the_connection(asked: Produced, kafka: Kafka):
    topic = {"name": asked.topics[TAKEN[0].name], "partition_data": [sealed(put(57, ">i", 9, batch(3)))]}
    with RawClient(kafka.bootstrap_servers) as client:
        client.post(produce(topic, acks=0), 9)
        assert client.is_closed_by_peer()


# Rule C.1/2.
def test_unknown_topic_id_is_refused(asked: Produced):
    answer = asked.client.send(produce({"topic_id": UUID(int=4711), "partition_data": [GOOD]}), 13)
    assert answer.responses[0].partition_responses[0].error_code == UNKNOWN_TOPIC_ID
