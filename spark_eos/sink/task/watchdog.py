"""The watchdog: a process next to each Python worker that aborts the worker's transaction when it is killed.

A worker that receives SIGKILL during a task cannot abort its transaction, and readers would wait until that times out.
So the worker leaves the name of each transaction that it begins with a `DetachedProcess`, and withdraws it when the
transaction is prepared or ended. What is left when the worker has ended is aborted.

A decided transaction is never aborted: a task reports its transaction to the driver only after the name was withdrawn,
and the watchdog process looks for a name when the worker has ended. So what it aborts was never reported to a driver.
The abort names producer id and epoch, which no later transaction shares: the transactional id belonged to the worker,
which is gone.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from broker_core.types import TopicPartition
from spark_eos.client.transactions import TransactionIdentity
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.runtime import ProcessState, Runtime
from spark_eos.sink.cluster import client_transaction
from spark_eos.sink.detached_process import DetachedProcess, end_unprepared
from spark_eos.sink.prepared import OpenTransaction, WrittenRange
from spark_eos.sink.task.transaction import TransactionPort

logger = logging.getLogger(__name__)


class Watchdog:
    """The watchdog of this process; if it cannot be started, or was killed, transactions are not watched."""

    def __init__(self) -> None:
        self._process: DetachedProcess | None = None
        try:
            self._process = DetachedProcess()
        except OSError as error:
            logger.warning(
                "no watchdog process for this worker; if the worker is killed, its transaction stays "
                "open until its timeout: %s",
                error,
            )

    def begin(self, options: ClientOptions, identity: TransactionIdentity) -> None:
        """Abort a transaction if this process ends before `release`; what was begun before is forgotten."""
        if self._process is None:
            return
        self._process.hand_over(partial(end_unprepared, options, identity))
        if self._process.has_ended:
            logger.warning("the watchdog process of this worker has ended; the worker is no longer watched")
            self._process.close()
            self._process = None

    def release(self) -> None:
        """Record that the transaction is prepared or ended."""
        if self._process is not None:
            self._process.hand_over(None)


@dataclass(slots=True)
class WatchedTransaction:
    """A task's transaction that is aborted when its worker ends, unless it was flushed."""

    transaction: TransactionPort
    options: ClientOptions
    watchdog: Watchdog

    def begin(self, transaction: OpenTransaction) -> None:
        self.watchdog.begin(self.options, client_transaction(transaction))
        self.transaction.begin(transaction)

    def expect(self, topic_partitions: Collection[TopicPartition]) -> None:
        self.transaction.expect(topic_partitions)

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        self.transaction.send(topic_partition, batches)

    @property
    def retries(self) -> int:
        return self.transaction.retries

    def flush(self) -> Sequence[WrittenRange]:
        """Wait until everything is acknowledged; from then on only the driver ends the transaction."""
        ranges = self.transaction.flush()
        self.watchdog.release()
        return ranges

    def abort(self) -> None:
        self.transaction.abort()
        self.watchdog.release()


def watched(process: ProcessState, transaction: TransactionPort, options: SinkOptions) -> TransactionPort:
    """Return a task's transaction, watched by the watchdog of its process; a forked worker has its own.

    If brokers do not verify transactions it is not watched: what a killed worker has sent may arrive after the abort,
    and would hang there.
    """
    if options.allow_hanging_transactions:
        return transaction
    return WatchedTransaction(transaction, options.client, process.part(_watchdog))


def _watchdog(_runtime: Runtime) -> Watchdog:
    return Watchdog()
