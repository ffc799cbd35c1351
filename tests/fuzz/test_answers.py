"""Named attacks on a client's reading of responses: lengths, counts, tags, truncation, and the steps of SASL."""

import contextlib
import struct
import time

import pytest
from kafka.errors import KafkaConnectionError, KafkaProtocolError

from broker_core.broker.apis import SERVED
from broker_core.wire import messages as m
from spark_eos.client.response_reader import MalformedResponse, ResponseReader, _receive
from spark_eos.client.transport import translate
from spark_eos.errors import EosKafkaError, UnansweredError
from tests.fuzz.answers import HEADER, answer_seeds, answered, ask_reader, conversations, framed
from tests.fuzz.handshakes import MECHANISMS, NONCE, feed_handshake, handshake_seeds, parted, parts
from tests.fuzz.hostile_broker import API_VERSIONS, METADATA
from tests.fuzz.memory_network import Spinning, client_of
from tests.fuzz.peak_memory import peak_bytes
from tests.fuzz.questions import QUESTIONS

_MAX_FRAME_BYTES = 64 << 20
_ENDLESS = b"\xff" * 1_000_000
# Each of these takes milliseconds on an idle machine; without a defense most take minutes.
_MOST_SECONDS = 10
_MOST_BYTES = 48 << 20
_LITTLE_BYTES = 1 << 20

_BROKER = struct.pack(">i", 1) + b"\x02h" + struct.pack(">i", 9) + b"\x00\x00"
_API = struct.pack(">hhh", 1, 0, 1)


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def versions_body(apis: bytes, count: int, tags: bytes = b"\0") -> bytes:
    return b"\0\0" + varint(count + 1) + apis + struct.pack(">i", 0) + tags


def described(transactional_id: str) -> bytes:
    state = m.DescribeTransactionsResponse.TransactionState(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state="Ongoing",
        transaction_timeout_ms=1,
        transaction_start_time_ms=1,
        producer_id=1,
        producer_epoch=1,
        topics=[],
    )
    return bytes(m.DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[state]).encode(version=0))


# The request, its version, and the bytes after the correlation id.
ATTACKS: dict[str, tuple[str, int, bytes]] = {
    "an array of 2^31 entries": ("Metadata", 8, struct.pack(">ii", 0, 2**31 - 1)),
    "an array of a billion entries": ("Metadata", 8, struct.pack(">ii", 0, 10**9) + b"\0" * 1_000),
    "an array of a negative count": ("Metadata", 8, struct.pack(">ii", 0, -7)),
    "an array of null": ("Metadata", 8, struct.pack(">ii", 0, -1) + b"\0" * 100),
    "a compact array of 2^32 entries": ("Metadata", 12, b"\0" + struct.pack(">i", 0) + b"\xff\xff\xff\xff\x0f"),
    "an endless count": ("Metadata", 12, b"\0" + struct.pack(">i", 0) + _ENDLESS),
    "a string of 32767 bytes": ("Metadata", 8, struct.pack(">iiih", 0, 1, 1, 32_767)),
    "a string of a negative length": ("Metadata", 8, struct.pack(">iiih", 0, 1, 1, -2) + b"\0" * 100),
    "a string of null": ("Metadata", 8, struct.pack(">iiih", 0, 1, 1, -1) + b"\0" * 100),
    "a compact string of 2^31 bytes": (
        "Metadata",
        12,
        b"\0" + struct.pack(">i", 0) + b"\x02" + struct.pack(">i", 1) + b"\xff\xff\xff\xff\x07",
    ),
    "a compact string above the maximum length": ("DescribeTransactions", 0, b"\0" + described("a" * 40_000)),
    "bytes that are not UTF-8": ("Metadata", 8, struct.pack(">iiih", 0, 1, 1, 2) + b"\xff\xfe" + b"\0" * 100),
    "records of 2^31 bytes": (
        "Fetch",
        11,
        struct.pack(">ihiih", 0, 0, 0, 1, 1) + b"t" + struct.pack(">iihqqqiii", 1, 0, 0, 1, 1, 0, -1, -1, 2**31 - 1),
    ),
    "2^32 tagged fields": ("EndTxn", 5, b"\0" + b"\0" * 16 + b"\xff\xff\xff\xff\x0f"),
    "a tagged field of 2^32 bytes": ("EndTxn", 5, b"\0" + b"\0" * 16 + b"\x01\x05\xff\xff\xff\xff\x0f"),
    "endless tagged fields": ("EndTxn", 5, b"\0" + b"\0" * 16 + _ENDLESS),
    "an endless tag in the header": ("EndTxn", 5, _ENDLESS),
    "2^32 tags in the header": ("EndTxn", 5, b"\xff\xff\xff\xff\x0f" + b"\x05\0" * 100_000),
    "a tagged field with a false length": (
        "ApiVersions",
        4,
        versions_body(b"", 0, b"\x01\x01\x09" + b"\0" * 8 + b"\0"),
    ),
    "a hundred thousand sets of tagged fields": (
        "ApiVersions",
        4,
        versions_body((_API + b"\x01\x63\x00") * 100_000, 100_000),
    ),
}
# Well formed, but with many entries.
CROWDS: dict[str, tuple[str, int, bytes]] = {
    "ten thousand tiny APIs": ("ApiVersions", 4, versions_body((_API + b"\0") * 10_000, 10_000)),
    "ten thousand tagged fields": (
        "EndTxn",
        5,
        b"\0" + b"\0" * 16 + varint(10_000) + b"".join(varint(tag) + b"\0" for tag in range(10_000)),
    ),
    "ten thousand brokers with the same id": (
        "Metadata",
        12,
        b"\0" + struct.pack(">i", 0) + varint(10_001) + _BROKER * 10_000 + b"\0" + struct.pack(">i", 1) + b"\x01\0",
    ),
}


