"""The load generator: a program in Go with franz-go as its client, built once and called for each measurement."""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.apache_kafka import CACHE, Unavailable
from tests.support.child_process import start_child

SOURCES = Path(__file__).resolve().parents[1] / "go"
BUILD_DEADLINE_S = 600
CALL_DEADLINE_S = 320

Result = dict[str, Any]


@dataclass(frozen=True)
class Broker:
    """A running broker: its column in the tables, its address and its process."""

    name: str
    address: str
    process_id: int

    def load(self, command: str, **options: object) -> Result:
        """Run one command of the load generator against the broker and return its result."""
        done = subprocess.run(
            self._arguments(command, options),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CALL_DEADLINE_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr.strip()[-2000:]}")
        found: Result = json.loads(done.stdout)
        return found

    def processor_time(self) -> float:
        """Return the seconds of processor time that the broker's process has used."""
        # The number of the clock that clock_getcpuclockid(3) returns.
        return time.clock_gettime(~self.process_id << 3 | 2)

    @contextmanager
    def held_load(self, command: str, **options: object) -> Iterator[None]:
        """Run a command that reports on its standard error when it is ready, and end it with the block."""
        with start_child(
            self._arguments(command, options),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            ready = process.stderr.readline()
            if ready != "open\n":
                raise RuntimeError(f"{self.name}: {ready}")
            yield
            process.communicate("\n", timeout=CALL_DEADLINE_S)

    def _arguments(self, command: str, options: dict[str, object]) -> list[str]:
        given = [f"-{name.replace('_', '-')}={_text(value)}" for name, value in options.items()]
        return [str(generator()), command, f"-brokers={self.address}", f"-pid={self.process_id}", *given]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def generator() -> Path:
    """Return the built program; Go fetches its client once. Raises `Unavailable` where it cannot be built."""
    sources = sorted(path for path in SOURCES.iterdir() if path.name.startswith("go.") or path.suffix == ".go")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    program = CACHE / f"load-{digest[:12]}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise Unavailable(
            "Go is missing: no go on the PATH to build the load generator with; install Go 1.26 or newer."
        )
    CACHE.mkdir(exist_ok=True)
    unfinished = program.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [go, "build", "-o", str(unfinished), "."],
        cwd=SOURCES,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_DEADLINE_S,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise Unavailable(f"Go could not build the load generator: {lines[-1]}")
    unfinished.rename(program)
    return program
