"""The transaction that a task writes into, and the process next to each Python worker that aborts it for a killed one.

A worker that receives SIGKILL during a task cannot abort its transaction, and readers would wait until that times out.
So the worker leaves the name of each transaction that it begins with a `DetachedProcess`, and withdraws it when the
transaction is prepared or ended. What is left when the worker has ended is aborted. It was never reported to a driver,
since the name is withdrawn before that. The abort names producer id and epoch, which no later transaction shares.
"""

import logging
from functools import partial

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import leaderless_among
from spark_eos.client.producer import TransactionalProducer
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.runtime import ProcessState, Runtime
from spark_eos.sink.detached_process import DetachedProcess, end_unprepared
from spark_eos.sink.prepared import WrittenRange

logger = logging.getLogger(__name__)


class Watchdog:
    """The watchdog of this process; one that was killed, or could not be started, is started for the next transaction.

    Until then transactions are not watched.
    """

    def __init__(self, _runtime: Runtime | None = None) -> None:
        self._process: DetachedProcess | None = None

    def begin(self, options: ClientOptions, transaction: OpenTransaction) -> None:
        """Abort a transaction if this process ends before `release`; what was begun before is forgotten."""
        if self._process is not None and self._process.has_ended:
            self._process.close()
            self._process = None
        try:
            self._process = self._process or DetachedProcess()
        except OSError as error:
            logger.warning(
                "no watchdog process for transaction %s; if the worker is killed, it stays open until its timeout: %s",
                transaction.transactional_id,
                error,
            )
            return
        self._process.hand_over(partial(end_unprepared, options, transaction))

    def release(self) -> None:
        if self._process is not None:
            self._process.hand_over(None)


class TaskTransaction(TransactionalProducer):
    """The producer of a worker process; with a watchdog, the end of the worker aborts what is not prepared."""

    def __init__(self, client: KafkaClient, options: SinkOptions, watchdog: Watchdog | None = None) -> None:
        if options.topic is not None and options.topic_id is not None:
            # What this process knows may be minutes old. A leader refuses the old id only in requests that name it.
            client.recent.forget_other(options.topic, options.topic_id)
        super().__init__(
            client, buffer_memory_bytes=options.buffer_bytes // 2, max_request_bytes=options.max_request_bytes
        )
        self.watchdog = watchdog

    def begin(self, identity: OpenTransaction) -> None:
        if self.watchdog is not None:
            self.watchdog.begin(self._client.options, identity)
        super().begin(identity)

    def prepare(self) -> tuple[WrittenRange, ...]:
        """Wait until everything is acknowledged; the transaction stays open, and only the driver ends it."""
        written = sorted(self.flush().items())
        ids = self.topic_ids({place.topic for place, _ in written})
        self._release()
        return tuple(
            WrittenRange(
                *place,
                result.first_offset,
                result.last_offset,
                result.record_count,
                ids[place.topic],
                result.leader_epoch,
                result.next_sequence,
            )
            for place, result in written
        )

    def abort(self, timeout_ms: float | None = None, *, sends_end: bool = True) -> EndAnswer | None:
        """Abort; while a partition has no leader, the watchdog or the driver does that later (`without_leaders`)."""
        leaderless = leaderless_among(self._client, self.places)
        answer = super().abort(timeout_ms, sends_end=sends_end and leaderless is None)
        if leaderless is None:
            self._release()
        else:
            logger.warning("a transaction is left to the abort sweep, because %s has no leader", leaderless)
        return answer

    def _release(self) -> None:
        if self.watchdog is not None:
            self.watchdog.release()


def watch(process: ProcessState, transaction: TaskTransaction, options: SinkOptions) -> None:
    """Let the watchdog of a task's process watch its transaction; a forked worker has its own.

    If brokers do not verify transactions it is not watched: what a killed worker has sent may arrive after the abort,
    and would hang there.
    """
    if not options.allow_hanging_transactions:
        transaction.watchdog = process.part(Watchdog)
