"""A process that makes one call after this one has ended, and the call that aborts what a killed task left open.

Spark ends its Python workers with SIGKILL or SIGHUP, and shares them between queries, so another process must do what
is due after a worker has ended. It is a fresh interpreter, not a fork, and has its own session: it shares nothing with
the worker (neither its memory nor its socket to the JVM, which Spark uses to detect the worker's end), and no signal to
the worker's process group reaches it. It imports nothing until it has something to do, so waiting costs some 10 MB and
no CPU time.

The worker writes the calls into a pipe; each one replaces the one before. The pipe ends with the worker, however that
ends. The process reads all of it before it calls anything. The process also imports this module, so this module imports
only the client.
"""

import base64
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from broker_core.types import TransactionState
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import TransactionIdentity, end_txn
from spark_eos.errors import EosKafkaError
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import REAL, Runtime

# What a killed worker has sent may reach its broker after the abort, and open the transaction again.
LOOKS_AFTER_SECONDS: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)
# For all checks together: if brokers stay offline longer, the transaction times out.
LIMIT_SECONDS: Final = 60.0
_LONGEST_CALL_MS: Final = 15_000
_PAUSE_SECONDS: Final = 1.0
# On a busy machine small tasks can fill the pipe before the process has begun to read.
_DELIVERY_SECONDS: Final = 1.0
# A truncated line is ignored and leaves nothing to do: the transaction it names has not begun.
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


class DetachedProcess:
    """This process's end of the pipe; raises OSError if no process can be started."""

    def __init__(self) -> None:
        if os.name != "posix":
            raise OSError("this operating system has no process sessions")
        # Spark's files may be on no path but this process's.
        command = [sys.executable, "-S", "-E", "-c", _CODE, *sys.path]
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, bufsize=0, start_new_session=True
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        # A stopped detached process must not block this process.
        os.set_blocking(self._pipe.fileno(), False)

    @property
    def process_id(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def hand_over(self, call: Callable[[], None] | None) -> bool:
        """Replace the call to make, None for none; return False if the message cannot be delivered.

        A process that has ended makes no call, so None counts as delivered then.
        """
        line = b"" if call is None else base64.b64encode(pickle.dumps(call))
        descriptor = self._pipe.fileno()
        try:
            _, writable, _ = select.select([], [descriptor], [], _DELIVERY_SECONDS)
            return bool(writable) and os.write(descriptor, line + b"\n") == len(line) + 1
        except BrokenPipeError:
            return call is None
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Make the process run its call now."""
        with suppress(OSError):
            self._pipe.close()


def impatient(options: ClientOptions) -> ClientOptions:
    """Return the client options for a process that must not outlive its worker for long."""
    return replace(options, api_timeout_ms=min(options.api_timeout_ms, _LONGEST_CALL_MS))


def end_unprepared(
    options: ClientOptions,
    identity: TransactionIdentity,
    pauses: Sequence[float] = LOOKS_AFTER_SECONDS,
    runtime: Runtime = REAL,
) -> None:
    """Abort exactly this transaction if it is open, and check again for requests that arrive late."""
    clock = runtime.clock
    looks, until = list(pauses), clock.monotonic() + LIMIT_SECONDS
    with KafkaClient(impatient(options), runtime) as client:
        while looks and clock.monotonic() < until:
            clock.sleep(looks[0])
            try:
                _end_if_open(client, identity)
            except EosKafkaError:
                # A broker that is offline may come back.
                clock.sleep(_PAUSE_SECONDS)
                continue
            looks.pop(0)


def _end_if_open(client: KafkaClient, identity: TransactionIdentity) -> None:
    name = identity.transactional_id
    found = describe_transactions(client, [name])[name]
    is_it = (found.producer_id, found.producer_epoch) == (identity.producer_id, identity.producer_epoch)
    if found.exists and is_it and found.state == TransactionState.ONGOING.label:
        end_txn(client, identity, commit=False)
