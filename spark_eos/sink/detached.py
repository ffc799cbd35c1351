"""Processes that outlive the Python worker that begins them and hold nothing of it.

Spark ends its Python workers with SIGKILL or SIGHUP, so what must be done after a worker has ended is done by another
process. It has a session of its own, so that no signal to the worker's group reaches it. All that it inherits (the
worker's socket to the JVM, which Spark takes for the worker's life, and connections to brokers) is replaced by
`/dev/null`. It ends without running anybody's exit handlers.
"""

import gc
import logging
import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

_OPEN_DESCRIPTORS: Final = "/dev/fd"


def detach(work: Callable[[], None], keep: Collection[int] = ()) -> None:
    """Do `work` in a process of its own, which keeps only these file descriptors; raises OSError where none can be.

    Nothing is known of its end. What it may use is what `work` opens itself.
    """
    child = os.fork()
    if child:
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
        return
    # In a fork of Spark's worker no exception may go up, and no exit handler may run.
    try:
        os.setsid()
        # The second process belongs to no worker, so that none has to wait for its end.
        if os.fork() == 0:
            _let_go(keep)
            work()
    finally:
        os._exit(0)


def _let_go(keep: Collection[int]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    # What is inherited is never collected: that would only copy its pages.
    gc.freeze()
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir(_OPEN_DESCRIPTORS):
        if int(name) not in (null, *keep):
            # Replaced, not closed: the numbers stay taken, so that no inherited object closes a new connection.
            os.dup2(null, int(name), inheritable=False)
