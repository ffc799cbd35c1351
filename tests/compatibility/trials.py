"""The trial of one version: jobs in processes that are killed and restarted, checked by librdkafka's consumer."""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.environments import ROOT
from tests.compatibility.jobs import FUNCTIONS, IN, LINES, ONCE, OUT, ROWS
from tests.support.both_brokers import Kafka
from tests.support.clients import make_producer, send, values_to_end
from tests.support.waiting import wait_until

FILES = 10
PARTITIONS = 2
KILLS = 2
DEADLINE_S = 240


@dataclass(frozen=True)
class Trial:
    """The topics of one trial, and the processes that write them."""

    python: Path
    kafka: Kafka
    folder: Path
    kills: int = KILLS

    def prepare(self) -> None:
        """Create the topics, and write the lines that a stream copies to a topic and to files."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        for created in admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in (IN, OUT, ONCE)]).values():
            created.result(DEADLINE_S)
        lines = [str(number).encode() for number in range(LINES)]
        producer = make_producer(self.kafka)
        for partition in range(PARTITIONS):
            send(producer, IN, lines[partition::PARTITIONS], partition=partition)
        files = self.folder / "files"
        files.mkdir(parents=True)
        for number in range(FILES):
            (files / f"{number}.txt").write_bytes(b"\n".join(lines[number::FILES]) + b"\n")

    def stream(self, by: str, *before: str) -> str:
        """Kill a stream during its work and restart it, after the jobs `before`; return the results."""
        for kills in range(self.kills):
            wanted = LINES * (kills + 1) // (2 * self.kills)
            with self._jobs(*(before if kills == 0 else ()), f"stream by {by}") as process:
                self._wait(process, lambda wanted=wanted: sum(self._written().values()) >= wanted)
        with self._jobs(f"stream by {by}") as process:
            self._wait(process, lambda: len(self._written()) == LINES)
        written = self._written()
        assert set(written.values()) == {1}, f"{sum(written.values()) - LINES} lines were written twice"
        return f"killed {_times(self.kills)}: {LINES:,} rows once each"

    def recipe(self, by: str) -> str:
        """Kill the recipe of Delta Lake, lose the commit of its last micro-batch, and count in topic and table."""
        self.stream(by)
        checkpoint = self.folder / "checkpoints" / "orders"
        last = max(int(each.name) for each in (checkpoint / "offsets").glob("[0-9]*"))
        commit = checkpoint / "commits" / str(last)
        for lost in (commit, commit.with_name(f".{last}.crc")):
            lost.unlink(missing_ok=True)
        with self._jobs(f"stream by {by}") as process:
            self._wait(process, commit.exists)
        assert set(self._written().values()) == {1}, "the micro-batch that ran again was written twice"
        with self._jobs(f"table by {by}") as process:
            assert process.wait(DEADLINE_S) == 0, self._log()
        copied = Counter(values_to_end(self.kafka, ONCE, partitions=PARTITIONS))
        assert copied == self._written(), f"{sum(copied.values())} rows of the table's {LINES}"
        killed = f"killed {_times(self.kills)}, a commit lost"
        return f"{killed}: {LINES:,} rows once each, in topic, table and the table's copy"

    def others(self, by: str) -> dict[str, str]:
        """Run a named batch job twice, and read what the killed stream has written; return what was seen, by column."""
        jobs = [f"batch by {by}", "source"] if by != FUNCTIONS else [f"batch by {by}"]
        with self._jobs(*jobs) as process:
            assert process.wait(DEADLINE_S) == 0, self._log()
        seen = {"batch": self._batch_seen()}
        return seen | ({"source": f"batch, stream: {LINES:,} rows once each"} if "source" in jobs else {})

    def quick(self, by: str) -> dict[str, str]:
        """Run a named batch job twice, and a stream that is killed, in two processes; return what was seen."""
        seen = {"stream": self.stream(by, f"batch by {by}")}
        return seen | {"batch": self._batch_seen()}

    def _batch_seen(self) -> str:
        values = values_to_end(self.kafka, ONCE, partitions=PARTITIONS)
        assert len(values) == len(set(values)) == ROWS, f"{len(values)} rows of {ROWS}"
        return f"run twice: {ROWS} rows once each"

    def _written(self) -> "Counter[bytes]":
        return Counter(values_to_end(self.kafka, OUT, partitions=PARTITIONS))

    def _wait(self, process: "subprocess.Popen[bytes]", condition: "object") -> None:
        def holds_or_ended() -> bool:
            return process.poll() is not None or condition()  # type: ignore[operator]

        wait_until(holds_or_ended, "the stream writes its rows", deadline_s=DEADLINE_S, pause_s=1)
        assert process.poll() is None, self._log()

    @contextmanager
    def _jobs(self, *jobs: str) -> "Iterator[subprocess.Popen[bytes]]":
        """Run jobs in a separate process group until the block ends; then kill the whole group."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [self.python, "-m", "tests.compatibility.jobs", self.kafka.bootstrap_servers, str(self.folder), *jobs],
                cwd=ROOT,
                env=os.environ | {"PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": "127.0.0.1"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
