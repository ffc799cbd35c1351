"""A process that makes one call after this one has ended, and the call that aborts what a killed task left open.

Spark ends its Python workers with SIGKILL or SIGHUP, and shares them between queries, so another process must do what
is due after a worker has ended. It is a fresh interpreter, not a fork, and has its own session: it shares neither the
worker's memory nor its socket to the JVM, by which Spark detects the worker's end, and no signal to the worker's
process group reaches it. It ignores the signals that systemd, a logout or a shutdown sends to every process. It imports
nothing until it has something to do, so waiting costs some 10 MB and no CPU time.

The worker writes the call into a file without a name, over the one before. The process reads it when a pipe ends into
which nothing is written: with the worker, however that ends. So a task does not wake the process, nor wait for it. The
process also imports this module, so this module imports only the client.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO, Final

from broker_core.types import TransactionState
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import leaderless_among
from spark_eos.client.transactions import end_txn
from spark_eos.errors import EosKafkaError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import REAL, Runtime
from spark_eos.sent_to_tasks import for_same_version

# What a killed worker has sent may reach its broker after the abort, and open the transaction again.
LOOKS_AFTER_SECONDS: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)
# For all checks together: if brokers stay offline longer, the transaction times out.
LIMIT_SECONDS: Final = 60.0
_LONGEST_CALL_MS: Final = 15_000
_PAUSE_SECONDS: Final = 1.0
# A truncated call is not made, as pickle refuses it: the transaction it names has not begun.
# `signal` itself would import more.
_CODE: Final = r"""
import _signal, sys
for number in _signal.SIGHUP, _signal.SIGINT, _signal.SIGTERM:
    _signal.signal(number, _signal.SIG_IGN)
sys.stdin.buffer.read()
with open(int(sys.argv[1]), "rb") as file:
    call = file.read()
if call:
    sys.path[:] = sys.argv[2:]
    import pickle
    pickle.loads(call)()
"""


class DetachedProcess:
    """This process's side of a detached process; raises OSError if no process can be started.

    What it warns of goes to the log of Spark, which has the standard error of its Python processes, unless `is_silent`.
    """

    def __init__(self, *, is_silent: bool = False) -> None:
        if os.name != "posix":
            raise OSError("this operating system has no process sessions")
        self._file = _nameless_file()
        descriptor = self._file.fileno()
        # Spark's files may be on no path but this process's.
        command = [sys.executable, "-S", "-E", "-c", _CODE, str(descriptor), *sys.path]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if is_silent else None,
            bufsize=0,
            start_new_session=True,
            pass_fds=[descriptor],
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def hand_over(self, call: Callable[[], None] | None) -> None:
        self._file.truncate(0)
        if call is not None:
            # Not at a position, which both processes share.
            os.pwrite(self._file.fileno(), pickle.dumps(for_same_version(call)), 0)

    def close(self) -> None:
        """Make the process run its call now."""
        self._file.close()
        if self._process.stdin is not None:
            self._process.stdin.close()


def _nameless_file() -> BinaryIO:
    """Open a file that no folder has: in memory, if the system has such files."""
    # Some systems have no such call, and others refuse it, as Linux does where vm.memfd_noexec is 2.
    with suppress(AttributeError, OSError):
        return os.fdopen(os.memfd_create("call"), "r+b", buffering=0)
    # Imported here, because workers run on Linux.
    import tempfile

    return tempfile.TemporaryFile(buffering=0)


def impatient(options: ClientOptions) -> ClientOptions:
    """Return the client options for a process that must not outlive its worker for long."""
    return replace(options, api_timeout_ms=min(options.api_timeout_ms, _LONGEST_CALL_MS))


def end_unprepared(
    options: ClientOptions,
    transaction: OpenTransaction,
    pauses: Sequence[float] = LOOKS_AFTER_SECONDS,
    runtime: Runtime = REAL,
) -> None:
    """Abort exactly this transaction if it is open, and check again for requests that arrive late."""
    clock, name = runtime.clock, transaction.transactional_id
    looks, until = list(pauses), clock.monotonic() + LIMIT_SECONDS
    with KafkaClient(impatient(options), runtime) as client:
        while looks and clock.monotonic() < until:
            clock.sleep(looks[0])
            try:
                found = describe_transactions(client, [name])[name]
                is_it = (found.producer_id, found.producer_epoch) == transaction.producer
                if found.exists and is_it and found.state == TransactionState.ONGOING.label:
                    # Its marker would be lost (`descriptions.without_leaders`).
                    if leaderless_among(client, found.topic_partitions) is not None:
                        clock.sleep(_PAUSE_SECONDS)
                        continue
                    end_txn(client, transaction, commit=False)
            except EosKafkaError:
                # A broker that is offline may come back.
                clock.sleep(_PAUSE_SECONDS)
                continue
            looks.pop(0)
