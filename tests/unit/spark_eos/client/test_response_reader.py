"""The readers of large responses, compared with kafka-python's own: every version, every cut and every frame piece."""

import struct
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchResponse

from broker_core.types import AbortedTransaction, TopicPartition
from spark_eos.client.allowed_operations import group_operations
from spark_eos.client.group_offsets import fetch_offsets_from
from spark_eos.client.needed_apis import ask_brokers
from spark_eos.client.response_decoders import UncopiedFetchRequest
from spark_eos.client.response_reader import MalformedResponse, ResponseReader, _receive
from spark_eos.client.topics import create_topic, describe_topic_config
from spark_eos.client.transaction_admin import write_end_marker
from spark_eos.errors import AbortableError, UnansweredError
from tests.support.memory import resident_mib

RECORDS = bytes(range(256)) * 5


def fetch_answer(version: int, records: bytes | None, aborted: list[tuple[int, int]] | None) -> bytes:
    topic_form = FetchResponse.FetchableTopicResponse
    part_form = topic_form.PartitionData
    transactions = None if aborted is None else [
        part_form.AbortedTransaction(version=version, producer_id=producer_id, first_offset=first)
        for producer_id, first in aborted
    ]  # fmt: skip
    partition = part_form(version=version, partition_index=3, error_code=0, high_watermark=20, last_stable_offset=10,
                          log_start_offset=1, aborted_transactions=transactions, records=records)  # fmt: skip
    topic = topic_form(version=version, topic="t", topic_id=UUID(int=7), partitions=[partition])
    response = FetchResponse(version=version, throttle_time_ms=4, error_code=0, session_id=0, responses=[topic])
    return bytes(response.encode())


