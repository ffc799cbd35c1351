"""Fuzz targets for a client's reading of responses: one response to the decoder, or one within a conversation.

A conversation with the broker of this project is recorded once and then replayed to a client that gets arbitrary bytes
instead of one of the responses.
"""

import functools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from broker_core.broker.apis import SERVED
from broker_core.broker.connection import Connection
from broker_core.types import Frame, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.layout import check_body
from spark_eos.client.response_reader import ResponseReader
from tests.fuzz.memory_network import Answer, client_of
from tests.fuzz.questions import ALSO_DECLARED, QUESTIONS, TOPIC
from tests.support.broker_core.full_requests import full_requests
from tests.support.direct import DirectClient, direct_cluster

_SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
_STEP_MS, _MOST_STEPS = 20, 100
_BY_NAME = 11
_MAX_FRAME_BYTES = 1 << 20
HEADER = struct.Struct(">hhi")
_WHOLE_FRAME = 0x80
_LARGEST_PLACE = 0x7F


class _Heard(NamedTuple):
    """A recorded response: its API and version, and its bytes after the correlation id."""

    api_key: int
    version: int
    content: bytes


class _Pipe:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, frame: Frame) -> None:
        self.sent.append(b"".join(frame))

    def close(self) -> None:
        """Do nothing."""


def framed(correlation_id: int, content: bytes) -> bytes:
    """Return a response with its length and correlation id in front."""
    return struct.pack(">ii", 4 + len(content), correlation_id) + content


def _listening(heard: list[_Heard]) -> Answer:
    """Return a function that answers with a broker of this project and records the responses."""
    cluster = direct_cluster(settings=_SETTINGS)
    cluster.controller.create_topic(TOPIC, 2)
    writer = DirectClient(cluster)
    for _ in range(2):
        writer.ask(full_requests(_BY_NAME, UUID(int=0))["Produce"](), _BY_NAME)
        # With a later leader the client looks up the end offset of the previous leader epoch.
        cluster.controller.move_leader(TopicPartition(TOPIC, 0), 1)
    now_ms = cluster.now_ms

    def answer(request: bytes) -> bytes | None:
        nonlocal now_ms
        pipe = _Pipe()
        connection = Connection(cluster.brokers[1], pipe, "fuzz")
        connection.receive(struct.pack(">i", len(request)) + request, now_ms)
        for _ in range(_MOST_STEPS):
            now_ms += _STEP_MS
            cluster.settle(now_ms)
            if pipe.sent:
                break
        (data,) = pipe.sent
        api_key, version, _ = HEADER.unpack_from(request)
        heard.append(_Heard(api_key, version, data[8:]))
        return data

    return answer


@functools.cache
def conversations() -> dict[str, list[_Heard]]:
    """Record every conversation with a valid broker."""
    found: dict[str, list[_Heard]] = {}
    for name, ask in QUESTIONS.items():
        heard: list[_Heard] = []
        with client_of(_listening(heard)) as client:
            ask(client)
        found[name] = heard
    return found


def conversation_seeds() -> list[bytes]:
    """Return every response of every conversation, with the numbers of the conversation and the response in front."""
    return [
        bytes([number, place]) + each.content
        for number, heard in enumerate(conversations().values())
        for place, each in enumerate(heard[:_LARGEST_PLACE])
    ]


def _replaying(heard: Sequence[_Heard], place: int, data: bytes, *, is_whole: bool) -> Answer:
    """Return a function that replays the responses except for one.

    Unrecorded requests get no response. The one response is `data` each time that its request is repeated.
    """
    position = 0
    attacked = heard[place % len(heard)][:2]
    before = sum(each[:2] == attacked for each in heard[: place % len(heard)])
    asked = 0

    def answer(request: bytes) -> bytes | None:
        nonlocal position, asked
        api_key, version, correlation_id = HEADER.unpack_from(request)
        if (api_key, version) == attacked:
            asked += 1
            if asked > before:
                return data if is_whole else framed(correlation_id, data)
        for step in range(len(heard)):
            each = heard[(position + step) % len(heard)]
            if each[:2] == (api_key, version):
                position = (position + step + 1) % len(heard)
                return framed(correlation_id, each.content)
        return None

    return answer


def feed_conversation(data: bytes) -> None:
    """Replace one of a client's responses by the input, and check that the client raises only declared errors.

    The first byte selects the conversation, the second one the response and whether the input is the whole frame.
    """
    if len(data) < 2:
        return
    name = list(QUESTIONS)[data[0] % len(QUESTIONS)]
    is_whole, place = bool(data[1] & _WHOLE_FRAME), data[1] & _LARGEST_PLACE
    answer = _replaying(conversations()[name], place, data[2:], is_whole=is_whole)
    with client_of(answer) as client:
        try:
            QUESTIONS[name](client)
        except ALSO_DECLARED:
            return


@functools.cache
def answered() -> list[Any]:
    """Return the requests that a client may send, in every version."""
    apis = {each.api_key for heard in conversations().values() for each in heard} | {
        m.SaslHandshakeRequest.API_KEY,
        m.SaslAuthenticateRequest.API_KEY,
    }
    return [
        (SERVED[key], version)
        for key in sorted(apis)
        for version in range(SERVED[key].min_version, SERVED[key].max_version + 1)
    ]


def answer_seeds() -> list[bytes]:
    """Return valid responses, with the number of their API and version in front."""
    places = {(api.key, version): number for number, (api, version) in enumerate(answered())}
    heard = dict.fromkeys(each for heard in conversations().values() for each in heard)
    return [bytes([places[each[:2]]]) + framed(1, each.content) for each in heard if each[:2] in places]


def ask_reader(reader: ResponseReader, api: Any, version: int) -> None:
    """Make a reader expect a response."""
    request = api.request()
    request.API_VERSION = version
    request.with_header(1, "fuzz")
    reader.in_flight_requests.append(request.header)


def feed_answer(data: bytes) -> None:
    """Decode the bytes of one connection in two pieces; the first byte selects the request."""
    if not data:
        return
    api, version = answered()[data[0] % len(answered())]
    reader = ResponseReader(client_id="fuzz", receive_message_max_bytes=_MAX_FRAME_BYTES)
    ask_reader(reader, api, version)
    cut = 1 + len(data) // 2
    answers = [*reader.receive_bytes(data[1:cut]), *reader.receive_bytes(data[cut:])]
    for _, answer in answers:
        answer._header = None
        # An accepted response can be encoded again, so no field is null that must not be.
        check_body(api.response, answer.version, memoryview(bytes(answer.encode(version=answer.version))))
