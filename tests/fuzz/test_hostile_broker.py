"""Brokers with arbitrary responses: a client fails in time with its own errors, and other clients are not affected."""

import contextlib
import gc
import itertools
import socket
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.net.inet import KafkaNetSocket

from broker_core import EmbeddedBroker
from broker_core.types import IsolationLevel, TopicPartition
from broker_core.wire import messages as m
from spark_eos.client.inspection import describe_transactions, list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import metadata_request
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.client.topics import create_topic
from spark_eos.client.transaction_admin import write_end_marker
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import EosKafkaError, UnansweredError, UnreachableError
from spark_eos.options.client import ClientOptions
from spark_eos.options.positions import LATEST
from tests.fuzz.answers import framed
from tests.fuzz.hostile_broker import API_VERSIONS, METADATA, Attack, HostileBroker, drip, flood, metadata_content
from tests.support.waiting import wait_until

_API_TIMEOUT_MS = 400
_CALM_MS = 10_000
# Long enough for a response on a busy machine, where all of it is used up by retries.
_RETRIED_MS = 2_500
# The machine may be busy; the tests detect a client that never ends.
_LATE_S = 20
# A client with backoff sends some tens of requests within its timeout, one that spins sends thousands.
_MOST_REQUESTS = 200
_MOST_MEMORY_BYTES = 48 << 20
_MOST_TRIES = 20
_LIST_TRANSACTIONS, _DESCRIBE_PRODUCERS, _WRITE_MARKERS = 66, 61, 27


def options(address: str) -> ClientOptions:
    return ClientOptions((address,), api_timeout_ms=_API_TIMEOUT_MS, request_timeout_ms=_API_TIMEOUT_MS)


@contextlib.contextmanager
def connected(hostile: HostileBroker, api_timeout_ms: int = _API_TIMEOUT_MS) -> Iterator[KafkaClient]:
    """Connect with the default timeout, for a busy machine, and then set a short one."""
    with KafkaClient(ClientOptions((hostile.address,))) as client:
        client.connect()
        client.options = replace(client.options, api_timeout_ms=api_timeout_ms)
        yield client


def _body(content: bytes) -> Attack:
    return lambda key, version, correlation_id: framed(correlation_id, content)


def _frame(length: int) -> Attack:
    return lambda key, version, correlation_id: struct.pack(">ii", length, correlation_id)