def a_request(version: int) -> UncopiedFetchRequest:
    request = UncopiedFetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1, isolation_level=1, session_id=0,
                             session_epoch=-1, topics=[], forgotten_topics_data=[])  # fmt: skip
    request.API_VERSION = version
    return request


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize(("records", "aborted"), [(RECORDS, [(5, 6), (7, 2**40)]), (b"", []), (None, None)])
def test_fetch_response_is_read_in_every_version(
    version: int, records: bytes | None, aborted: list[tuple[int, int]] | None
) -> None:
    body = memoryview(fetch_answer(version, records, aborted))
    read = a_request(version).read_response(version, body)
    assert (read.throttle_time_ms, read.error_code) == (4, 0)
    partition = read.responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 20, 10)
    assert bytes(partition.records or b"") == (records or b"")
    found = [AbortedTransaction(each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()]
    assert found == [AbortedTransaction(*each) for each in aborted or ()]


@pytest.mark.parametrize("version", [12, 17])
def test_truncated_fetch_response_is_refused(version: int) -> None:
    content = fetch_answer(version, RECORDS, [(5, 6)])
    for size in [*range(100), *range(len(content) - 20, len(content))]:
        with pytest.raises(MalformedResponse):
            asked(version).receive_bytes(framed(version, content[:size]))
    ((number, read),) = asked(version).receive_bytes(framed(version, content))
    assert number == 1
    assert bytes(read.responses[0].partitions[0].records) == RECORDS


def asked(version: int, times: int = 1) -> ResponseReader:
    """Return a reader that waits for responses to fetches."""
    reader = ResponseReader(client_id="test", receive_message_max_bytes=1 << 28)
    for _ in range(times):
        reader.send_request(a_request(version))
    return reader


def framed(version: int, content: bytes, number: int = 1) -> bytes:
    header = struct.pack(">i", number) + (b"\0" if version >= 12 else b"")
    return struct.pack(">i", len(header) + len(content)) + header + content


def through_a_socket(reader: ResponseReader, data: bytes, piece_bytes: Callable[[int], int]) -> list[tuple[int, Any]]:
    """Feed bytes to a reader from a socket that has a given number of bytes at a time."""
    left = memoryview(data)
    answers: list[tuple[int, Any]] = []

    class Sock:
        has_bytes = 0

        def recv(self, size_bytes: int) -> bytes:
            space = bytearray(size_bytes)
            return bytes(space[: self.recv_into(memoryview(space))])

        def recv_into(self, space: memoryview) -> int:
            nonlocal left
            if not self.has_bytes:
                raise BlockingIOError
            size_bytes = min(len(space), self.has_bytes, len(left))
            space[:size_bytes] = left[:size_bytes]
            left = left[size_bytes:]
            self.has_bytes -= size_bytes
            return size_bytes

    sock = Sock()
    transport = SimpleNamespace(_sock=sock)
    turn = 0
    while left or sock.has_bytes:
        if not sock.has_bytes:
            sock.has_bytes = min(piece_bytes(turn), len(left))
            turn += 1
        received, error = _receive(transport, reader.frame)
        assert error is None
        answers += reader.receive_bytes(received)
    return answers


@pytest.mark.parametrize(
    "piece_bytes",
    [
        lambda turn: 1 if turn < 20 else 1 << 22,
        lambda turn: 70_000,
        lambda turn: 1 << 30,
        lambda turn: 1 + turn % 65_537,
    ],
)
def test_response_is_the_same_for_any_split_of_its_bytes(piece_bytes: Callable[[int], int]) -> None:
    sizes = [10, 70_000, 65_536, 12_000_000, 0, 65_000, 6_000_000, 3]
    contents = [bytes([1 + number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(framed(17, fetch_answer(17, content, None), number) for number, content in enumerate(contents, 1))
    answers = through_a_socket(asked(17, len(sizes)), stream, piece_bytes)
    assert [number for number, _ in answers] == list(range(1, 1 + len(sizes)))
    assert [bytes(read.responses[0].partitions[0].records) for _, read in answers] == contents


@pytest.mark.parametrize("has_numpy", [True, False])
def test_large_responses_are_accepted_as_bytes(has_numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_numpy:
        # The operator's command is installed without it.
        monkeypatch.setitem(sys.modules, "numpy", None)
    content = fetch_answer(17, bytes(300_000), None)
    data = framed(17, content, 1) + framed(17, content, 2)
    reader = asked(17, 2)
    pieces = [data[start : start + 50_001] for start in range(0, len(data), 50_001)]
    answers = [each for piece in pieces for each in reader.receive_bytes(piece)]
    assert [number for number, _ in answers] == [1, 2]


def test_large_frames_take_memory_only_as_their_bytes_arrive() -> None:
    before = resident_mib("VmRSS")
    readers = [asked(17) for _ in range(40)]
    for reader in readers:
        assert reader.receive_bytes(struct.pack(">i", 1 << 28) + b"x") == []
    # A page of the largest kind for each.
    assert resident_mib("VmRSS") - before < 2 * len(readers) + 20


def test_false_length_allocates_at_most_one_step_of_memory() -> None:
    reader = asked(17)
    assert reader.receive_bytes(struct.pack(">i", 1 << 28) + b"x") == []
    assert len(reader.frame._data) <= 5 << 20


def parts(field: str, *names: Any, **more: Any) -> list[SimpleNamespace]:
    return [SimpleNamespace(**{field: name, "error_code": 0, "error_message": "", **more}) for name in names]


def asking(answer: Any) -> Any:
    """Return a client whose brokers all give one answer."""
    topics = {"t": SimpleNamespace(error_code=0, partitions={0: SimpleNamespace(leader=1)})}
    versions = SimpleNamespace(error_code=0, api_keys=[SimpleNamespace(api_key=24, max_version=5)])
    return SimpleNamespace(
        options=SimpleNamespace(request_timeout_ms=1),
        runtime=SimpleNamespace(clock=SimpleNamespace(monotonic=float)),
        deadline=lambda _=None: 0.0,
        remaining_ms=lambda _: 1.0,
        attempts=lambda _: iter([0]),
        find_coordinator=lambda *_: 1,
        metadata=lambda _: topics,
        send=lambda *_, **__: answer,
        send_all=lambda *_, **__: [versions, answer],
    )


def configs(name: str) -> Any:
    """Answer DescribeConfigs for one or two resources; the setting is the name."""
    return SimpleNamespace(
        results=[
            part
            for each in name.split()
            for part in parts("resource_name", each, configs=[SimpleNamespace(name="is", value=each)])
        ]
    )


def written(topic_names: str) -> Any:
    """Answer WriteTxnMarkers for another producer, with an error, and for the one that was asked about."""
    markers = []
    for producer_id, code in ((8, 87), (7, 0)):
        partitions = parts("partition_index", 1, error_code=87) + parts("partition_index", 0, error_code=code)
        topics = [SimpleNamespace(name=each, partitions=partitions) for each in topic_names.split()]
        markers.append(SimpleNamespace(producer_id=producer_id, topics=topics))
    return SimpleNamespace(markers=markers)


def groups(names: str) -> Any:
    """Answer DescribeGroups and OffsetFetch for groups; the name of one is the topic of its offsets."""
    offset = SimpleNamespace(partition_index=0, error_code=0, committed_offset=5, metadata="", committed_leader_epoch=1)
    found = []
    for name in names.split():
        topics = [SimpleNamespace(name=name, partitions=[offset])]
        found += parts("group_id", name, topics=topics, authorized_operations={len(name)})
    return SimpleNamespace(API_VERSION=8, groups=found)


@pytest.mark.parametrize(("ask", "answers", "found"), [
    (lambda client: describe_topic_config(client, "t"), configs, {"is": "t"}),
    (lambda client: ask_brokers(client, [1], [], timeout_ms=1)[1].settings, configs, {"is": "1"}),
    (lambda client: create_topic(client, "t"), lambda names: SimpleNamespace(topics=parts("name", *names.split())),
     True),
    (lambda client: group_operations(client, "t"), groups, {1}),
    (lambda client: {each.topic for each in fetch_offsets_from(client, 1, "t")}, groups, {"t"}),
    (lambda client: write_end_marker(client, TopicPartition("t", 0), 7, 0, 0, commit=False), written, None),
], ids=["config", "broker", "created", "group", "offsets", "marker"])  # fmt: skip
def test_item_that_was_asked_for_is_taken(ask: Callable[[Any], Any], answers: Callable[[str], Any], found: Any) -> None:
    assert ask(asking(answers("other t 1"))) == found
    with pytest.raises((UnansweredError, AbortableError, KeyError), match="requested item|NETWORK|1"):
        ask(asking(answers("other")))
