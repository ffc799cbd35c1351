"""A process with a terminal of its own, as a person sees it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

COLUMNS: Final = 80
ROWS: Final = 24
DEADLINE_S: Final = 60


class Terminal:
    """A process with a terminal of 80x24, and all that it has written."""

    def __init__(self, *command: str, **variables: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color"} | variables
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self.text = ""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(DEADLINE_S)
        os.close(self._master)

    def write(self, text: str) -> None:
        """Type some text."""
        os.write(self._master, text.encode())

    def read_until(self, is_there: Callable[[str], bool]) -> None:
        """Read until the whole text is as wanted."""
        end = time.monotonic() + DEADLINE_S
        while not is_there(self.text):
            assert time.monotonic() < end, self.text
            assert self._read(), self.text

    def wait(self) -> int:
        """Read until the process ends, and return its exit code."""
        end = time.monotonic() + DEADLINE_S
        while self._read():
            assert time.monotonic() < end, self.text
        return self._process.wait(DEADLINE_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 0.2)
        if ready:
            with suppress(OSError):
                data = os.read(self._master, 65_536)
                self.text += data.decode(errors="replace")
                return bool(data)
            return False
        return self._process.poll() is None


def _take_terminal() -> None:
    """Make the standard input the process's terminal, which turns Ctrl+C into a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