def _cut_honest(key: int, version: int, correlation_id: int) -> bytes:
    content = metadata_content(9, version)
    return framed(correlation_id, content[: len(content) // 2])


ATTACKS: dict[str, Attack] = {
    "a frame of 2 GiB": _frame(2**31 - 1),
    "a frame of a negative length": _frame(-1),
    "a frame of length -2^31": _frame(-(2**31)),
    "an empty frame": lambda *_: struct.pack(">i", 0),
    "a frame too short for a header": lambda *_: struct.pack(">ih", 2, 0),
    "a frame longer than the data": _frame(1 << 20),
    "a frame that arrives byte by byte": lambda *_: drip,
    "an answer without a body": _body(b""),
    "the answer to another request": lambda key, version, correlation_id: framed(correlation_id + 1, b"\0" * 64),
    "two answers to one request": lambda key, version, correlation_id: framed(correlation_id, b"\0" * 64) * 2,
    "a truncated answer": _cut_honest,
    "zeros": _body(b"\0" * 1_000),
    "ones": _body(b"\xff" * 1_000),
    "an endless length": _body(b"\0" * 5 + b"\xff" * 100_000),
    "an HTTP response": lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a TLS alert": lambda *_: b"\x15\x03\x03\x00\x02\x02\x46",
    "no answer": lambda *_: None,
    "a closed connection": lambda *_: lambda accepted: accepted.close(),
    "endless bytes": lambda *_: flood,
}


QUESTIONS: dict[str, tuple[int, Callable[[KafkaClient], object]]] = {
    "metadata": (METADATA, lambda client: client.require_topics(["t"])),
    "versions": (API_VERSIONS, lambda client: client.transaction_version()),
    "coordinator": (10, lambda client: describe_transactions(client, ["id"])),
    "offsets": (
        2,
        lambda client: OffsetLookup(client).offsets({TopicPartition("t", 0): LATEST}, IsolationLevel.READ_COMMITTED),
    ),
    "producer id": (
        22,
        lambda client: init_producer_id(client, "id", transaction_timeout_ms=1_000),
    ),
    "description": (65, lambda client: describe_transactions(client, ["id"])),
    "listing": (66, lambda client: list_transactions(client)),
    "producers": (61, lambda client: ProducerScan(client, 1).run([TopicPartition("t", 0)])),
    "new topic": (19, lambda client: create_topic(client, "new")),
}


@pytest.fixture(scope="module")
def good_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        yield broker


def ends_with(ask: Callable[[], object]) -> EosKafkaError:
    """Return the package's error that the request ends with, within the limit."""
    began = time.monotonic()
    with pytest.raises(EosKafkaError) as caught:
        ask()
    assert time.monotonic() - began < _LATE_S
    return caught.value


@pytest.mark.parametrize("name", ATTACKS)
def test_malformed_responses_fail_only_the_affected_request(name: str, good_broker: EmbeddedBroker) -> None:
    with KafkaClient(ClientOptions((good_broker.bootstrap_servers,))) as other, HostileBroker(ATTACKS[name]) as hostile:
        other.require_topics(["t"])
        with KafkaClient(options(hostile.address)) as client:
            error = ends_with(client.connect)
            assert isinstance(error, UnreachableError)
            assert hostile.address in str(error)
            other.require_topics(["t"])
        assert hostile.requests < _MOST_REQUESTS
        wait_until(lambda: hostile.open == 0, "the client has closed all connections", deadline_s=_LATE_S)
        other.require_topics(["t"])


def test_socket_that_connects_too_late_is_closed_with_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect_late(_: object, net: Any, sock: socket.socket, address: Any, timeout_at: float) -> None:
        sock.connect_ex(address)
        await net.wait_write(sock, timeout_at=timeout_at)
        raise KafkaTimeoutError("Connection timed out")

    monkeypatch.setattr(KafkaNetSocket, "sock_connect", connect_late)
    gc.disable()
    try:
        with HostileBroker(ATTACKS["no answer"]) as hostile:
            with KafkaClient(options(hostile.address)) as client:
                assert isinstance(ends_with(client.connect), UnreachableError)
                wait_until(lambda: hostile.open > 0, "a connection is accepted", deadline_s=_LATE_S)
            wait_until(lambda: hostile.open == 0, "the client has closed all connections", deadline_s=_LATE_S)
    finally:
        gc.enable()


BAD_BODIES = ("an answer without a body", "ones", "an endless length", "a frame of 2 GiB")


# Every request is answered badly in one way, and one of them in every way.
@pytest.mark.parametrize(
    ("question", "attack"),
    dict.fromkeys(
        [*zip(QUESTIONS, itertools.cycle(BAD_BODIES), strict=False), *(("listing", each) for each in BAD_BODIES)]
    ),
)
def test_request_with_malformed_responses_ends_in_time(question: str, attack: str) -> None:
    attacked, ask = QUESTIONS[question]
    at_once = attacked in (API_VERSIONS, METADATA)
    with HostileBroker(ATTACKS[attack], attacked=attacked) as hostile:
        with KafkaClient(options(hostile.address)) if at_once else connected(hostile) as client:
            tries = 0
            while not hostile.asked[attacked]:
                error = ends_with(lambda: ask(client))
                tries += 1
                assert len(str(error)) < 2_000
                assert tries < _MOST_TRIES
            assert hostile.requests < _MOST_REQUESTS * tries
        wait_until(lambda: hostile.open == 0, "the client has closed all connections", deadline_s=_LATE_S)


@pytest.mark.parametrize("how", ["extra answers", "bytes that are not an answer"])
def test_connection_with_an_unexpected_response_is_closed(how: str) -> None:
    content = {"extra answers": b"\0" * 64, "bytes that are not an answer": b"\xff" * 64}[how]
    attack = _body(content)
    with HostileBroker(attack, attacked=_LIST_TRANSACTIONS) as hostile, connected(hostile, _CALM_MS) as client:
        client.require_topics(["t"])
        held = hostile.open
        pending = client.start(1, list_request(), client.deadline())
        client.transport.wait([pending], client.deadline())
        with pytest.raises(UnansweredError, match="malformed response"):
            client.outcome(pending, list_request(), 1)
        wait_until(lambda: hostile.open < held, "the connection is closed", deadline_s=_LATE_S)


def list_request() -> m.ListTransactionsRequest:
    return m.ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1)


@pytest.mark.parametrize("name", ["a frame of 2 GiB", "a frame longer than the data", "endless bytes"])
def test_hostile_broker_costs_little_memory(name: str) -> None:
    def nearly_the_longest(key: int, version: int, correlation_id: int) -> bytes:
        return struct.pack(">ii", 255 << 20, correlation_id)

    attack = nearly_the_longest if "longer" in name else ATTACKS[name]
    with HostileBroker(attack) as hostile, KafkaClient(options(hostile.address)) as client:
        tracemalloc.start()
        try:
            ends_with(client.connect)
            assert tracemalloc.get_traced_memory()[1] < _MOST_MEMORY_BYTES
        finally:
            tracemalloc.stop()


def test_excessive_throttle_time_is_not_waited_for() -> None:
    def throttle(key: int, version: int, correlation_id: int) -> bytes:
        content = bytearray(metadata_content(hostile.port, version))
        content[1:5] = struct.pack(">i", 2**31 - 1)
        return framed(correlation_id, bytes(content))

    with HostileBroker(throttle, attacked=METADATA) as hostile, connected(hostile) as client:
        client.metadata(["t"], timeout_ms=_CALM_MS)
        # Either connection may be paused when the listing begins, which asks for the brokers first.
        assert isinstance(ends_with(lambda: QUESTIONS["listing"][1](client)), UnansweredError | UnreachableError)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 2**31 - 1),
        ("127.0.0.1", -1),
        ("127.0.0.1", 0),
        ("", 9092),
        ("a" * 300, 9092),
        ("a..b", 9092),
        ("nul\0", 9092),
        ("\u2603" * 70, 9092),
    ],
)
def test_invalid_address_is_reported_with_a_package_error(host: str, port: int) -> None:
    def misled(key: int, version: int, correlation_id: int) -> bytes:
        return framed(correlation_id, metadata_content(port, version, host=host))

    with HostileBroker(misled, attacked=METADATA) as hostile, connected(hostile) as client:
        # Any broker may be a bootstrap server, whose address is good.
        with suppress(EosKafkaError):
            client.metadata(["t"])
        ends_with(lambda: client.send(1, metadata_request(["t"])))


@pytest.mark.parametrize("attack", BAD_BODIES)
def test_admin_command_reports_hostile_brokers_with_a_package_error(attack: str) -> None:
    with HostileBroker(ATTACKS[attack], attacked=_DESCRIBE_PRODUCERS) as hostile:
        with connected(hostile, _RETRIED_MS) as client:
            error = ends_with(lambda: QUESTIONS["producers"][1](client))
            assert "malformed response" in str(error)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("attack", ["the answer to another request", "ones", "an answer without a body"])
def test_marker_with_a_malformed_response_is_not_written_twice(attack: str, commit: bool) -> None:
    with HostileBroker(ATTACKS[attack], attacked=_WRITE_MARKERS) as hostile:
        with connected(hostile, _CALM_MS) as client:
            error = ends_with(lambda: write_end_marker(client, TopicPartition("t", 0), 77, 0, 0, commit=commit))
            assert isinstance(error, UnansweredError)
            assert "before you try again" in str(error)
            assert hostile.asked[_WRITE_MARKERS] == 1
