"""A process that makes one call after this one has ended.

Spark ends its Python workers with SIGKILL or SIGHUP, and shares them between queries, so what must be done after a
worker has ended is done by another process. It is a fresh interpreter, not a fork, and has a session of its own: it
holds nothing of the worker's (neither its memory nor its socket to the JVM, which Spark takes for the worker's life),
and no signal to the worker's group reaches it. It imports nothing until it has something to do, so that waiting costs
some 10 MB and no time.

The worker writes what is to be called into a pipe, each call in place of the one before. The pipe ends with the worker,
however that ends. All of it is read before anything is called.
"""

import base64
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

# A line that was cut short says nothing, and leaves nothing to do: what it speaks of has not begun.
_CODE: Final = r"""
import sys
last = b"\n"
for last in sys.stdin.buffer:
    pass
if last.endswith(b"\n") and last != b"\n":
    sys.path[:] = sys.argv[1:]
    import base64, pickle
    pickle.loads(base64.b64decode(last))()
"""


class Successor:
    """This process's end of the pipe; raises OSError where no process can be started."""

    def __init__(self) -> None:
        if os.name != "posix":
            raise OSError("this system has no sessions of processes")
        # Spark's files may be on no path but this process's.
        command = [sys.executable, "-S", "-E", "-c", _CODE, *sys.path]
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, bufsize=0, start_new_session=True
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        # A successor that is stopped must not stop this process.
        os.set_blocking(self._pipe.fileno(), False)

    @property
    def process_id(self) -> int:
        """Name the process."""
        return self._process.pid

    def hand_over(self, call: Callable[[], None] | None) -> bool:
        """Replace what is to be called, None for nothing; False where that does not arrive.

        A successor that has ended calls nothing any more: None has then arrived.
        """
        line = b"" if call is None else base64.b64encode(pickle.dumps(call))
        try:
            return os.write(self._pipe.fileno(), line + b"\n") == len(line) + 1
        except BrokenPipeError:
            return call is None
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Have it make its call now."""
        with suppress(OSError):
            self._pipe.close()
