"""One query of the crash tests: its own input, checkpoint, output topic, prefix and failpoint.

It reads files, or a topic (`feed`) through our source.
"""

import json
import os
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.feed import Feed
from tests.support.spark_eos.holds import HOLD_DEADLINE_S
from tests.support.waiting import wait_until

LINE_BYTES = 1_000
LINES = 40
# Small buffers: a task writes in several chunks, each of them in several requests.
SMALL_BUFFERS = {"buffer.memory": "65536", "batch.size": "4096", "kafka.max.request.size": "8192"}


@dataclass
class Case:
    """A query that copies `micro_batches` times `LINES` lines; its prefix identifies it everywhere."""

    folder: Path
    address: str
    micro_batches: int = 2
    more_options: dict[str, str] = field(default_factory=dict)
    prefix: str = field(default_factory=lambda: f"crash{uuid.uuid4().hex[:8]}")
    feed: Feed | None = None
    # Whether the query waits for more input, which `add_micro_batch` adds.
    endless: bool = False

    def __post_init__(self) -> None:
        self.input.mkdir(parents=True)
        if self.feed is not None:
            return
        for number in range(self.micro_batches):
            self._write_input(number)

    @property
    def input(self) -> Path:
        """Return the folder that is read."""
        return self.folder / self.prefix / "input"

    @property
    def checkpoint(self) -> Path:
        """Return the query's checkpoint."""
        return self.folder / self.prefix / "checkpoint"

    @property
    def topic(self) -> str:
        """Return the name of the topic that is written."""
        return self.prefix

    @property
    def options(self) -> dict[str, str]:
        """Return the sink's options."""
        return {
            "kafka.bootstrap.servers": self.address,
            "topic": self.topic,
            "transactionalIdPrefix": self.prefix,
            **SMALL_BUFFERS,
            **self.more_options,
        }

    @property
    def source(self) -> dict[str, str] | None:
        """Return the options of our source, if the query reads from it."""
        return None if self.feed is None else self.feed.options(self.address)

    @property
    def expected(self) -> Counter[str]:
        """Return every line that a reader must see once."""
        if self.feed is not None:
            return Counter(self.feed.rows())
        return Counter(line for number in range(self.micro_batches) for line in self.lines_of(number))

    @property
    def held(self) -> Path:
        """Return the file that names the held process."""
        return self.folder / self.prefix / "held"

    def lines_of(self, micro_batch: int) -> list[str]:
        """Return the lines of one micro-batch."""
        keys = [f"{self.prefix}.{micro_batch}.{line}" for line in range(LINES)]
        return [f"{key} {'x' * (LINE_BYTES - len(key))}" for key in keys]

    def last_inputs(self) -> dict[int, int]:
        """Return the last input of each micro-batch. They have one each, with one exception.

        The file source logs the files that it has found before Spark logs the micro-batch. Killed between, it reads
        them together with the next one.
        """
        logged = [each for each in (self.checkpoint / "offsets").glob("[0-9]*") if each.name.isdigit()]
        ends = {int(each.name): json.loads(each.read_text().splitlines()[-1]) for each in logged}
        return {number: int(end.get("logOffset", number)) for number, end in ends.items()}

    def add_micro_batch(self) -> None:
        """Add input for one more micro-batch of an endless query."""
        self._write_input(self.micro_batches)
        self.micro_batches += 1

    def _write_input(self, number: int) -> None:
        hidden = self.folder / self.prefix / f"{number}.txt"
        hidden.write_text("".join(f"{line}\n" for line in self.lines_of(number)))
        # Spark takes the oldest file first.
        os.utime(hidden, (number, number))
        hidden.rename(self.input / hidden.name)

    def rule(self, point: str, action: str = "hold", micro_batch: int | None = 0) -> str:
        """Return the rule that acts at `POINT[#VISIT]`, once in all processes."""
        name, _, visit = point.partition("#")
        doing = f"hold:{self.held}" if action == "hold" else action
        mark = self.folder / self.prefix / f"mark-{uuid.uuid4().hex}"
        place = "" if micro_batch is None else f"@{micro_batch}"
        query = self.prefix
        if name.startswith("source."):
            assert self.feed is not None
            query = self.feed.client_id
        return f"{name}/{query}=once:{mark}|{doing}{place}" + (f"#{visit}" if visit else "")

    def wait_until_held(self) -> int:
        """Wait until a process is held, and return its id."""
        wait_until(self.held.exists, f"{self.prefix} is held", deadline_s=HOLD_DEADLINE_S)
        return int(self.held.read_text())

    def release(self) -> None:
        """Let the held process continue."""
        self.held.unlink(missing_ok=True)
