"""Processes of adapters and their commands, with a deadline for every response."""

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.clients import READ_COMMITTED, unique

ROOT = Path(__file__).parents[2]
# Longer than an adapter's own deadlines, so that the adapter's error comes first.
ANSWER_S = 90
COPY_ANSWER_S = 180
STOP_S = 10
LONG_MS = 30_000
END = "the end"


class ClientError(Exception):
    """An error of a client."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Adapter:
    """The process of one client; it is started when it is first needed."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command = command
        self._environ = environ
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._is_busy = False
        # The file has no name and disappears with the process.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115

    def call(self, do: str, **arguments: Any) -> Any:
        """Return the response; raise ClientError if it is an error."""
        self.start(do, **arguments)
        return self.finish()

    def start(self, do: str, **arguments: Any) -> None:
        """Send a command; `finish` waits for its response."""
        if self._is_busy:
            # A test failed before it read the response, which must not be taken for that of the next command.
            self.kill()
        process = self._running()
        self._is_busy = True
        assert process.stdin is not None
        process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        process.stdin.flush()

    def finish(self, deadline_s: float = ANSWER_S) -> Any:
        """Wait for the response."""
        said = self._next(deadline_s)
        while "note" in said:
            said = self._next(deadline_s)
        self._is_busy = False
        if "error" in said:
            raise ClientError(said["error"], said["message"])
        return said["answer"]

    def wait_for_note(self) -> int:
        """Wait for the next note of the running command."""
        said = self._next(ANSWER_S)
        assert "note" in said, f"expected a note, got {said}"
        return int(said["note"])

    def close(self) -> None:
        """End the process, by SIGKILL if it does not end itself."""
        process, self._process = self._process, None
        if process is None:
            self._errors.close()
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._errors.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._lines = queue.Queue()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=ROOT,
                env=os.environ | dict(self._environ),
            )
            threading.Thread(target=_pump, args=(self._process, self._lines), daemon=True).start()
        return self._process

    def kill(self) -> int | None:
        """Kill the process, which the next command replaces; return the exit status if it had already ended."""
        process, self._process = self._process, None
        self._is_busy = False
        if process is None:
            return None
        ended = process.poll()
        process.kill()
        process.wait()
        return ended

    def _next(self, deadline_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=deadline_s)
        except queue.Empty:
            line = None
        if line is None:
            # The state of the process is unknown: the next command gets a new process.
            ended = self.kill()
            self._errors.seek(0)
            raise AssertionError(
                f"no response from {self._command[-1]} (exit status {ended}): {self._errors.read()[-2000:]}"
            )
        said: dict[str, Any] = json.loads(line)
        return said


def _pump(process: subprocess.Popen[str], lines: "queue.Queue[str | None]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        # Some clients print other text on standard output.
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)


@dataclass(frozen=True)
class Record:
    """A record that a client has read."""

    partition: int
    offset: int
    value: str


@dataclass(frozen=True)
class Copy:
    """What to copy, by which member and producer, and whether to send the group's metadata with the offsets."""

    group: str
    transactional_id: str
    source: str
    target: str
    partitions: int
    metadata: bool = False
    instance: str | None = None
    session_ms: int = 6_000


class TransactionalProducer:
    """A producer in the process of a client."""

    def __init__(
        self,
        client: "Client",
        transactional_id: str | None,
        timeout_ms: int,
        block_ms: int,
        in_flight: int | None,
        compression: str | None,
    ) -> None:
        self._adapter = client.writer
        self._name = unique("producer")
        self._adapter.call(
            "producer",
            at=client.at,
            name=self._name,
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            block_ms=block_ms,
            in_flight=in_flight,
            compression=compression,
        )

    def init(self) -> Self:
        """Send InitProducerId."""
        self._adapter.call("init", name=self._name)
        return self

    def begin(self) -> Self:
        """Begin a transaction."""
        self._adapter.call("begin", name=self._name)
        return self

    def send(self, topic: str, *values: str, partition: int = 0) -> list[int]:
        """Send records and return their offsets, once they are acknowledged."""
        offsets: list[int] = self._adapter.call(
            "send", name=self._name, topic=topic, partition=partition, values=values
        )
        return offsets

    def add(self, topic: str, partition: int = 0) -> None:
        """Add a partition to the transaction without writing a record."""
        self._adapter.call("add", name=self._name, topic=topic, partition=partition)

    def offsets(
        self,
        group: str,
        topic: str,
        offset: int,
        metadata: str = "",
        *,
        epoch: int | None = None,
        member: str | None = None,
    ) -> None:
        """Commit a group's offset for partition 0 in the transaction, with the metadata of a member if one is named."""
        self._adapter.call(
            "offsets", name=self._name, group=group, topic=topic, member=member, offsets=[[0, offset, metadata, epoch]]
        )

    def commit(self) -> None:
        """Commit."""
        self._adapter.call("commit", name=self._name)

    def abort(self) -> None:
        """Abort."""
        self._adapter.call("abort", name=self._name)

    def close(self) -> None:
        """Close the producer, whatever its state is."""
        self._adapter.call("close", name=self._name)


