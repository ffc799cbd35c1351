"""A process beside each Python worker that ends what the worker leaves unprepared when it is killed.

A worker that gets SIGKILL in the middle of a task cannot abort its transaction, and readers would wait until that times
out. The worker writes each transaction that it begins into a pipe, and a zero-length note when the transaction is
prepared or ended. The pipe ends with the worker, however that ends; the watcher then aborts what was begun last and not
noted since.

A decided transaction is never aborted: a task tells the driver of its transaction only after the note is in the pipe,
and the watcher reads all of the pipe before it acts. So what it aborts was never named to a driver. It names the
transaction by producer id and epoch, which no later transaction shares: the id belonged to the worker, which is gone.
"""

import logging
import os
import pickle
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from broker_core.types import TopicPartition
from spark_eos.client.connection import KafkaClient
from spark_eos.client.control import TransactionIdentity, end_txn
from spark_eos.client.inspection import describe_transactions
from spark_eos.client_options import ClientOptions
from spark_eos.codec.encode import EncodedBatch
from spark_eos.errors import EosKafkaError, TransactionError
from spark_eos.sink.detached import detach
from spark_eos.sink.pool import TaskIdentity
from spark_eos.sink.ports import TransactionState
from spark_eos.sink.prepared import WrittenRange
from spark_eos.sink.task import TransactionPort

LOG: Final = logging.getLogger("spark_eos.sink")
_LENGTH: Final = struct.Struct(">I")
_RELEASED: Final = _LENGTH.pack(0)
# What a killed worker has sent may reach its broker after the abort, and open the transaction again.
LOOKS_AFTER_SECONDS: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)


class Watcher:
    """The worker's end of the pipe to its watcher; without a watcher it does nothing."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self._pipe: int | None = writing
        # A watcher that is stopped must not stop its worker.
        os.set_blocking(writing, False)
        try:
            detach(lambda: watch(reading), keep=(reading,))
        except OSError as error:
            LOG.warning("no process watches this worker; if it is killed, its transaction times out: %s", error)
            self._give_up()
        finally:
            os.close(reading)

    def begin(self, options: ClientOptions, identity: TransactionIdentity) -> None:
        """Have a transaction ended if this process ends before `release`; what was begun before is forgotten."""
        note = pickle.dumps((options, identity))
        if self._pipe is None or self._write(self._pipe, _LENGTH.pack(len(note)) + note):
            return
        LOG.warning("the process that watches this worker has ended or is stopped; it is watched no more")
        self._give_up()

    def release(self) -> None:
        """Take note that the transaction is prepared or ended; raises where a live watcher cannot be reached."""
        if self._pipe is not None and not self._write(self._pipe, _RELEASED):
            raise TransactionError(
                "A task's transaction is flushed, but the process that watches the worker could abort it",
                checked="The pipe to that process: it is full, so the process is stopped",
                remedy="Spark tries the task again. Look for stopped processes beside the Python workers",
            )

    def _write(self, pipe: int, note: bytes) -> bool:
        """Say whether a note is in the pipe, or no longer needed because the watcher has ended."""
        try:
            return os.write(pipe, note) == len(note)
        except BrokenPipeError:
            return True
        except BlockingIOError:
            return False

    def _give_up(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)


@dataclass(slots=True)
class WatchedTransaction:
    """A task's transaction that ends with its worker unless it was flushed."""

    transaction: TransactionPort
    options: ClientOptions
    watcher: Watcher

    def begin(self, identity: TaskIdentity) -> None:
        """Get ready to send under an identity."""
        self.watcher.begin(self.options, TransactionIdentity(
            identity.transactional_id, *identity.identity, identity.transaction_version
        ))
        self.transaction.begin(identity)

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        """Send batches in order."""
        self.transaction.send(topic_partition, batches)

    @property
    def retries(self) -> int:
        """Count the requests sent again."""
        return self.transaction.retries

    def flush(self) -> Sequence[WrittenRange]:
        """Wait until everything is acknowledged; from then on only the driver ends the transaction."""
        ranges = self.transaction.flush()
        self.watcher.release()
        return ranges

    def abort(self) -> None:
        """Abort the open transaction."""
        self.transaction.abort()
        self.watcher.release()


_watchers: dict[int, Watcher] = {}


def watched(transaction: TransactionPort, options: ClientOptions) -> WatchedTransaction:
    """Have a task's transaction watched by the one watcher of this process."""
    process_id = os.getpid()
    if process_id not in _watchers:
        _watchers[process_id] = Watcher()
    return WatchedTransaction(transaction, options, _watchers[process_id])


def watch(reading: int) -> None:
    """Read notes until the worker has ended, then end what it has left unprepared."""
    with os.fdopen(reading, "rb") as notes:
        left = last_note(notes)
    if left is not None:
        options, identity = pickle.loads(left)
        end_unprepared(options, identity)


def last_note(notes: BinaryIO) -> bytes | None:
    """Read to the end and give the transaction that was begun last, None when it was released.

    A note that was cut short is that of a transaction in which nothing was sent yet.
    """
    left = None
    while len(head := notes.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        note = notes.read(length)
        if len(note) < length:
            return None
        left = note or None
    return left


def end_unprepared(
    options: ClientOptions, identity: TransactionIdentity, pauses: Iterable[float] = LOOKS_AFTER_SECONDS
) -> None:
    """Abort a transaction of a worker that has ended, and look again for requests that arrive late."""
    name = identity.transactional_id
    with KafkaClient(options) as client:
        for seconds in pauses:
            time.sleep(seconds)
            try:
                found = describe_transactions(client, [name])[name]
                if not found.exists or (found.producer_id, found.producer_epoch) != (
                        identity.producer_id, identity.producer_epoch):
                    continue
                if found.state == TransactionState.ONGOING:
                    end_txn(client, identity, commit=False)
            except EosKafkaError as error:
                LOG.warning("transaction %s of a worker that has ended is still open: %s", name, error)