def reader_for(api: str, version: int) -> ResponseReader:
    reader = ResponseReader(client_id="fuzz", receive_message_max_bytes=_MAX_FRAME_BYTES)
    ask_reader(reader, next(each for each in SERVED.values() if each.name == api), version)
    return reader


@pytest.mark.parametrize("name", ATTACKS)
def test_response_with_a_false_length_is_refused_immediately(name: str) -> None:
    api, version, content = ATTACKS[name]
    reader = reader_for(api, version)
    began = time.monotonic()
    with pytest.raises(MalformedResponse) as caught:
        reader.receive_bytes(framed(1, content))
    assert time.monotonic() - began < _MOST_SECONDS
    translated = translate(caught.value, "The question")
    assert isinstance(translated, UnansweredError)
    assert len(str(translated)) < 1_000


@pytest.mark.parametrize("name", [*ATTACKS, *CROWDS])
def test_response_memory_is_proportional_to_its_length(name: str) -> None:
    api, version, content = (ATTACKS | CROWDS)[name]
    number = next(number for number, (each, at) in enumerate(answered()) if (each.name, at) == (api, version))
    assert peak_bytes("answers", bytes([number]) + framed(1, content)) < _LITTLE_BYTES + 60 * len(content)


def test_response_truncated_at_any_byte_is_refused() -> None:
    for seed in answer_seeds():
        (api, version), content = answered()[seed[0]], seed[9:]
        for end in range(len(content)):
            with pytest.raises(MalformedResponse):
                reader_for(api.name, version).receive_bytes(framed(1, content[:end]))
        (whole,) = reader_for(api.name, version).receive_bytes(framed(1, content))
        # As in Kafka's own clients, so that a broker may be newer than the client.
        (with_more,) = reader_for(api.name, version).receive_bytes(framed(1, content + b"more"))
        assert whole[0] == with_more[0] == 1
        assert whole[1] == with_more[1], (api.name, version)


def test_responses_may_arrive_byte_by_byte_or_two_at_once() -> None:
    seed = answer_seeds()[0]
    api, version = answered()[seed[0]]
    reader = reader_for(api.name, version)
    answers = [answer for byte in seed[1:] for answer in reader.receive_bytes(bytes([byte]))]
    assert len(answers) == 1
    for _ in range(2):
        ask_reader(reader, api, version)
    assert len(reader.receive_bytes(seed[1:] * 2)) == 2


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", _MAX_FRAME_BYTES + 1),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">ih", 2, 0),
        framed(2, b"\0" * 18),
        framed(-1, b"\0" * 18),
        framed(1, b"\0" * 18) + framed(1, b"\0" * 18),
    ],
)
def test_response_without_a_matching_request_is_refused(data: bytes) -> None:
    assert len(reader_for("EndTxn", 5).receive_bytes(framed(1, b"\0" * 18))) == 1
    with pytest.raises(KafkaProtocolError):
        reader_for("EndTxn", 5).receive_bytes(data)


def test_broker_that_never_stops_sending_does_not_block_the_loop() -> None:
    class Flood:
        given = 0

        def recv(self, size_bytes: int) -> bytes:
            self.given += size_bytes
            assert self.given < _MOST_BYTES
            return bytes(size_bytes)

    class Transport:
        _sock = Flood()

    data, error = _receive(Transport())
    assert error is None
    assert 0 < len(data) <= 2 << 20


def test_data_received_before_the_end_of_stream_is_read() -> None:
    class Sock:
        pieces = [b"last words", b"", b""]

        def recv(self, size_bytes: int) -> bytes:
            return self.pieces.pop(0)

    class Transport:
        _sock = Sock()

    assert _receive(Transport()) == (b"last words", None)
    data, error = _receive(Transport())
    assert data == b""
    assert isinstance(error, KafkaConnectionError)


def token(content: bytes | None) -> bytes:
    return bytes(
        m.SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=content, session_lifetime_ms=0).encode(
            version=1
        )
    )


def versions_answer(**fields: object) -> bytes:
    form = {"error_code": 0, "api_keys": []}
    return bytes(m.ApiVersionsResponse(**{**form, **fields}).encode(version=(fields.get("error_code") and 0) or 4))


