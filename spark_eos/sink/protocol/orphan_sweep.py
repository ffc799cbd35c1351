"""The sweep of orphans: transactions of a query that no driver will decide and that block readers.

Spark never reports to the driver an attempt that lost, or a task that died after it prepared. Each such transaction
pins the last stable offset of its partitions until it times out. No driver can decide three kinds, which are swept:

- transactions of the sweeper's own run: its only driver is this one, and it decides nothing while it sweeps;
- transactions of runs that the newest decision names as superseded: such runs decide nothing after it;
- transactions of other runs that began before the sweeper's run did, by the clocks of Kafka's coordinators. Spark plans
  a micro-batch when the one before is committed, so they belong to a micro-batch that is decided by now.

Where brokers do not list transactions, or not to this principal, only the prepared transactions that the driver drops
are known. What remains in any case began after this run did, and its run has decided nothing: a task of a driver that
died in its first micro-batch, or of a newer driver that has not decided yet. Kafka cannot distinguish the two, and an
abort would stop the newer driver, perhaps between a decision and its completion. So it is left to its timeout, or to
the driver that takes over next.

If partition leaders do not verify transactions (see `broker_capabilities`), the next write of a task whose transaction
was ended opens one that nothing ends. A losing attempt may be slow, and executors outlive their driver. So there only
transactions that tasks have reported as flushed are ended. A timeout raises the epoch and so rejects late writes.

A superseded run must not decide any more. To fence its driver once is not enough: it may return from a long pause, in a
new Python process that takes over again. So a decision names the runs it supersedes, and a run that finds itself named
decides nothing. A driver that took over before that decision was fenced; one that takes over after it reads it.

Superseded are the run that decided last, the runs it superseded, and runs of which a transaction was swept because it
began before the first one of the new run. A job has one micro-batch and supersedes none; but an operator who abandons
its decision names its runs too.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from broker_core.types import CONSUMER_OFFSETS_TOPIC, ProducerIdentity, TransactionState
from spark_eos.errors import (
    AuthorizationError,
    EosKafkaError,
    FencedError,
    LostTransactionError,
    OptionError,
    UnansweredError,
    UnsupportedError,
)
from spark_eos.sink.decision import Decision
from spark_eos.sink.naming import driver_id, group_id, id_prefix, parse_task_id, run_again
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import asks
from spark_eos.sink.protocol.answers import Description
from spark_eos.sink.protocol.decision_log import UNSTABLE_LIMIT_MS, UNSTABLE_PATIENCE_MS
from spark_eos.sink.protocol.descriptions import abort_described, without_leaders
from spark_eos.sink.protocol.state import QueryRun, RunMemory

# Brokers do not support ListTransactions, or refuse it.
UNLISTED: Final = (UnsupportedError, AuthorizationError)
Named: TypeAlias = tuple[str, ProducerIdentity]
# The transactions found block readers, and there may be no further micro-batch, so wait for their coordinators.
_END_WAIT_MS: Final = 30_000
# The newest ones. For a run that is older by more restarts, the rule about earlier transactions applies.
_MOST_NAMED: Final = 16
# Spark aborts when the run's commit has ended. If that was killed, its open decision is not waited for.
_ABORT_PATIENCE_MS: Final = 1_000
# How long brokers may take to list open transactions. The first delays a query, the second an application that stops
# one.
_SWEEP_WAIT_MS: Final = 1_000
_ABORT_WAIT_MS: Final = 10_000
_PAUSE_SECONDS: Final = 0.1
_ENDED: Final = frozenset(
    {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
        TransactionState.DEAD,
    }
)


class Scope(NamedTuple):
    """The transactions that may be swept: all of `runs`, and others that began before `older_than_ms` (None: none).

    `known` are no longer written to: these are swept where brokers list none, and alone with `only_known`. A broker
    that does not list its transactions within `wait_ms` is left for the next sweep.
    """

    prefix: str
    query: str
    runs: Collection[str]
    older_than_ms: int | None = None
    wait_ms: int | None = None
    known: Collection[Named] = ()
    only_known: bool = False


async def sweep(
    scope: Scope, newest: Callable[[], Awaitable[Decision | None]], memory: RunMemory | None = None
) -> list[Description]:
    """Abort open transactions in scope that are not decided; return those for which an end was requested.

    The newest decision is read after the transactions were found, and only if there are any: so it cannot be outdated,
    and the usual case needs no request.
    """
    if scope.only_known and not scope.known:
        return []
    found = await _open_in(scope, memory or RunMemory())
    candidates = [each for each in found if _is_in_scope(each, scope)]
    kept = names_of(await newest()) if candidates else set()
    orphans = [each for each in candidates if (each.transactional_id, each.producer) not in kept]
    if not orphans:
        return []
    await asks.Reach("driver.mid_sweep")
    return await abort_described(orphans, None if scope.wait_ms is None else max(scope.wait_ms, _END_WAIT_MS))


async def open_of_query(prefix: str, query: str, wait_ms: int | None = None) -> list[Description]:
    """Describe the open transactions of a query's tasks in all its runs; ids are matched exactly."""
    names = await asks.OpenTransactions(id_prefix(prefix, query), wait_ms=wait_ms)
    return await _open_of([each for each in names if _is_ours(each, prefix, query)], wait_ms)


