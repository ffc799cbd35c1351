"""The commit of a micro-batch: verify, decide, complete, sweep.

The decision is the commit point. A failure before it means that nothing is or becomes visible. After it, the
micro-batch is rolled forward, by this driver or by the next process that reads the decision, and an error says that it
is decided: to write it again would duplicate rows. The exception is a transaction that is lost before any is committed:
then all are rolled back and the micro-batch is written again (`action_table`).

Spark calls `abort` also when `commit` fails, so `abort` never touches a decided transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from broker_core.types import counted
from spark_eos.errors import AuthorizationError, EosKafkaError, LostTransactionError, TopicError
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.messages import AlreadyCommitted, Prepared, TaskMessage, show_other_attempts
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.action_table import SETTLE_LIMIT_SECONDS, Settlement, SettlementAction
from spark_eos.sink.protocol.asks import Count, Gauge, Monotonic, Now, Reach, Step, info, warn
from spark_eos.sink.protocol.decision_errors import OutdatedError, disagreement_error, lost_error, other_plan_error
from spark_eos.sink.protocol.orphan_sweep import RunSweep, left_open, superseding
from spark_eos.sink.protocol.ownership import Ownership
from spark_eos.sink.protocol.rerun_checks import (
    check_first_write,
    check_rows,
    check_write,
    has_same_rows,
    is_compared_soon,
    note_compared,
    renamed_error,
    rolled_back_error,
    topics_of,
    uncompared,
    why_closed,
)
from spark_eos.sink.protocol.retirement import Retirement, is_due, retire
from spark_eos.sink.protocol.retry_policy import RetryPolicy
from spark_eos.sink.protocol.settlement import complete, judge_other, settle
from spark_eos.sink.protocol.state import QueryRun
from spark_eos.sink.protocol.verification import TimeLimits, check_topics_kept, decide_until_ms, verify

# In which the brokers of a partition elect another leader.
_ELECTION_MS: Final = 15_000


async def commit(own: QueryRun, messages: Sequence[TaskMessage], micro_batch: int) -> tuple[PreparedTransaction, ...]:
    """Make a micro-batch visible, or raise; return only when each of its transactions is committed.

    The result is what this call has committed: nothing if an earlier one had decided.
    """
    check_first_write(own.query, own.state.finished, (micro_batch, own.write))
    await Gauge("undecided_since_timestamp_seconds", await Now() // 1000)
    return await MicroBatchCommit(own, messages, micro_batch, prepared_of(messages)).commit()


async def abort(own: QueryRun, messages: Sequence[TaskMessage], micro_batch: int) -> None:
    await Reach("driver.abort", micro_batch)
    prepared = prepared_of(messages)
    async with Step("abort", micro_batch):
        swept = await RunSweep(own, micro_batch).abort(prepared)
    await Reach("driver.after_abort", micro_batch)
    await Count("transactions_aborted", len(swept))
    await info(f"micro-batch {micro_batch} of {own.query}: aborted, {len(prepared)} prepared, {len(swept)} ended")


def prepared_of(messages: Sequence[TaskMessage]) -> list[PreparedTransaction]:
    return [message.transaction for message in messages if isinstance(message, Prepared)]


@dataclass(slots=True)
class MicroBatchCommit:
    """The commit of one micro-batch, with as many attempts as it takes."""

    own: QueryRun
    messages: Sequence[TaskMessage]
    micro_batch: int
    prepared: list[PreparedTransaction]
    # The earlier decision that has the rows of this commit, and the settlement with all transactions committed: both
    # stay so, and need no second look after the take-over.
    compared: Decision | None = None
    effective: Settlement | None = None
    # The tasks have recorded limits; the verification reads newer ones from the coordinators.
    limits: TimeLimits = field(init=False)

    async def commit(self) -> tuple[PreparedTransaction, ...]:
        own = self.own
        own.log.scan.topics = topics_of(self.messages)
        if show_other_attempts(self.messages):
            own.memory.note(sign_at=await Monotonic())
        retries = RetryPolicy(decide_until_ms(self.prepared, await Now()))
        is_first = True
        while True:
            try:
                committed = await self._attempt(is_first=is_first)
                began = own.state.began_query or self.micro_batch == 0
                own.memory.note(finished=(self.micro_batch, own.write), began_query=began)
                return committed
            except EosKafkaError as error:
                if isinstance(error, TopicError | AuthorizationError) and retries.is_undecided:
                    await self._orphans.drop(self.prepared)
                await retries.wait_after(error)
                is_first = False
                await warn(f"micro-batch {self.micro_batch} of {own.query}: retrying the commit: {error}")
                await Count("commit_retries")
                if not isinstance(error, OutdatedError):
                    # The known coordinators may be disconnected from the other brokers.
                    await own.log.forget_coordinators()

    async def _attempt(self, *, is_first: bool) -> tuple[PreparedTransaction, ...]:
        """Commit with as few requests as possible the first time, and step by step after a failure."""
        own, prepared = self.own, self.prepared
        await Reach("driver.before_verify", self.micro_batch)
        driver = Ownership(own, self.micro_batch, self._examine)
        is_repeated = any(isinstance(message, AlreadyCommitted) for message in self.messages)
        newest = await driver.newest(
            has_rows=bool(prepared), is_told=is_repeated, must_look=is_repeated or not is_first
        )
        # The executors of an earlier run may outlive their driver for a while.
        if newest is not None and newest.run != own.run:
            own.memory.note(sign_at=await Monotonic())
        is_new = newest is None or newest.micro_batch < self.micro_batch
        if prepared and is_new and own.is_query and not own.state.has_decided(own.run):
            await self._check_not_renamed(newest)
            is_later = self.micro_batch and is_first and not own.state.began_query
            if is_later and newest is None and not own.log.scan.knows_query:
                # Only where its earlier ones had no rows, or another format wrote them, is that as it should be.
                await warn(
                    f"micro-batch {self.micro_batch} of {own.query}: the cluster knows no decision of an earlier one. "
                    "If this sink has written rows of this query before, the decisions are gone, as on a cluster that "
                    "was set up again. If the query had not finished this micro-batch when it was stopped, look for "
                    "its rows in the output: they may be there twice"
                )
        if newest is not None and newest.micro_batch == self.micro_batch:
            # An older pointer may show an attempt, or a revision, that a newer one has replaced.
            await own.log.check_newest(newest)
        settled = await self._settle(newest)
        if settled is not None and settled.is_closed:
            await self._compare(settled.decision)
            await self._finish_decided(driver, settled)
            return ()
        kept = await self._kept(settled)
        splits = {transaction.split for transaction in kept}
        wanted = [transaction for transaction in prepared if transaction.split not in splits]
        dropped = [transaction for transaction in prepared if transaction.split in splits]
        decision = None
        # Without rows there is nothing to decide, unless a lost decision would otherwise remain the newest.
        if wanted or settled is not None:
            decision = await self._decide_and_complete(driver, wanted, kept, settled, is_first)
        if dropped or own.state.is_sweep_due(await Monotonic()):
            superseded = () if decision is None else decision.superseded
            await self._orphans.sweep(superseded, dropped, decided=decision)
        await Reach("driver.after_sweep", self.micro_batch)
        if decision is None:
            return ()
        await self._retire(decision)
        return tuple(wanted)

    async def _examine(self, before: Decision) -> None:
        """Raise before the take-over: a query that must stop must not fence the query whose checkpoint it copied."""
        if before.micro_batch > self.micro_batch:
            raise rolled_back_error(before, self.micro_batch)
        if before.micro_batch == self.micro_batch:
            check_write(before, self.own.run, self.own.write)
            # A task that wrote did not know of the decision, or found that its part was lost.
            is_known = all(isinstance(message, AlreadyCommitted) for message in self.messages)
            settled = None if is_known else await self._settled(before)
            if settled is None or settled.is_closed:
                await self._compare(before)
            elif settled.pending and not settled.still_open:
                # An open one may be committed by its driver yet; what is hidden stays so for as long.
                raise lost_error(settled)

    async def _compare(self, decision: Decision) -> None:
        """Raise if this micro-batch was decided with other rows; one that an operator closed is not compared."""
        if not decision.is_skipped and decision != self.compared:
            await self._check_rows(decision, by_task=False)
            self.compared = decision

    async def _check_not_renamed(self, newest: Decision | None) -> None:
        """Raise if an earlier run wrote this micro-batch under another name; see `rerun_checks`.

        What it decided is completed, because the function may not make that write any more.
        """
        own = self.own
        await own.log.check_newest(newest)
        others = own.log.scan.namesakes()
        # A driver may have left one open before some micro-batches without rows.
        last = others[0].micro_batch if others else 0
        since = min(self.micro_batch - 1, last) if newest is None else newest.micro_batch
        for each in await uncompared([each for each in others if each.micro_batch >= since], own.run):
            if each.micro_batch > self.micro_batch:
                raise rolled_back_error(each, self.micro_batch)
            settled = await self._settled(each)
            if each.micro_batch == self.micro_batch and (newest is None or has_same_rows(each, self.messages)):
                if not settled.took_no_effect and not await is_compared_soon(each, own.run):
                    raise renamed_error(each, own.query, self.messages)
                continue
            # A thread makes that write now, or the function makes it later, or not any more: then nothing else finds it
            # incomplete.
            is_made = each.micro_batch == self.micro_batch and not settled.is_closed
            if not settled.took_no_effect and not (is_made and await is_compared_soon(each, own.run)):
                await judge_other(settled, self.micro_batch)
            if each.micro_batch < self.micro_batch:
                # For the other writes of the function.
                await note_compared(each, own.run)

    async def _check_rows(self, decision: Decision, *, by_task: bool) -> None:
        await check_rows(
            decision,
            self.messages,
            is_job=self.own.retirement is Retirement.MARK,
            accept_difference=self.own.discard_differing_rows,
            by_task=by_task,
        )

    @property
    def _orphans(self) -> RunSweep:
        return RunSweep(self.own, self.micro_batch)

    async def _settle(self, newest: Decision | None) -> Settlement | None:
        """Roll the newest decision forward; return None if it is not for this micro-batch."""
        own = self.own
        if newest is None:
            return None
        if newest.micro_batch > self.micro_batch:
            raise rolled_back_error(newest, self.micro_batch)
        if newest.run == own.run and newest.micro_batch < self.micro_batch and not own.write:
            # Another process decided and completed it: a stream whose commit fails has no further micro-batch. A
            # foreachBatch function may have caught the error and continued.
            return None
        if newest.micro_batch == self.micro_batch:
            check_write(newest, own.run, own.write)
        await Reach("driver.before_settle", self.micro_batch)
        async with Step("roll forward", self.micro_batch):
            settled = await self._settled(newest)
        await Reach("driver.settled", self.micro_batch)
        if newest.micro_batch == self.micro_batch:
            return settled
        await judge_other(settled, self.micro_batch)
        return None

    async def _settled(self, decision: Decision) -> Settlement:
        if self.effective is not None and self.effective.decision == decision:
            return self.effective
        limit_seconds = SETTLE_LIMIT_SECONDS
        if decision.micro_batch < self.micro_batch:
            # The query goes on if the fate of an older one stays hidden, and this one must still have the time. An
            # election has it in any case: what is lost is reported now or never.
            left_ms = decide_until_ms(self.prepared, now_ms := await Now()) - now_ms
            shortest_ms = min([_ELECTION_MS, *(each.timeout_ms // 2 for each in self.prepared)])
            limit_seconds = min(limit_seconds, max(shortest_ms, left_ms / 2) / 1_000)
        settled = await settle(decision, limit_seconds)
        if settled.took_effect:
            self.effective = settled
        return settled

    async def _kept(self, settled: Settlement | None) -> tuple[PreparedTransaction, ...]:
        """Return the transactions that an earlier decision for this micro-batch committed and that a new one repeats.

        A new decision is correct only if all tasks came to the same result as the driver, or wrote more because they
        did not know of the decision: the surplus is dropped if its rows are the same.
        """
        if settled is None or settled.took_no_effect:
            skipped = [message.place.split for message in self.messages if isinstance(message, AlreadyCommitted)]
            if skipped:
                raise disagreement_error(settled, self.own.query, self.own.run, self.micro_batch, skipped)
            return ()
        if settled.action is not SettlementAction.WRITE_LOST or self.own.policy is not OnLostTransaction.REWRITE:
            raise lost_error(settled)
        lost = {transaction.split for transaction in settled.lost}
        written = {message.place.split for message in self.messages if isinstance(message, Prepared)}
        decided = {transaction.split for transaction in settled.decision.transactions}
        if not lost <= written <= decided or len(self.messages) != settled.decision.split_count:
            raise other_plan_error(settled, len(self.messages), written)
        await self._check_rows(settled.decision, by_task=True)
        repeated = replace(settled.decision, transactions=settled.committed)
        await check_topics_kept(repeated, is_job=not self.own.is_query)
        if self.own.is_query:
            await note_compared(settled.decision, self.own.run)
        return settled.committed

    async def _verify(self, prepared: Sequence[PreparedTransaction]) -> int:
        async with Step("verify", self.micro_batch):
            self.limits = await verify(self.own.query, self.micro_batch, prepared)
        return self.limits.decide_by_ms

    async def _decide_and_complete(
        self,
        driver: Ownership,
        prepared: Sequence[PreparedTransaction],
        kept: tuple[PreparedTransaction, ...],
        settled: Settlement | None,
        is_first: bool,
    ) -> Decision:
        own, micro_batch = self.own, self.micro_batch
        self.limits = TimeLimits(0, decide_until_ms(prepared, await Now()), None)
        if not is_first:
            await self._verify(prepared)
        decision = Decision(
            prefix=own.log.prefix,
            query=own.query,
            run=own.run,
            micro_batch=micro_batch,
            attempt=settled.decision.attempt + 1 if settled is not None else 1,
            split_count=len(self.messages),
            decided_at_ms=await Now(),
            transactions=(*kept, *prepared),
            superseded=own.state.superseded,
            write=own.write,
            topic=own.log.scan.topic,
        )
        await Reach("driver.before_decide", micro_batch)
        async with Step("decide", micro_batch):
            # On the first attempt the decision is sent while its transactions are verified. In an outage the
            # verification can take long, and a decision that is written but not ended blocks all readers of the
            # decision topic.
            await driver.decide(
                decision, self.limits.decide_by_ms, partial(self._verify, prepared) if is_first else None
            )
        if own.state.began_at_ms is None:
            own.memory.note(began_at_ms=self.limits.began_at_ms)
        await Gauge("undecided_since_timestamp_seconds", 0)
        await Gauge("uncompleted_since_timestamp_seconds", await Now() // 1000)
        await Reach("driver.after_decide", micro_batch)
        try:
            async with Step("complete", micro_batch):
                # A process that was paused in between checks first: some of the transactions may be lost.
                is_open = await Now() < self.limits.decide_by_ms
                await complete(decision, prepared, self.limits.ends_at_ms, is_open=is_open)
        except BaseException as error:
            # If there is another micro-batch anyway, it begins with the newest decision.
            own.memory.note(identity=None, decided=None)
            if isinstance(error, LostTransactionError):
                await driver.explain_loss(error)
            raise
        await Reach("driver.after_complete", micro_batch)
        await Count("transactions_committed", len(prepared))
        await Count("records_committed", sum(t.record_count for t in prepared))
        await Count("bytes_committed", sum(m.size_bytes for m in self.messages if isinstance(m, Prepared)))
        await Count("produce_retries", sum(m.retries for m in self.messages if isinstance(m, Prepared)))
        await info(
            f"micro-batch {micro_batch} of {own.query}: committed {counted(decision.record_count, 'record')} in "
            f"{counted(len(decision.transactions), 'transaction')}"
        )
        return decision

    async def _finish_decided(self, driver: Ownership, settled: Settlement) -> None:
        """End a micro-batch that was decided before; its own transactions, if any, are swept as orphans."""
        decision, own = settled.decision, self.own
        if decision.run == own.run:
            await warn(
                f"micro-batch {self.micro_batch} of {own.query}: an earlier attempt at this commit has decided it"
            )
        else:
            await warn(
                f"micro-batch {self.micro_batch} of {own.query}: nothing to write, {why_closed(decision)}; dropping "
                f"{counted(len(self.prepared), 'prepared transaction')}"
            )
            if not decision.is_skipped:
                await check_topics_kept(decision, is_job=not own.is_query)
            if own.is_query:
                await note_compared(decision, own.run)
        decision = await self._supersede(driver, decision)
        runs = decision.superseded if own.is_query else (decision.run,)
        await self._orphans.sweep(runs, self.prepared)
        await Reach("driver.after_sweep", self.micro_batch)
        await self._retire(decision)

    async def _supersede(self, driver: Ownership, decision: Decision) -> Decision:
        """Record that another run is superseded if it left a transaction open: it could still decide what is swept."""
        own = self.own
        try:
            if not own.is_query or decision.run == own.run or not await left_open(decision, own.prefixes):
                return decision
            noted = replace(decision, revision=decision.revision + 1, superseded=superseding(decision, own.run))
            await driver.amend(noted, await Now())
        except EosKafkaError as error:
            await warn(
                f"micro-batch {self.micro_batch} of {own.query} is committed; the transactions that run {decision.run} "
                f"left open are swept later: {error}"
            )
            return decision
        return noted

    async def _retire(self, decision: Decision) -> None:
        """Record a decision's completion, or delete it; the micro-batch is committed, so a failure is only logged."""
        own = self.own
        identity = own.state.identity
        if identity is None or not is_due(decision, own.retirement):
            return
        try:
            async with Step("close", decision.micro_batch):
                own.memory.note(identity=await retire(own.log, identity, decision, own.retirement, await Now()))
        except EosKafkaError as error:
            own.memory.note(identity=None)
            # The remedy of the error is for operators; a run of the job that comes later records it.
            await warn(
                f"job {own.query} is committed; its completion could not be recorded in the decision topic: "
                f"{error.happened}"
            )
