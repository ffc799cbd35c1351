"""The replay of a recording: the same requests in the same order, to any server, and what it answers differently."""

import os
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from broker_core.broker.apis import SERVED
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.recording.recordings import Entry, Header, read_recording
from broker_core.features.recording.replayed_ids import ReplayedIds
from broker_core.records.header import iter_headers
from broker_core.server.clock import monotonic_s
from broker_core.types import LAST_PORT, check_number
from broker_core.wire import messages as m
from broker_core.wire.error_responses import error_codes
from broker_core.wire.framing import FrameReader, MalformedFrame, Request, UnsupportedVersion, decode_request
from broker_core.wire.local import decode_response, encode_request

_LENGTH = struct.Struct(">i")
_LONGEST_FRAME_BYTES = 2**31 - 1
# How long a request may be blocked by a later one, such as a Fetch by a Produce, before the later one is sent.
_GRACE_S = 0.02
_RETRY_S = 0.05
_TAKEN_UP = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
# Clients repeat a request after these errors, which mean that the server is not ready for it yet.
_NOT_READY = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
# What a server gives out or is, and times.
_NOT_COMPARED = frozenset(
    {
        "producer_id",
        "producer_epoch",
        "member_id",
        "leader",
        "generation_id",
        "generation_id_or_member_epoch",
        "member_epoch",
        "session_id",
        "topic_id",
        "throttle_time_ms",
        "log_append_time_ms",
        "host",
        "port",
        "rack",
        "node_id",
        "leader_id",
        "controller_id",
        "cluster_id",
        "replica_nodes",
        "isr_nodes",
        "offline_replicas",
        "finalized_features_epoch",
    }
)


class AnswerDifference(NamedTuple):
    """One field of an answer that differs from the recorded answer.

    `line` is the line of the request in the file; `path` has no indexes, and is empty for the whole answer.
    """

    line: int
    api: str
    version: int
    path: str
    recorded: Any
    new: Any

    def __str__(self) -> str:
        where = f"line {self.line}, {self.api} v{self.version}: {self.path or 'the answer'}"
        return f"{where} was {self.recorded!r}, is {self.new!r}"


def replay(path: str | os.PathLike[str], bootstrap_servers: str, *, deadline_s: float = 10) -> list[AnswerDifference]:
    """Send the requests of a recording to a server, and return how its answers differ from those recorded.

    >>> with EmbeddedBroker(topics={"in": 1}) as kafka, kafka.recording("requests.jsonl"):
    ...     run_clients(kafka.bootstrap_servers)
    >>> with EmbeddedBroker() as kafka:
    ...     replay("requests.jsonl", kafka.bootstrap_servers)
    []

    Topics that existed when the recording began are created if they are missing. The connections are plain and without
    authentication; SaslHandshake and requests that were left out are not sent.

    Args:
        path: The file that `EmbeddedBroker.recording` wrote.
        bootstrap_servers: Addresses of the server, which has as many brokers as the recorded one.
        deadline_s: The seconds to wait for each answer, and for a server to be ready for a request.

    Raises:
        ValueError: The file is damaged or has no request, the server has fewer brokers, or its address is not
            host:port.
        OSError: The file cannot be read, or the server cannot be reached.
        TypeError: An argument is of another type; a broker, for example, has the property `bootstrap_servers`.
    """
    if not isinstance(bootstrap_servers, str):
        raise TypeError(
            f"bootstrap_servers={bootstrap_servers!r}; expected addresses as str, such as kafka.bootstrap_servers"
        )
    check_number("deadline_s", deadline_s)
    header, entries = read_recording(path)
    run = _Replay(header, entries, deadline_s)
    try:
        run.prepare(bootstrap_servers)
        run.send_all()
    finally:
        run.close()
    return run.found