def run_of(transactional_id: str) -> str:
    name = parse_task_id(transactional_id)
    assert name is not None
    return name.run


def named(transactions: Iterable[PreparedTransaction]) -> set[Named]:
    return {(t.transactional_id, t.producer) for t in transactions}


def names_of(decision: Decision | None) -> set[Named]:
    return named(() if decision is None else decision.transactions)


async def _open_in(scope: Scope, memory: RunMemory) -> list[Description]:
    try:
        return await open_of_query(scope.prefix, scope.query, scope.wait_ms)
    except UNLISTED as error:
        if not memory.state.is_unlisted:
            memory.note(is_unlisted=True)
            await asks.info(
                f"transactions of lost tasks end at their timeout, because brokers do not list them: {error}"
            )
        known = {name: identity for name, identity in scope.known if _is_ours(name, scope.prefix, scope.query)}
        found = await _open_of(list(known), scope.wait_ms)
        return [each for each in found if each.producer == known[each.transactional_id]]


async def _open_of(names: Sequence[str], wait_ms: int | None) -> list[Description]:
    described = await asks.DescribeTransactions(names, wait_ms=wait_ms) if names else {}
    return [each for each in described.values() if each.state is TransactionState.ONGOING]


def _is_ours(transactional_id: str, prefix: str, query: str) -> bool:
    name = parse_task_id(transactional_id)
    return name is not None and (name.prefix, name.query) == (prefix, query)


def _is_in_scope(each: Description, scope: Scope) -> bool:
    if scope.only_known and (each.transactional_id, each.producer) not in scope.known:
        return False
    if run_of(each.transactional_id) in scope.runs:
        return True
    return scope.older_than_ms is not None and 0 <= each.started_at_ms < scope.older_than_ms


def superseding(newest: Decision | None, run: str, others: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the runs that a decision of `run` supersedes, based on the newest one before it."""
    before = () if newest is None else newest.superseded
    decided = () if newest is None else (newest.run,)
    found = dict.fromkeys((*decided, *others, *before))
    return tuple(each for each in found if each != run)[:_MOST_NAMED]


async def left_open(decision: Decision, prefixes: Iterable[str]) -> bool:
    """Return whether the run of a decision is known to have an open transaction that the decision does not name."""
    decided = names_of(decision)
    try:
        opened = []
        for prefix in prefixes:
            opened += await open_of_query(prefix, decision.query)
    except UNLISTED:
        return False
    return any(
        run_of(each.transactional_id) == decision.run and (each.transactional_id, each.producer) not in decided
        for each in opened
    )


def superseded_error(newest: Decision, run: str, lost: LostTransactionError | None = None) -> FencedError:
    """Return the error for a superseded run, and for what it had decided and the newer one has found `lost`."""
    word = newest.intervention
    remedy = (
        "If another driver uses this checkpoint or jobId, stop one of the two. Otherwise "
        f"{run_again(newest.query, newest.run)}"
    )
    by = f"run {newest.run} has decided micro-batch {newest.micro_batch}"
    if word is not None:
        by = f"{word.by} has intervened with `eos-kafka decisions {word.action}`"
    if lost is not None:
        return FencedError(
            f"Run {run} of query {newest.query} has decided, and another driver has gone on since: {by}. Transactions "
            f"of run {run} were lost: {lost.happened}",
            checked=f"{lost.checked}; then the newest decision, whose driver has settled what was lost",
            remedy=remedy,
        )
    return FencedError(
        f"Run {run} of query {newest.query} may no longer decide: {by}",
        checked="The newest decision, which names the runs it supersedes; nothing that this run prepared becomes "
        "visible",
        remedy=remedy,
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
            held = await without_leaders({each.transactional_id: each.ranges for each in prepared})
            opened = [each.opened for each in prepared if each.transactional_id not in held]
            await asks.EndTransactions(opened, commit=False, wait_ms=_ABORT_WAIT_MS)
        except EosKafkaError as error:
            await asks.warn(f"micro-batch {self.micro_batch} of {self.own.query}: left to the abort: {error}")

    async def sweep(
        self, runs: Collection[str], dropped: Sequence[PreparedTransaction] = (), decided: Decision | None = None
    ) -> None:
        """Sweep after the commit point; a failure does not fail the micro-batch.

        What this process has just `decided` serves as the newest decision: a later one names nothing that is in scope.
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
        """Sweep under all prefixes of the query; `dropped` are prepared transactions that will not be decided."""
        swept: list[Description] = []
        for prefix in self.own.prefixes:
            scope = Scope(prefix, self.own.query, runs, older_than_ms, wait_ms, named(dropped), self.own.may_hang)
            swept += await sweep(scope, newest, self.own.memory)
        return swept

    async def _newest_of_run(self) -> Decision | None:
        """Return the newest decision, as far as it can be of this run: that is in the topic of its options.

        A query that may no longer read its group, or that has its decisions elsewhere, must not block readers either.
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
            topics = {each.topic for each in found.topic_partitions} - {CONSUMER_OFFSETS_TOPIC}
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
