"""The abort of what a query has open and no driver will decide, so that it does not hold readers back.

Spark never tells the driver of a losing attempt or of a task that died after it prepared. Each such transaction pins
the last stable offset of its partitions until it times out.

Three kinds are swept, each because no driver can decide it any more:

- of the sweeper's own run: its one driver is here, and decides nothing while it sweeps;
- of runs that the newest decision names as superseded (see `superseded_runs`): they decide nothing after it, whenever
  they begin;
- of other runs, those that began before the sweeper's run did. Spark plans a micro-batch when the one before is
  committed, so they belong to a micro-batch that is decided by the time of the sweep. Both times are those of Kafka's
  coordinators.

What is left is a transaction that began after this run did, of a run that has decided nothing and of which nothing was
swept: a task of a driver that died in its first micro-batch, or of a newer driver that has not shown itself yet.
Nothing in Kafka tells the two apart. To abort the newer driver's would stop it, and could hit a transaction between its
decision and its completion. So it is left to its timeout, or to the driver that takes over next.

All this holds where partition leaders verify transactions (see `broker_capabilities`). Where they do not, the next
write of a task whose transaction was ended opens one in the partition that nothing ends. Of none of the three kinds is
it known that its task writes no more: a loser of the living run may be slow, and executors outlive their driver. So
there only what tasks have reported as flushed is ended, and the rest is left to its timeout, which raises the epoch in
the partition and so keeps late writes out.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, TypeAlias

from broker_core.types import ProducerIdentity, TransactionState
from spark_eos import failpoints
from spark_eos.sink.decision import Decision
from spark_eos.sink.naming import id_prefix, parse_task_id
from spark_eos.sink.ports import Description, Ending, SinkCluster
from spark_eos.sink.prepared import PreparedTransaction

Named: TypeAlias = tuple[str, ProducerIdentity]
# What was found is in readers' way, and there may be no further micro-batch: its coordinators are waited for.
_END_WAIT_MS: Final = 30_000


class Scope(NamedTuple):
    """Whose transactions may be swept: all of `runs`, others' if they began before `older_than_ms` (None: none).

    Where leaders do not verify transactions, `flushed` has those that nothing more is written to, and no others are
    swept; elsewhere it is None. A broker that does not list its transactions in `wait_ms` is left for the next sweep.
    """

    prefix: str
    query: str
    runs: Collection[str]
    older_than_ms: int | None = None
    flushed: Collection[Named] | None = None
    wait_ms: int | None = None


def sweep(cluster: SinkCluster, scope: Scope, newest: Callable[[], Decision | None]) -> list[Description]:
    """Abort open transactions in scope that are not decided; returns those that were asked to end.

    The newest decision is asked for after the transactions were found, and only if there are any: it can then not be
    out of date, and in the everyday case the question is saved.

    Each abort names the transaction by the producer id and epoch described. A request that arrives late therefore
    hits nothing newer, which InitProducerId would.
    """
    if scope.flushed is not None and not scope.flushed:
        return []
    found = open_of_query(cluster, scope.prefix, scope.query, scope.wait_ms)
    candidates = [each for each in found if _is_in_scope(each, scope)]
    kept = names_of(newest()) if candidates else set()
    orphans = [each for each in candidates if (each.transactional_id, each.identity) not in kept]
    if orphans:
        failpoints.reach("driver.mid_sweep")
        version = cluster.transaction_version()
        endings = [Ending(each.transactional_id, each.identity, False, version) for each in orphans]
        cluster.end_transactions(endings, wait_ms=None if scope.wait_ms is None else max(scope.wait_ms, _END_WAIT_MS))
    return orphans


def open_of_query(cluster: SinkCluster, prefix: str, query: str, wait_ms: int | None = None) -> list[Description]:
    """Describe the open transactions of a query's tasks, in all its runs; ids are distinguished exactly."""
    names = cluster.open_transactions(id_prefix(prefix, query), wait_ms=wait_ms)
    listed = [each for each in names if _is_ours(each, prefix, query)]
    described = cluster.describe_transactions(listed, wait_ms=wait_ms) if listed else {}
    return [each for each in described.values() if each.state is TransactionState.ONGOING]


def run_of(transactional_id: str) -> str:
    """Name the run that a task's transactional id belongs to."""
    name = parse_task_id(transactional_id)
    assert name is not None
    return name.run


def names_of(decision: Decision | None) -> set[Named]:
    """Name the transactions of a decision, of any driver: no sweep may touch them."""
    return named(() if decision is None else decision.transactions)


def named(transactions: Iterable[PreparedTransaction]) -> set[Named]:
    """Name transactions, each so that it is taken for no other."""
    return {(t.transactional_id, ProducerIdentity(t.producer_id, t.producer_epoch)) for t in transactions}


def _is_ours(transactional_id: str, prefix: str, query: str) -> bool:
    name = parse_task_id(transactional_id)
    return name is not None and (name.prefix, name.query) == (prefix, query)


def _is_in_scope(each: Description, scope: Scope) -> bool:
    if scope.flushed is not None and (each.transactional_id, each.identity) not in scope.flushed:
        return False
    if run_of(each.transactional_id) in scope.runs:
        return True
    return scope.older_than_ms is not None and 0 <= each.started_at_ms < scope.older_than_ms
