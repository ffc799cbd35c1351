"""The sweep of what a run's attempts left open, after a commit and in an abort: see `orphan_sweep`."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from broker_core.types import TransactionState
from spark_eos.errors import AuthorizationError, EosKafkaError, OptionError, UnansweredError
from spark_eos.sink.decision import Decision
from spark_eos.sink.naming import driver_id, group_id
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import asks
from spark_eos.sink.protocol.answers import Description
from spark_eos.sink.protocol.decision_log import UNSTABLE_LIMIT_MS, UNSTABLE_PATIENCE_MS
from spark_eos.sink.protocol.descriptions import abort_described
from spark_eos.sink.protocol.orphan_sweep import Scope, named, report_unlisted, run_of, superseding, sweep
from spark_eos.sink.protocol.state import QueryRun

# Spark aborts when the run's commit has ended. If that was killed, its open decision is not waited for.
_ABORT_PATIENCE_MS: Final = 1_000
# How long brokers may take to list open transactions. The first delays a query, the second an application that stops
# one.
_SWEEP_WAIT_MS: Final = 1_000
_ABORT_WAIT_MS: Final = 10_000
_PAUSE_SECONDS: Final = 0.1
# The topic of the offsets of groups, of which the pointer is one.
_OFFSETS: Final = "__consumer_offsets"
_ENDED: Final = frozenset(
    {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
        TransactionState.DEAD,
    }
)


@dataclass(slots=True)
class RunSweep:
    """The open transactions of a query that will not be decided, as its driver sees them in one micro-batch."""

    own: QueryRun
    micro_batch: int

    async def abort(self, prepared: Sequence[PreparedTransaction]) -> list[Description]:
        self.own.memory.expect_sweep()
        return await self._end({self.own.run}, None, prepared, self._newest_of_run, _ABORT_WAIT_MS)

    async def drop(self, prepared: Sequence[PreparedTransaction]) -> None:
        """End the transactions of a commit that knows that it has not decided them.

        If the decision topic is gone, the abort, in another process, cannot find that out.
        """
        try:
            await asks.EndTransactions([each.opened for each in prepared], commit=False, wait_ms=_ABORT_WAIT_MS)
        except EosKafkaError as error:
            await asks.warn(f"micro-batch {self.micro_batch} of {self.own.query}: left to the abort: {error}")

    async def sweep(
        self, runs: Collection[str], dropped: Sequence[PreparedTransaction] = (), decided: Decision | None = None
    ) -> None:
        """Sweep after the commit point; a failure does not fail the micro-batch.

        What this process has just `decided` is the newest decision for the purpose of a sweep: a later one names
        nothing that is in scope. It cannot be outdated, so no broker needs to be asked.
        """

        async def newest() -> Decision | None:
            return await self._newest_agreed(UNSTABLE_PATIENCE_MS) if decided is None else decided

        swept: list[Description] = []
        state = self.own.state
        self.own.memory.note(swept_at=await asks.Monotonic())
        try:
            async with asks.Step("sweep", self.micro_batch):
                swept = await self._end({self.own.run, *runs}, state.began_at_ms, dropped, newest, _SWEEP_WAIT_MS)
        except EosKafkaError as error:
            await asks.Count("sweeps_failed")
            await asks.warn(
                f"micro-batch {self.micro_batch} of {self.own.query} is committed; transactions that lost attempts "
                f"left open are swept later: {error}"
            )
        await asks.Count("transactions_swept", len(swept))
        if swept:
            self.own.memory.note(sign_at=await asks.Monotonic())
        if state.is_new_run:
            older = [run_of(each.transactional_id) for each in swept]
            self.own.memory.note(superseded=superseding(None, self.own.run, (*older, *state.superseded)))
        for each in swept:
            await asks.warn(
                f"micro-batch {self.micro_batch} of {self.own.query}: aborted orphan {each.transactional_id} (producer "
                f"{each.producer.producer_id}, epoch {each.producer.producer_epoch})"
            )

    async def _end(
        self,
        runs: Collection[str],
        older_than_ms: int | None,
        dropped: Sequence[PreparedTransaction],
        newest: Callable[[], Awaitable[Decision | None]],
        wait_ms: int,
    ) -> list[Description]:
        """Sweep under the prefix of the options and, if it was changed, under those of earlier runs.

        `dropped` are prepared transactions that will not be decided.
        """
        prefixes = dict.fromkeys((self.own.prefix, self.own.log.prefix))
        swept: list[Description] = []
        for prefix in prefixes:
            scope = Scope(prefix, self.own.query, runs, older_than_ms, wait_ms, named(dropped), self.own.may_hang)
            swept += await sweep(scope, newest, self._report_unlisted)
        return swept

    async def _report_unlisted(self, error: EosKafkaError) -> None:
        if not self.own.state.is_unlisted:
            self.own.memory.note(is_unlisted=True)
            await report_unlisted(error)

    async def _newest_of_run(self) -> Decision | None:
        """Return the newest decision, as far as it can be of this run.

        A query whose right to its group was taken away, or whose decisions are in another topic than its options name,
        cannot commit, and must not block readers either. What its run has decided is in the topic of its options.
        """
        try:
            newest = await self._newest_agreed(_ABORT_PATIENCE_MS)
            return await self.own.log.unpointed(newest) or newest
        except (AuthorizationError, OptionError) as error:
            await asks.warn(
                f"micro-batch {self.micro_batch} of {self.own.query}: the pointer cannot be used, reading the decision "
                f"topic: {error}"
            )
        scan, found, ended = self.own.log.scan, None, set[str]()
        # The scan may show that the query keeps the names of an earlier prefix.
        while (prefix := self.own.log.prefix if found is None else found.prefix) not in ended:
            await self._end_open_decision(prefix)
            ended.add(prefix)
            await scan.refresh(prefix)
            found = scan.newest(prefix)
        return found

    async def _end_open_decision(self, prefix: str) -> None:
        """End a decision that was written but not ended, and wait until the topic shows how it ended.

        One in another topic is not this run's: the query whose checkpoint was copied may have written it.
        """
        driver = driver_id(prefix, self.own.query)
        until = await asks.Monotonic() + UNSTABLE_LIMIT_MS / 1000
        while (found := (await asks.DescribeTransactions([driver])).get(driver)) is not None:
            topics = {each.topic for each in found.topic_partitions} - {_OFFSETS}
            if found.state in _ENDED or (topics and self.own.log.scan.topic not in topics):
                return
            if await asks.Monotonic() >= until:
                raise UnansweredError(
                    f"The transaction of {driver} has not ended, so what it decides is not known",
                    checked=f"DescribeTransactions for {UNSTABLE_LIMIT_MS // 1000} s",
                    remedy="Start the query again, or wait until the transactions time out",
                )
            if found.state is TransactionState.ONGOING:
                await abort_described([found])
            await asks.Sleep(_PAUSE_SECONDS)

    async def _newest_agreed(self, patience_ms: int) -> Decision | None:
        """Return the newest decision, which must not be outdated: what it does not name is aborted."""
        await asks.AgreeOnCoordinator(group_id(self.own.log.prefix, self.own.query))
        return await self.own.log.newest(patience_ms=patience_ms)
