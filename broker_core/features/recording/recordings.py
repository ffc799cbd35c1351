"""Recordings of requests and responses: the making of a file, and its reading.

A file has one JSON line for each, in the order of handling and sending. The first line names the format. Requests and
responses that can contain secrets are left out: only a line names them.
"""

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from broker_core.broker.monitoring.inspection import partition_counts
from broker_core.server.socket_server import SocketServer
from broker_core.server.thread import ServerThread
from broker_core.testing.inspection_controls import Recording
from broker_core.types import Frame
from broker_core.wire.framing import Request, has_secrets

FORMAT = "broker_core requests"
FORMAT_VERSION = 1


class Recorder:
    """The recorder of all connections of a cluster; `write` takes one line.

    A line that cannot be written ends the recording, not the broker: `failure` is the error.
    """

    def __init__(self, write: Callable[[str], object], topics: Mapping[str, int], broker_ids: range) -> None:
        self._write = write
        self._connections: dict[object, int] = {}
        self._count = 0
        # The requests that wait for their response, by connection and correlation id.
        self._waiting: set[tuple[int, int]] = set()
        self.failure: OSError | None = None
        self._line(format=FORMAT, version=FORMAT_VERSION, brokers=list(broker_ids), topics=dict(topics))

    def asked(
        self, connection: object, broker_id: int, frame: bytes | bytearray, request: Request, now_ms: int
    ) -> None:
        number = self._connections.get(connection)
        if number is None:
            self._count += 1
            number = self._connections[connection] = self._count
        about = self._about(number, request, now_ms) | {"broker": broker_id, "client_id": request.client_id}
        if has_secrets(request):
            self._line(kind="left out", **about)
            return
        self._waiting.add((number, request.correlation_id))
        self._line(kind="request", **about, frame=base64.b64encode(frame).decode())

    def answered(self, connection: object, request: Request, data: Frame, now_ms: int) -> None:
        number = self._connections.get(connection, 0)
        if (number, request.correlation_id) in self._waiting:
            self._waiting.remove((number, request.correlation_id))
            # Without the length in front, as in the line of the request.
            frame = base64.b64encode(b"".join(data)[4:]).decode()
            self._line(kind="response", **self._about(number, request, now_ms), frame=frame)

    def closed(self, connection: object) -> None:
        number = self._connections.pop(connection, None)
        if number is not None:
            self._waiting = {each for each in self._waiting if each[0] != number}
            self._line(kind="closed", connection=number)

    @staticmethod
    def _about(number: int, request: Request, now_ms: int) -> dict[str, object]:
        return {
            "connection": number,
            "time_ms": now_ms,
            "correlation_id": request.correlation_id,
            "api": request.api.name,
            "version": request.version,
        }

    def _line(self, **fields: object) -> None:
        if self.failure is None:
            try:
                self._write(json.dumps(fields) + "\n")
            except OSError as error:
                self.failure = error


class FileRecording(Recording):
    """A recording in a file."""

    def __init__(self, thread: ServerThread, path: str | os.PathLike[str], broker_ids: range) -> None:
        self._thread = thread
        self._file, self._recorder = thread.act(lambda server: self._begin(server, path, broker_ids))

    @staticmethod
    def _begin(server: SocketServer, path: str | os.PathLike[str], broker_ids: range) -> tuple[TextIO, Recorder]:
        injector = server.fault_injector
        assert injector is not None
        if injector.recorder is not None:
            raise RuntimeError("a recording is in progress: end it before the next one")
        partitions = partition_counts(server.cluster)
        # Each line is written at once, so that the file of a test that is killed is complete up to then.
        file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
        injector.recorder = recorder = Recorder(file.write, partitions, broker_ids)
        return file, recorder

    def end(self) -> None:
        """End the recording; no effect if it has ended. Raises OSError if a line could not be written."""
        if self._file.closed:
            return
        # A broker that has stopped writes no more.
        with suppress(RuntimeError):
            self._thread.act(self._stop)
        try:
            self._file.close()
        except OSError as error:
            raise self._recorder.failure or error from None
        if self._recorder.failure is not None:
            raise self._recorder.failure

    @staticmethod
    def _stop(server: SocketServer) -> None:
        assert server.fault_injector is not None
        server.fault_injector.recorder = None


class Header(NamedTuple):
    """The first line of a file: the broker ids, and the topics at the beginning with their numbers of partitions."""

    brokers: list[int]
    topics: dict[str, int]


class Entry(NamedTuple):
    """One further line of a file, with its number; `frame` is empty unless it is a request or a response."""

    line: int
    kind: str
    connection: int
    broker: int
    api: str
    version: int
    correlation_id: int
    frame: bytes


def read_recording(path: str | os.PathLike[str]) -> tuple[Header, list[Entry]]:
    """Return the content of a file; raise ValueError, which names the line, if it is damaged."""
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines:
        raise ValueError(f"{path} is empty: a recording has at least the line with its format")
    fields = _parsed(path, 1, lines[0])
    if fields.get("format") != FORMAT:
        raise ValueError(f"{path} is not a recording: its first line does not name the format {FORMAT!r}")
    if fields.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} has version {fields.get('version')} of the format; this broker_core reads version {FORMAT_VERSION}"
        )
    try:
        header = Header([int(each) for each in fields["brokers"]], dict(fields["topics"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}, line 1, is damaged: {error!r}") from None
    entries = list(_entries(path, lines))
    for each in entries:
        if each.kind == "request" and each.broker not in header.brokers:
            raise ValueError(f"{path}, line {each.line}, is damaged: line 1 does not name broker {each.broker}")
    return header, entries


def _entries(path: str | os.PathLike[str], lines: list[str]) -> Iterator[Entry]:
    for number, line in enumerate(lines[1:], start=2):
        fields = _parsed(path, number, line)
        try:
            is_closed = fields["kind"] == "closed"
            yield Entry(
                number,
                fields["kind"],
                int(fields["connection"]),
                int(fields.get("broker", 0)),
                "" if is_closed else fields["api"],
                0 if is_closed else int(fields["version"]),
                0 if is_closed else int(fields["correlation_id"]),
                base64.b64decode(fields["frame"], validate=True) if fields["kind"] in ("request", "response") else b"",
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}, is damaged: {error!r}") from None


def _parsed(path: str | os.PathLike[str], number: int, line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}, is damaged: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{path}, line {number}, is damaged: it is not a JSON object")
    return fields
