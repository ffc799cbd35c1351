"""A broker that counts where its processor time goes.

`python -m tests.benchmarks.broker.sampled_broker FILE` takes the arguments of `broker-core` too. SIGUSR1 begins to
count; the next one ends it and writes the counts to the file as JSON. The function that the broker's thread runs is
counted after each step of the processor time of all threads, 4 ms on most Linux systems. What C code does counts for
the function that calls it. cProfile would make small functions look expensive.
"""

import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from broker_core.__main__ import main

# The thread of the server.
THREAD = "embedded-broker"
# Linux rounds it up to its own step.
INTERVAL_S = 0.001
# How long the main thread waits for the other one to let it look.
SWITCH_S = 1e-5


def _place(code: CodeType) -> str:
    if code.co_filename.startswith("<"):
        return f"{code.co_filename}: {code.co_qualname}"
    folder, _, module = code.co_filename.removesuffix(".py").rpartition("/")
    return f"{folder.rpartition('/')[2]}/{module}: {code.co_qualname}"


class Sampler:
    """The counts of the functions that were seen."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: Counter[CodeType] = Counter()
        self._is_on = False

    def count(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGPROF, in the main thread, which waits while the broker's thread works."""
        frames = sys._current_frames()
        self._counts.update(frames[each.ident].f_code for each in threading.enumerate() if each.name == THREAD)

    def switch(self, _number: int, _frame: FrameType | None) -> None:
        """Begin to count, or end it and write the file."""
        self._is_on = not self._is_on
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
        if self._is_on:
            signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        places: Counter[str] = Counter()
        for code, times in self._counts.items():
            places[_place(code)] += times
        self._counts = Counter()
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(places))
        os.replace(unfinished, self._path)


if __name__ == "__main__":
    sampler = Sampler(Path(sys.argv[1]))
    signal.signal(signal.SIGPROF, sampler.count)
    # Threads inherit this; otherwise the system gives the signal to any of them, and the main thread sleeps on.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    sys.setswitchinterval(SWITCH_S)
    signal.signal(signal.SIGUSR1, sampler.switch)
    sys.exit(main(sys.argv[2:]))
