"""Take a micro-batch from prepared to visible on the driver: verify, decide, complete, sweep.

The decision is the commit point. Before it, any failure means that nothing is or will be visible; after it, the
micro-batch is only ever rolled forward, by this driver or by whoever meets the decision next. Spark calls `abort` also
when `commit` fails, so `abort` asks the decision log first and never touches a decided transaction.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from broker_core.types import ProducerIdentity
from spark_eos import failpoints
from spark_eos.errors import LostTransactionError, TransactionError
from spark_eos.sink.decision import Decision
from spark_eos.sink.decision_log import DecisionLog, DriverIdentity
from spark_eos.sink.messages import MESSAGE_VERSION, AlreadyCommitted, Prepared, PreparedTransaction, TaskMessage
from spark_eos.sink.metrics import METRICS
from spark_eos.sink.ports import Cluster, Description, TransactionState
from spark_eos.sink.recovery import Settlement, commit_all, lost_error, settle
from spark_eos.sink.sweep import Scope, sweep
from spark_eos.sink_options import OnLostTransaction

LOG: Final = logging.getLogger("spark_eos.sink")
# A transaction this near to its timeout may be gone before EndTxn arrives.
_MARGIN_SHARE: Final = 0.1
_MARGIN_LIMIT_MS: Final = 30_000


@dataclass(slots=True)
class RunState:
    """Remember, in the driver's process, what lasts from one micro-batch of a run to the next."""

    driver: DriverIdentity | None = None
    began_at_ms: int | None = None