def _one_range(key: int, low: int, high: int) -> list[object]:
    return [m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)]


# Replacements of the last step of SCRAM-SHA-256, which is mechanism 1.
TOKENS: dict[str, bytes] = {
    "nothing": token(b""),
    "null": b"\0\0" + struct.pack(">hi", -1, -1) + bytes(8),
    "bytes that are not UTF-8": token(b"\xff\xfe"),
    "no pairs": token(b"a,b,c"),
    "no nonce": token(b"s=AA==,i=4096"),
    "another nonce": token(b"r=x,s=AA==,i=4096"),
    "a salt that is not base64": token(b"r=" + NONCE + b",s=A,i=4096"),
    "zero iterations": token(b"r=" + NONCE + b",s=AA==,i=0"),
    "an excessive number of iterations": token(b"r=" + NONCE + b",s=AA==,i=9999999999"),
    "a negative number of iterations": token(b"r=" + NONCE + b",s=AA==,i=-1"),
    "a number of iterations in words": token(b"r=" + NONCE + b",s=AA==,i=many"),
}
VERSIONS: dict[str, bytes] = {
    "no APIs": versions_answer(),
    "a negative version": versions_answer(error_code=35, api_keys=_one_range(18, -9, -5)),
    "an old version on every request": versions_answer(error_code=35, api_keys=_one_range(18, 0, 4)),
    "an unknown error": versions_answer(error_code=9_999),
    "negative Metadata versions": versions_answer(api_keys=_one_range(3, -9, -5)),
    "Metadata versions far ahead": versions_answer(api_keys=_one_range(3, 32_000, 32_767)),
    "a reversed range of Metadata versions": versions_answer(api_keys=_one_range(3, 32_767, -32_768)),
}


@pytest.mark.parametrize("name", TOKENS)
def test_broker_failing_authentication_is_reported_with_a_package_error(name: str) -> None:
    good = handshake_seeds()[1]
    versions, handshake = parts(good[1:])[:2]
    with pytest.raises(EosKafkaError) as caught:
        feed_handshake(b"\x01" + parted([versions, handshake, TOKENS[name]]))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("mechanism", range(len(MECHANISMS)))
def test_invalid_api_versions_are_reported_with_a_package_error(name: str, mechanism: int) -> None:
    with pytest.raises(EosKafkaError):
        feed_handshake(bytes([mechanism]) + parted([VERSIONS[name]]))


# For the other requests an empty response is a valid result.
MUST_BE_ANSWERED = frozenset(
    {
        "create",
        "configs",
        "coordinators",
        "offsets",
        "transactions 1",
        "transactions 2",
        "describe",
        "group",
        "marker",
    }
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_empty_response_is_not_success(question: str) -> None:
    heard = {each[:2]: each.content for each in conversations()[question]}

    def answer(request: bytes) -> bytes | None:
        api_key, version, correlation_id = HEADER.unpack_from(request)
        if api_key in (API_VERSIONS, METADATA):
            return framed(correlation_id, heard[api_key, version])
        return framed(correlation_id, emptied(api_key, version))

    must = question in MUST_BE_ANSWERED
    with client_of(answer) as client, pytest.raises(EosKafkaError) if must else contextlib.suppress(EosKafkaError):
        QUESTIONS[question](client)


@pytest.mark.parametrize(
    ("question", "api"),
    [
        ("transactions 1", "AddPartitionsToTxn"),
        ("transactions 2", "TxnOffsetCommit"),
        ("group", "OffsetCommit"),
        ("group", "OffsetFetch"),
        ("create", "CreateTopics"),
        ("configs", "DescribeConfigs"),
        ("marker", "WriteTxnMarkers"),
        ("transactions 2", "Produce"),
        ("records", "OffsetForLeaderEpoch"),
        ("coordinators", "FindCoordinator"),
    ],
)
def test_response_without_the_requested_items_is_not_success(question: str, api: str) -> None:
    left_out = next(key for key, each in SERVED.items() if each.name == api)
    heard = {each[:2]: each.content for each in conversations()[question]}
    assert left_out in {key for key, _ in heard}

    def answer(request: bytes) -> bytes | None:
        api_key, version, correlation_id = HEADER.unpack_from(request)
        content = heard.get((api_key, version))
        if api_key == left_out or content is None:
            content = emptied(api_key, version)
        return framed(correlation_id, content)

    with client_of(answer) as client, pytest.raises(EosKafkaError):
        QUESTIONS[question](client)


def emptied(api_key: int, version: int) -> bytes:
    response = SERVED[api_key].response
    fields = {
        field.name: []
        for field in response._struct._fields
        if (field.is_array() or field.is_struct_array()) and field.for_version_q(version)
    }
    flexible = response.flexible_version_q(version)
    return (b"\0" if flexible else b"") + bytes(response(version=version, **fields).encode(version=version))


def test_spin_detector_detects_a_client_that_never_waits() -> None:
    with client_of(lambda request: None) as client, pytest.raises(Spinning):
        while True:
            client.deadline()