class _Line:
    """One connection to the server."""

    def __init__(self, address: tuple[str, int], deadline_s: float) -> None:
        self._socket = socket.create_connection(address, timeout=deadline_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._deadline_s = deadline_s
        self._received = FrameReader(_LONGEST_FRAME_BYTES, min_frame_bytes=0)
        self.asked: deque[_Asked] = deque()

    def send(self, frame: bytes) -> None:
        self._socket.settimeout(self._deadline_s)
        self._socket.sendall(frame)

    def frame(self, wait_s: float) -> bytes | None:
        """Return the next frame, without its length, or None after the given time."""
        until = monotonic_s() + wait_s
        while (frame := self._received.cut()) is None:
            left = until - monotonic_s()
            if left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                return None
            if not data:
                raise ConnectionError("the server closed the connection")
            self._received.keep(data)
        return frame

    def close(self) -> None:
        self._socket.close()


def _connected(bootstrap_servers: str, deadline_s: float) -> _Line:
    host, _, port = bootstrap_servers.split(",")[0].strip().rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise ValueError(f"bootstrap_servers={bootstrap_servers!r}: expected host:port")
    try:
        return _Line((host.strip("[]"), int(port)), deadline_s)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(error.errno, f"the server {host}:{port} cannot be reached: {reason}") from error


class _Asked(NamedTuple):
    """A request whose answer was not read yet; `recorded` is None if none was recorded."""

    entry: Entry
    request: Request
    frame: bytes
    recorded: Entry | None


class _Replay:
    def __init__(self, header: Header, entries: list[Entry], deadline_s: float) -> None:
        self._header = header
        self._entries = entries
        self._deadline_s = deadline_s
        self._answers = dict(_answers(entries))
        self._ids = ReplayedIds()
        self._lines: dict[int, _Line] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self.found: list[AnswerDifference] = []

    def prepare(self, bootstrap_servers: str) -> None:
        first = _connected(bootstrap_servers, self._deadline_s)
        try:
            nodes = sorted(self._ask(first, m.MetadataRequest(topics=[]), 1).brokers, key=lambda node: node.node_id)
            if len(nodes) < len(self._header.brokers):
                raise ValueError(f"the server has {len(nodes)} brokers, the recorded one {len(self._header.brokers)}")
            self._addresses = {
                recorded: (node.host, node.port) for recorded, node in zip(self._header.brokers, nodes, strict=False)
            }
            self._create_topics(first)
        finally:
            first.close()

    def _create_topics(self, line: _Line) -> None:
        topic = m.CreateTopicsRequest.CreatableTopic
        wanted = [
            topic(name=name, num_partitions=count, replication_factor=-1, assignments=[], configs=[])
            for name, count in self._header.topics.items()
        ]
        if not wanted:
            return
        request = m.CreateTopicsRequest(topics=wanted, timeout_ms=int(self._deadline_s * 1000), validate_only=False)
        for made in self._ask(line, request, 4).topics:
            if made.error_code not in _TAKEN_UP:
                raise KafkaError(ErrorCode(made.error_code), f"topic {made.name} cannot be created for the replay")

    def _ask(self, line: _Line, request: Any, version: int) -> Any:
        line.send(encode_request(request, version, "replay"))
        frame = line.frame(self._deadline_s)
        if frame is None:
            raise TimeoutError(f"the server has not answered within {self._deadline_s} s")
        return decode_response(request, _LENGTH.pack(len(frame)) + frame)

    def send_all(self) -> None:
        if all(each.kind != "request" for each in self._entries):
            raise ValueError(
                "the recording has no request, so no answer can differ: connect clients to the broker that records"
            )
        answered_at = {answer.line: request for request, answer in self._answers.items()}
        for entry in self._entries:
            if entry.kind == "request" and entry.api != "SaslHandshake":
                self._send(entry)
            elif entry.kind == "response" and entry.line in answered_at:
                self._wait_for(answered_at[entry.line], entry.connection, self._deadline_s)
            elif entry.kind == "closed" and entry.connection in self._lines:
                self._lines.pop(entry.connection).close()
        self.found.sort(key=lambda each: each.line)

    def _send(self, entry: Entry) -> None:
        try:
            request = decode_request(entry.frame, SERVED)
        except (MalformedFrame, UnsupportedVersion) as error:
            raise ValueError(f"line {entry.line} is damaged: {error}") from None
        recorded = self._answers.get(entry.line)
        frame = _LENGTH.pack(len(entry.frame)) + entry.frame
        if self._ids.rewrite(request.body):
            frame = encode_request(request.body, request.version, request.client_id, request.correlation_id)
        asked = _Asked(entry, request, frame, recorded)
        try:
            line = self._lines.get(entry.connection)
            if line is None:
                line = self._lines[entry.connection] = _Line(self._addresses[entry.broker], self._deadline_s)
            line.asked.append(asked)
            line.send(frame)
        except ConnectionError:
            self._lost(entry.connection)
            return
        self._wait_for(entry.line, entry.connection, _GRACE_S)

    def _wait_for(self, request_line: int, connection: int, wait_s: float) -> None:
        """Read answers until the answer to the request is read; a late one counts as missing after the deadline."""
        line = self._lines.get(connection)
        while line is not None and any(each.entry.line == request_line for each in line.asked):
            try:
                frame = line.frame(wait_s)
                if frame is not None:
                    self._take(line, frame)
            except ConnectionError:
                self._lost(connection)
                return
            if frame is None:
                if wait_s == self._deadline_s:
                    self._lost(connection)
                return

    def _lost(self, connection: int) -> None:
        line = self._lines.pop(connection, None)
        if line is not None:
            line.close()
            for asked in line.asked:
                if asked.recorded is not None:
                    self._differs(asked, "", "an answer", "no answer")

    def _take(self, line: _Line, frame: bytes) -> None:
        correlation_id = _LENGTH.unpack_from(frame)[0]
        while line.asked and line.asked[0].request.correlation_id != correlation_id:
            asked = line.asked.popleft()
            if asked.recorded is not None:
                self._differs(asked, "", "an answer", "no answer")
        if not line.asked:
            return
        asked = line.asked[0]
        if asked.recorded is None:
            line.asked.popleft()
            return
        recorded, new = _decoded(asked.request, asked.recorded.frame), _decoded(asked.request, frame)
        if len(line.asked) == 1 and asked.request.api.name != "Fetch":
            new = self._when_ready(line, asked, recorded, new)
        line.asked.popleft()
        if new is None or recorded is None:
            self._differs(asked, "", "an answer", "an answer that cannot be decoded")
            return
        one, other = recorded.to_dict(json=False), new.to_dict(json=False)
        self._ids.learn(one, other)
        for path, before, after in differing_fields(_comparable(one), _comparable(other)):
            self._differs(asked, path, before, after)

    def _when_ready(self, line: _Line, asked: _Asked, recorded: Any, new: Any) -> Any:
        """Send the request again while the server is not ready for it, as clients do, up to the deadline."""
        until = monotonic_s() + self._deadline_s
        version = asked.request.version
        known = set(error_codes(recorded, version)) if recorded is not None else set()
        while new is not None and (set(error_codes(new, version)) - known) & _NOT_READY and monotonic_s() < until:
            time.sleep(_RETRY_S)
            line.send(asked.frame)
            frame = line.frame(self._deadline_s)
            if frame is None:
                break
            new = _decoded(asked.request, frame)
        return new

    def _differs(self, asked: _Asked, path: str, recorded: Any, new: Any) -> None:
        entry = asked.entry
        self.found.append(AnswerDifference(entry.line, entry.api, entry.version, path, recorded, new))

    def close(self) -> None:
        for line in self._lines.values():
            line.close()


def _answers(entries: list[Entry]) -> Iterator[tuple[int, Entry]]:
    waiting: dict[tuple[int, int], int] = {}
    for entry in entries:
        key = entry.connection, entry.correlation_id
        if entry.kind == "request":
            waiting[key] = entry.line
        elif entry.kind == "response" and key in waiting:
            yield waiting.pop(key), entry


def _decoded(request: Request, frame: bytes) -> Any | None:
    try:
        return request.api.response.decode(frame, version=request.version, header=True)
    except Exception:
        return None


def _comparable(value: Any, name: str = "") -> Any:
    """Return an answer without what every server has its own of, its arrays in one order, its batches readable."""
    if name == "records":
        return [_batch(value, position, header) for position, header in iter_headers(value or b"")]
    if isinstance(value, dict):
        return {key: _comparable(item, key) for key, item in value.items() if key not in _NOT_COMPARED}
    if isinstance(value, list):
        items = [_comparable(each) for each in value]
        return sorted(items, key=repr) if items and isinstance(items[0], dict) else items
    return value


def _batch(records: Any, position: int, header: Any) -> dict[str, Any]:
    content = bytes(memoryview(records)[position + 61 : position + header.size_bytes])
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "attributes": header.attributes,
        "base_sequence": header.base_sequence,
        "content": b"" if header.is_control else content,
    }


def differing_fields(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, which has no indexes, and both values of each field that differs.

    A field that the other answer lacks, as an older version does, counts as None there.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one:
            yield from differing_fields(one[name], other.get(name), f"{path}.{name}" if path else name)
    elif isinstance(one, list) and isinstance(other, list) and _are_structs(one) and _are_structs(other):
        if len(one) == len(other):
            for item, its_twin in zip(one, other, strict=True):
                yield from differing_fields(item, its_twin, path)
        else:
            only_in_one = [each for each in one if each not in other]
            only_in_other = [each for each in other if each not in one]
            are_repeated = not only_in_one and not only_in_other
            yield path, one if are_repeated else only_in_one, other if are_repeated else only_in_other
    elif one != other or type(one) is not type(other):
        yield path, one, other


def _are_structs(items: list[Any]) -> bool:
    return all(isinstance(each, dict) for each in items)