@dataclass(slots=True)
class Committer:
    """Commit or abort micro-batches of one run of one query.

    `may_be_decided` is False where no earlier run can be: a batch job without a job id of its own.
    """

    cluster: Cluster
    log: DecisionLog
    prefix: str
    query: str
    run: str
    policy: OnLostTransaction
    may_be_decided: bool = True
    state: RunState = field(default_factory=RunState)

    def commit(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """Make a micro-batch visible, or raise; returns only when every transaction of it is committed."""
        self._check(messages, micro_batch)
        prepared = [message.transaction for message in messages if isinstance(message, Prepared)]
        failpoints.reach("driver.before_verify", micro_batch)
        if self.state.driver is None or self.state.driver.spent:
            with self._step("take over", micro_batch):
                spent = self.state.driver
                self.state.driver = self.log.take_over() if spent is None else self.log.renew(spent)
        settled = self._settle(self.log.newest(micro_batch) if self.may_be_decided else None, micro_batch)
        if settled is not None and settled.took_effect:
            self._finish_decided(settled, micro_batch, prepared)
            return
        kept = self._kept(settled, messages, micro_batch)
        if prepared:
            self._decide_and_complete(messages, micro_batch, prepared, kept, settled)
        self._sweep(micro_batch, [*prepared, *kept])

    def abort(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """End everything this run has open, but for what is decided."""
        failpoints.reach("driver.abort", micro_batch)
        with self._step("abort", micro_batch):
            decided = self.log.newest()
            keep = decided.transactions if decided is not None else ()
            prepared = [message.transaction for message in messages if isinstance(message, Prepared)]
            swept = sweep(
                self.cluster, self._scope(None), [_name(t) for t in keep], self.cluster.transaction_version()
            )
        METRICS.add("transactions_aborted", len(swept))
        LOG.info("micro-batch %d of %s: aborted, %d prepared, %d ended", micro_batch, self.query, len(prepared),
                 len(swept))

    def _check(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        for message in messages:
            if message.version != MESSAGE_VERSION:
                raise TransactionError(
                    f"A task sent a message of version {message.version}; this driver reads {MESSAGE_VERSION}",
                    remedy="Install the same version of this package on the driver and on all executors",
                )
            if (message.query, message.run, message.micro_batch) != (self.query, self.run, micro_batch):
                raise TransactionError(
                    f"A message of query {message.query}, run {message.run}, micro-batch {message.micro_batch} came to "
                    f"the commit of query {self.query}, run {self.run}, micro-batch {micro_batch}"
                )

    def _settle(self, earlier: Decision | None, micro_batch: int) -> Settlement | None:
        """Roll a decision for this or a later micro-batch forward; None when there is none."""
        if earlier is None or earlier.micro_batch < micro_batch:
            return None
        with self._step("roll forward", micro_batch):
            settled = settle(self.cluster, earlier)
        # A later decision wins whatever became of it: this micro-batch was committed before it was written.
        if earlier.micro_batch > micro_batch:
            return replace(settled, lost=(), unknown=())
        return settled

    def _kept(
        self, settled: Settlement | None, messages: Sequence[TaskMessage], micro_batch: int
    ) -> tuple[PreparedTransaction, ...]:
        """Give what an earlier decision for this micro-batch has committed already and a new one repeats.

        The tasks judged for themselves what to write. A new decision is only right if they came to the same view.
        """
        if settled is None or settled.took_no_effect:
            if any(isinstance(message, AlreadyCommitted) for message in messages):
                raise TransactionError(
                    f"A task found micro-batch {micro_batch} of query {self.query} committed, the driver does not",
                    checked="The decision log and the fate of every transaction in it",
                    remedy="Nothing was decided now; start the query again",
                )
            return ()
        lost = {transaction.split for transaction in settled.lost}
        written = {message.split for message in messages if isinstance(message, Prepared)}
        may_rewrite = self.policy is OnLostTransaction.REWRITE and not settled.unknown
        if not may_rewrite or written != lost or len(messages) != settled.decision.split_count:
            raise lost_error(settled)
        return settled.committed

    def _decide_and_complete(
        self,
        messages: Sequence[TaskMessage],
        micro_batch: int,
        prepared: Sequence[PreparedTransaction],
        kept: tuple[PreparedTransaction, ...],
        settled: Settlement | None,
    ) -> None:
        with self._step("verify", micro_batch):
            self._verify(micro_batch, prepared)
        decision = Decision(
            prefix=self.prefix,
            query=self.query,
            run=self.run,
            micro_batch=micro_batch,
            attempt=settled.decision.attempt + 1 if settled is not None else 1,
            split_count=len(messages),
            decided_at_ms=_now_ms(),
            transactions=(*kept, *prepared),
        )
        assert self.state.driver is not None
        failpoints.reach("driver.before_decide", micro_batch)
        with self._step("decide", micro_batch):
            driver, self.state.driver = self.state.driver, None
            self.state.driver = self.log.decide(decision, driver)
        failpoints.reach("driver.after_decide", micro_batch)
        with self._step("complete", micro_batch):
            self._complete(decision, prepared)
        failpoints.reach("driver.after_complete", micro_batch)
        METRICS.add("transactions_committed", len(prepared))
        METRICS.add("records_committed", sum(t.record_count for t in prepared))
        METRICS.add("bytes_committed", sum(m.size_bytes for m in messages if isinstance(m, Prepared)))
        LOG.info("micro-batch %d of %s: %d records in %d transactions are committed", micro_batch, self.query,
                 decision.record_count, len(decision.transactions))

    def _verify(self, micro_batch: int, prepared: Sequence[PreparedTransaction]) -> None:
        """Refuse to decide over a transaction that is not open any more, or not for long."""
        described = self.cluster.describe_transactions([t.transactional_id for t in prepared])
        now_ms = _now_ms()
        for transaction in prepared:
            problem = open_problem(transaction, described.get(transaction.transactional_id), now_ms)
            if problem:
                raise LostTransactionError(
                    f"Micro-batch {micro_batch} of query {self.query} cannot be committed: transaction "
                    f"{transaction.transactional_id} of task {transaction.split} {problem}",
                    checked="DescribeTransactions, before anything was decided: nothing of the micro-batch is visible",
                    remedy="If it timed out, raise transactionTimeout above the longest duration of a micro-batch",
                )
        starts = [d.started_at_ms for d in described.values() if d.started_at_ms >= 0]
        METRICS.set("oldest_open_age_ms", now_ms - min(starts, default=now_ms))
        if self.state.began_at_ms is None and starts:
            self.state.began_at_ms = min(starts)

    def _complete(self, decision: Decision, prepared: Sequence[PreparedTransaction]) -> None:
        steps = [[t] for t in prepared] if failpoints.is_armed("driver.mid_complete") else [list(prepared)]
        committed: set[PreparedTransaction] = set()
        for step in steps:
            committed |= commit_all(self.cluster, step)
            failpoints.reach("driver.mid_complete", decision.micro_batch)
        if len(committed) < len(prepared):
            settled = settle(self.cluster, decision)
            if not settled.took_effect:
                raise lost_error(settled)

    def _finish_decided(
        self, settled: Settlement, micro_batch: int, prepared: Sequence[PreparedTransaction]
    ) -> None:
        """End a micro-batch that was decided before: its own transactions, if any, are swept as orphans."""
        decision = settled.decision
        LOG.info("micro-batch %d of %s: already decided as %d by run %s; %d prepared transactions are dropped",
                 micro_batch, self.query, decision.micro_batch, decision.run, len(prepared))
        self._sweep(micro_batch, decision.transactions)

    def _sweep(self, micro_batch: int, keep: Sequence[PreparedTransaction]) -> None:
        with self._step("sweep", micro_batch):
            scope = self._scope(self.state.began_at_ms)
            swept = sweep(self.cluster, scope, [_name(t) for t in keep], self.cluster.transaction_version())
        METRICS.add("transactions_swept", len(swept))
        for each in swept:
            LOG.warning("micro-batch %d of %s: aborted orphan %s (producer %d, epoch %d)", micro_batch, self.query,
                        each.transactional_id, *each.identity)
        LOG.info("micro-batch %d of %s: %s", micro_batch, self.query, dict(METRICS.snapshot()))
        failpoints.reach("driver.after_sweep", micro_batch)

    def _scope(self, older_than_ms: int | None) -> Scope:
        return Scope(self.prefix, self.query, self.run, older_than_ms)

    @contextmanager
    def _step(self, name: str, micro_batch: int) -> Iterator[None]:
        started = time.monotonic()
        yield
        duration_ms = (time.monotonic() - started) * 1000
        METRICS.set(f"{name.replace(' ', '_')}_ms", round(duration_ms))
        LOG.info("micro-batch %d of %s: %s took %.0f ms", micro_batch, self.query, name, duration_ms)


def open_problem(transaction: PreparedTransaction, description: Description | None, now_ms: int) -> str | None:
    """Say why a prepared transaction must not be decided over; None when it is open and has time left."""
    if description is None:
        return "is unknown to its coordinator"
    identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if description.state is not TransactionState.ONGOING or description.identity != identity:
        return f"is not open: {description.state}, producer {description.identity}, prepared as {identity}"
    left_ms = description.started_at_ms + description.timeout_ms - now_ms
    margin_ms = min(description.timeout_ms * _MARGIN_SHARE, _MARGIN_LIMIT_MS)
    if left_ms < margin_ms:
        return f"times out in {left_ms} ms (its timeout is {description.timeout_ms} ms)"
    return None


def _name(transaction: PreparedTransaction) -> tuple[str, ProducerIdentity]:
    return transaction.transactional_id, ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
