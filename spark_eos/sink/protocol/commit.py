"""The commit of a micro-batch: verify, decide, complete, sweep.

The decision is the commit point. A failure before it means that nothing is or becomes visible. After it, the
micro-batch is rolled forward, by this driver or by the next process that reads the decision. The exception is a
transaction that is lost before any is committed: then all are rolled back and the micro-batch is written again
(`action_table`).

Spark calls `abort` also when `commit` fails, so `abort` reads the decision log first and never touches a decided
transaction.

An error after the decision states that the micro-batch is decided: taking it for "not written" and writing again would
duplicate the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from broker_core.types import counted
from spark_eos.errors import AuthorizationError, EosKafkaError, LostTransactionError, TopicError
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.messages import (
    AlreadyCommitted,
    Prepared,
    PreparedTransaction,
    TaskMessage,
    check_messages,
    show_other_attempts,
)
from spark_eos.sink.protocol.action_table import Settlement, SettlementAction
from spark_eos.sink.protocol.asks import Accepted, Count, Decided, Monotonic, Now, Reach, ShowMetrics, Step, info, warn
from spark_eos.sink.protocol.compared_decisions import is_compared_soon, note_compared, uncompared
from spark_eos.sink.protocol.completion import complete
from spark_eos.sink.protocol.decision_errors import OutdatedError, disagreement_error, other_plan_error
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.ownership import Ownership
from spark_eos.sink.protocol.rerun_checks import (
    check_first_write,
    check_rows,
    check_write,
    has_same_rows,
    renamed_error,
    rolled_back_error,
    topics_of,
    why_closed,
)
from spark_eos.sink.protocol.retirement import Retirement, is_due, retire
from spark_eos.sink.protocol.retry_policy import RetryPolicy
from spark_eos.sink.protocol.run_sweep import RunSweep
from spark_eos.sink.protocol.settlement import judge_older, lost_error, settle
from spark_eos.sink.protocol.state import RunMemory
from spark_eos.sink.protocol.superseded_runs import left_open, superseding
from spark_eos.sink.protocol.verification import TimeLimits, decide_until_ms, verify


@dataclass(slots=True)
class RunCommits:
    """The commits and aborts of the micro-batches of one run of one query.

    `may_be_decided` is False if no earlier run can have decided: a batch job without a job id. `may_hang` is True if
    partition leaders do not verify transactions; then no transaction may be ended that a task may still write to.
    """

    log: DecisionLog
    prefix: str
    query: str
    run: str
    policy: OnLostTransaction
    may_be_decided: bool = True
    memory: RunMemory = field(default_factory=RunMemory)
    retirement: Retirement = Retirement.REPLACE
    write: str = ""
    discard_differing_rows: bool = False
    may_hang: bool = False

    def __post_init__(self) -> None:
        """Let the log know the run."""
        self.log.scan.run = self.run

    async def commit(self, messages: Sequence[TaskMessage], micro_batch: int) -> tuple[PreparedTransaction, ...]:
        """Make a micro-batch visible, or raise; return only when each of its transactions is committed.

        The result is what this call has committed: nothing if an earlier one had decided.
        """
        check_messages(messages, self.query, self.run, micro_batch)
        check_first_write(self.query, self.memory.state.finished, (micro_batch, self.write))
        await Accepted(messages)
        prepared = [message.transaction for message in messages if isinstance(message, Prepared)]
        self.log.scan.topics = topics_of(messages)
        if show_other_attempts(messages):
            self.memory.sweeps(sign_at=await Monotonic())
        retries = RetryPolicy(decide_until_ms(prepared, await Now()))
        is_first = True
        while True:
            try:
                committed = await self._commit_once(messages, prepared, micro_batch, is_first=is_first)
                self.memory.note(finished=(micro_batch, self.write))
                return committed
            except EosKafkaError as error:
                if isinstance(error, TopicError | AuthorizationError) and retries.is_undecided:
                    await self._orphans(micro_batch).drop(prepared)
                await retries.wait_after(error)
                is_first = False
                await warn("micro-batch %d of %s: retrying the commit: %s", micro_batch, self.query, error)
                await Count("commit_retries")
                if not isinstance(error, OutdatedError):
                    # The known coordinators may be disconnected from the other brokers.
                    await self.log.forget_coordinators()

    async def _commit_once(
        self,
        messages: Sequence[TaskMessage],
        prepared: Sequence[PreparedTransaction],
        micro_batch: int,
        *,
        is_first: bool,
    ) -> tuple[PreparedTransaction, ...]:
        """Commit with as few requests as possible the first time, and step by step after a failure."""
        await Reach("driver.before_verify", micro_batch)
        driver = self._driver(micro_batch, messages)
        is_repeated = any(isinstance(message, AlreadyCommitted) for message in messages)
        newest = await driver.newest(has_rows=bool(prepared), must_look=is_repeated or not is_first)
        # The executors of an earlier run may outlive their driver for a while.
        if newest is not None and newest.run != self.run:
            self.memory.sweeps(sign_at=await Monotonic())
        is_new = newest is None or newest.micro_batch < micro_batch
        if prepared and is_new and self._is_query and not self.memory.state.has_decided(self.run):
            await self._check_not_renamed(newest, messages, micro_batch)
        if newest is not None and newest.micro_batch == micro_batch:
            check_write(newest, self.run, self.write)
        settled = await self._settle(newest, micro_batch)
        if settled is not None and settled.is_closed:
            await self._compare(newest, messages, micro_batch, is_closed=True)
            await self._finish_decided(driver, settled, prepared)
            return ()
        kept = await self._kept(settled, messages, micro_batch)
        splits = {transaction.split for transaction in kept}
        wanted = [transaction for transaction in prepared if transaction.split not in splits]
        dropped = [transaction for transaction in prepared if transaction.split in splits]
        decision = None
        # Without rows there is nothing to decide, unless a lost decision would otherwise remain the newest.
        if wanted or settled is not None:
            decision = await self._decide_and_complete(driver, messages, wanted, kept, settled, is_first)
        if dropped or self.memory.state.sweeps.is_due(await Monotonic()):
            superseded = () if decision is None else decision.superseded
            await self._orphans(micro_batch).sweep(superseded, dropped, decided=decision)
        await ShowMetrics(self.query, micro_batch)
        await Reach("driver.after_sweep", micro_batch)
        if decision is None:
            return ()
        await self._retire(decision)
        return tuple(wanted)

    async def abort(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """End everything this run has open, except what is decided."""
        await Reach("driver.abort", micro_batch)
        async with Step("abort", micro_batch):
            prepared = [message.transaction for message in messages if isinstance(message, Prepared)]
            swept = await self._orphans(micro_batch).abort(prepared)
        await Reach("driver.after_abort", micro_batch)
        await Count("transactions_aborted", len(swept))
        await info(
            "micro-batch %d of %s: aborted, %d prepared, %d ended", micro_batch, self.query, len(prepared), len(swept)
        )

    async def _examine(self, before: Decision, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """Raise before the take-over: a query that must stop must not fence the one whose checkpoint it copied."""
        if before.micro_batch > micro_batch:
            raise rolled_back_error(before, micro_batch)
        if before.micro_batch == micro_batch:
            # A task that wrote did not know of the decision, or found that its part was lost.
            is_known = all(isinstance(message, AlreadyCommitted) for message in messages)
            is_closed = not is_known and (await settle(before)).is_closed
            if is_known or is_closed:
                await self._compare(before, messages, micro_batch, is_closed=is_closed)

    async def _compare(
        self, newest: Decision | None, messages: Sequence[TaskMessage], micro_batch: int, *, is_closed: bool
    ) -> None:
        """Raise if the micro-batch was decided with other rows; one that an operator closed is not compared."""
        if newest is None or newest.micro_batch != micro_batch or newest.is_skipped:
            return
        check_write(newest, self.run, self.write)
        # Unless the micro-batch is known to be closed, a task that wrote may have found that its part was lost.
        if is_closed or not any(isinstance(message, Prepared) for message in messages):
            await self._check_rows(newest, messages, by_task=False)

    async def _check_not_renamed(
        self, newest: Decision | None, messages: Sequence[TaskMessage], micro_batch: int
    ) -> None:
        """Raise if an earlier run wrote this micro-batch under another name; see `compared_decisions`."""
        for each in await uncompared(await self.log.namesakes(micro_batch, newest), self.run):
            if each.micro_batch > micro_batch:
                raise rolled_back_error(each, micro_batch)
            has_other_rows = newest is not None and not has_same_rows(each, messages)
            if has_other_rows or (await settle(each)).took_no_effect:
                continue
            if not await is_compared_soon(each, self.run):
                raise renamed_error(each, self.query, messages)

    async def _check_rows(self, decision: Decision, messages: Sequence[TaskMessage], *, by_task: bool) -> None:
        await check_rows(
            decision,
            messages,
            is_job=self.retirement is Retirement.MARK,
            accept_difference=self.discard_differing_rows,
            by_task=by_task,
        )

    def _orphans(self, micro_batch: int) -> RunSweep:
        return RunSweep(self.log, self.prefix, self.query, self.run, self.memory, micro_batch, self.may_hang)

    def _driver(self, micro_batch: int, messages: Sequence[TaskMessage]) -> Ownership:
        return Ownership(
            self.log,
            self.run,
            self.memory,
            micro_batch,
            lambda before: self._examine(before, messages, micro_batch),
            self.may_be_decided,
            self._is_query,
        )

    @property
    def _is_query(self) -> bool:
        """Return whether there is more than one micro-batch."""
        return self.retirement is Retirement.REPLACE

    async def _settle(self, newest: Decision | None, micro_batch: int) -> Settlement | None:
        """Roll the newest decision forward; return None if it is not for this micro-batch."""
        if newest is None:
            return None
        if newest.micro_batch > micro_batch:
            raise rolled_back_error(newest, micro_batch)
        if newest.run == self.run and newest.micro_batch < micro_batch and not self.write:
            # Another process decided and completed it: a stream whose commit fails has no further micro-batch. A
            # foreachBatch function may have caught the error and continued.
            return None
        await Reach("driver.before_settle", micro_batch)
        async with Step("roll forward", micro_batch):
            settled = await settle(newest)
        await Reach("driver.settled", micro_batch)
        if newest.micro_batch == micro_batch:
            return settled
        await judge_older(settled, self.query, micro_batch)
        return None

    async def _kept(
        self, settled: Settlement | None, messages: Sequence[TaskMessage], micro_batch: int
    ) -> tuple[PreparedTransaction, ...]:
        """Return the transactions that an earlier decision for this micro-batch committed and that a new one repeats.

        Each task judged for itself what to write. A new decision is correct only if they all came to the same result as
        the driver, or wrote more because they did not know of the decision: the surplus is dropped if its rows are the
        same.
        """
        if settled is None or settled.took_no_effect:
            skipped = [message.split for message in messages if isinstance(message, AlreadyCommitted)]
            if skipped:
                raise disagreement_error(settled, self.query, micro_batch, skipped)
            return ()
        if settled.action is not SettlementAction.WRITE_LOST or self.policy is not OnLostTransaction.REWRITE:
            raise lost_error(settled)
        lost = {transaction.split for transaction in settled.lost}
        written = {message.split for message in messages if isinstance(message, Prepared)}
        decided = {transaction.split for transaction in settled.decision.transactions}
        if not lost <= written <= decided or len(messages) != settled.decision.split_count:
            raise other_plan_error(settled, len(messages), written)
        await self._check_rows(settled.decision, messages, by_task=True)
        return settled.committed

    async def _decide_and_complete(
        self,
        driver: Ownership,
        messages: Sequence[TaskMessage],
        prepared: Sequence[PreparedTransaction],
        kept: tuple[PreparedTransaction, ...],
        settled: Settlement | None,
        is_first: bool,
    ) -> Decision:
        micro_batch = driver.micro_batch
        # Before the verification the limits are those that the tasks recorded.
        limits = TimeLimits(0, decide_until_ms(prepared, await Now()), None)

        async def verified() -> int:
            nonlocal limits
            async with Step("verify", micro_batch):
                limits = await verify(self.query, micro_batch, prepared)
            return limits.decide_by_ms

        if not is_first:
            await verified()
        decision = Decision(
            prefix=self.log.prefix,
            query=self.query,
            run=self.run,
            micro_batch=micro_batch,
            attempt=settled.decision.attempt + 1 if settled is not None else 1,
            split_count=len(messages),
            decided_at_ms=await Now(),
            transactions=(*kept, *prepared),
            superseded=self.memory.state.superseded,
            write=self.write,
        )
        await Reach("driver.before_decide", micro_batch)
        async with Step("decide", micro_batch):
            # On the first attempt the decision is sent while its transactions are verified. In an outage the
            # verification can take long, and a decision that is written but not ended blocks all readers of the
            # decision topic.
            await driver.decide(decision, limits.decide_by_ms, verified if is_first else None)
        if self.memory.state.began_at_ms is None:
            self.memory.note(began_at_ms=limits.began_at_ms)
        await Decided()
        await Reach("driver.after_decide", micro_batch)
        try:
            async with Step("complete", micro_batch):
                # A process that was paused in between checks first: some of the transactions may be lost.
                is_open = await Now() < limits.decide_by_ms
                await complete(decision, prepared, limits.ends_at_ms, is_open=is_open)
        except BaseException as error:
            # If there is another micro-batch anyway, it begins with the newest decision.
            self.memory.note(identity=None, decided=None)
            if isinstance(error, LostTransactionError):
                await driver.explain_loss(error)
            raise
        await Reach("driver.after_complete", micro_batch)
        await Count("transactions_committed", len(prepared))
        await Count("records_committed", sum(t.record_count for t in prepared))
        await Count("bytes_committed", sum(m.size_bytes for m in messages if isinstance(m, Prepared)))
        await Count("produce_retries", sum(m.retries for m in messages if isinstance(m, Prepared)))
        await info(
            "micro-batch %d of %s: committed %s in %s",
            micro_batch,
            self.query,
            counted(decision.record_count, "record"),
            counted(len(decision.transactions), "transaction"),
        )
        return decision

    async def _finish_decided(
        self, driver: Ownership, settled: Settlement, prepared: Sequence[PreparedTransaction]
    ) -> None:
        """End a micro-batch that was decided before; its own transactions, if any, are swept as orphans."""
        decision, micro_batch = settled.decision, driver.micro_batch
        if decision.run == self.run:
            await warn(
                "micro-batch %d of %s: an earlier attempt at this commit has decided it", micro_batch, self.query
            )
        else:
            await warn(
                "micro-batch %d of %s: nothing to write, %s; dropping %s",
                micro_batch,
                self.query,
                why_closed(decision),
                counted(len(prepared), "prepared transaction"),
            )
            if self._is_query:
                await note_compared(decision, self.run)
        decision = await self._supersede(driver, decision)
        runs = decision.superseded if self._is_query else (decision.run,)
        await self._orphans(micro_batch).sweep(runs, prepared)
        await Reach("driver.after_sweep", micro_batch)
        await self._retire(decision)

    async def _supersede(self, driver: Ownership, decision: Decision) -> Decision:
        """Record that another run is superseded, if it left a transaction open that must be ended.

        Without this record its driver, if it wakes up, could decide the very transactions that are swept.
        """
        try:
            prefixes = {self.prefix, self.log.prefix}
            if not self._is_query or decision.run == self.run or not await left_open(decision, prefixes):
                return decision
            noted = replace(decision, revision=decision.revision + 1, superseded=superseding(decision, self.run))
            await driver.amend(noted, await Now())
        except EosKafkaError as error:
            await warn(
                "micro-batch %d of %s is committed; the transactions that run %s left open are swept later: %s",
                driver.micro_batch,
                self.query,
                decision.run,
                error,
            )
            return decision
        return noted

    async def _retire(self, decision: Decision) -> None:
        """Record a decision's completion, or delete it; the micro-batch is committed, so a failure is only logged."""
        identity = self.memory.state.identity
        if identity is None or not is_due(decision, self.retirement):
            return
        try:
            async with Step("close", decision.micro_batch):
                self.memory.note(identity=await retire(self.log, identity, decision, self.retirement, await Now()))
        except EosKafkaError as error:
            self.memory.note(identity=None)
            # The remedy of the error is for operators; a run of the job that comes later records it.
            await warn(
                "job %s is committed; its completion could not be recorded in the decision topic: %s",
                self.query,
                error.happened,
            )