class Client:
    """One client that talks to one broker, in two processes: one writes, the other reads and copies."""

    def __init__(self, name: str, writer: Adapter, reader: Adapter, at: str) -> None:
        self.name = name
        self.writer = writer
        self.reader = reader
        self.at = at
        self._producers: list[TransactionalProducer] = []
        self._members: list[str] = []

    def producer(self, transactional_id: str, **settings: Any) -> TransactionalProducer:
        """Return a producer after InitProducerId."""
        return self.new_producer(transactional_id, **settings).init()

    def new_producer(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int = 60_000,
        block_ms: int = LONG_MS,
        in_flight: int | None = None,
        compression: str | None = None,
    ) -> TransactionalProducer:
        """Return a producer before InitProducerId; without an id it is only idempotent."""
        producer = TransactionalProducer(self, transactional_id, timeout_ms, block_ms, in_flight, compression)
        self._producers.append(producer)
        return producer

    def join(self, group: str, topic: str, instance: str | None = None) -> str:
        """Join a group beside the producers, keep the member's metadata, and return its name."""
        member = unique("member")
        self.writer.call("join", at=self.at, member=member, group=group, topic=topic, instance=instance)
        self._members.append(member)
        return member

    def leave(self, member: str) -> None:
        """Close a member; its metadata is kept."""
        self._members.remove(member)
        self.writer.call("leave", member=member)

    def start_reading(
        self,
        topic: str,
        *,
        isolation: str = READ_COMMITTED,
        partitions: int = 1,
        until: str | None = END,
        at_least: int = 0,
        quiet_s: float = 0,
        tell: int | None = None,
        max_wait_ms: int = 100,
        fetch_bytes: int = 1 << 20,
    ) -> None:
        """Read until `until` was seen in each partition, or `at_least` records and then nothing for `quiet_s`."""
        self.reader.start(
            "read",
            at=self.at,
            topic=topic,
            partitions=partitions,
            isolation=isolation,
            until=until,
            at_least=at_least,
            quiet_s=quiet_s,
            tell=tell,
            max_wait_ms=max_wait_ms,
            fetch_bytes=fetch_bytes,
        )

    def finish_reading(self) -> list[Record]:
        """Return the records without those that mark the end."""
        found = [Record(*each) for each in self.reader.finish()]
        return [each for each in found if each.value != END]

    def read(self, topic: str, **wanted: Any) -> list[Record]:
        """Read a topic; see `start_reading`."""
        self.start_reading(topic, **wanted)
        return self.finish_reading()

    def values(self, topic: str, **wanted: Any) -> list[str]:
        """Return the values of a topic; see `start_reading`."""
        return [each.value for each in self.read(topic, **wanted)]

    def end_of(self, topic: str, isolation: str = READ_COMMITTED) -> int:
        """Return the position of a consumer that seeks to the end of partition 0."""
        return int(self.reader.call("end_of", at=self.at, topic=topic, partition=0, isolation=isolation))

    def offset_at(self, topic: str, timestamp_ms: int, isolation: str = READ_COMMITTED) -> int | None:
        """Return the first offset of partition 0 from that time on."""
        found: int | None = self.reader.call(
            "offset_at", at=self.at, topic=topic, partition=0, isolation=isolation, timestamp_ms=timestamp_ms
        )
        return found

    def committed(self, group: str, topic: str) -> tuple[int, str] | None:
        """Return the group's offset and its metadata."""
        found = self.reader.call("committed", at=self.at, group=group, topic=topic, partition=0)
        return None if found is None else (found[0], found[1])

    def committed_epoch(self, group: str, topic: str) -> int | None:
        """Return the leader epoch that was committed with the group's offset."""
        epoch: int | None = self.reader.call("committed", at=self.at, group=group, topic=topic, partition=0)[2]
        return epoch

    def start_copying(self, task: "Copy", *, abort_every: int = 0, hold_at: int = 0, stop_after: int = 0) -> None:
        """Consume, transform, produce, until END was read from each partition, or for `stop_after` commits.

        Every `abort_every`th transaction is aborted. Number `hold_at` sends a note, and never ends.
        """
        self.reader.start(
            "copy", at=self.at, **vars(task), until=END, abort_every=abort_every, hold_at=hold_at, stop_after=stop_after
        )

    def finish_copying(self) -> dict[str, int]:
        """Return how many transactions were committed, aborted and failed."""
        counts: dict[str, int] = self.reader.finish(COPY_ANSWER_S)
        return counts

    def close(self) -> None:
        """Close all producers at the end of a test."""
        # A process that replaced another one does not know them.
        while self._producers:
            with suppress(ClientError):
                self._producers.pop().close()
        while self._members:
            with suppress(ClientError):
                self.leave(self._members[0])
