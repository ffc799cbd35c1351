"""Abort what a query has open and nobody will ever decide, so that it does not hold readers back.

Spark never tells the driver of a losing attempt or of a task that died after it prepared. Each such transaction pins
the last stable offset of its partitions until it times out.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from broker_core.types import ProducerIdentity
from spark_eos import failpoints
from spark_eos.sink.naming import id_prefix, parse_task_id
from spark_eos.sink.ports import Cluster, Description, Ending, TransactionState


class Scope(NamedTuple):
    """Say whose transactions may be swept: all of `run`, and others' that began before `older_than_ms` (None: none)."""

    prefix: str
    query: str
    run: str
    older_than_ms: int | None


def sweep(
    cluster: Cluster,
    scope: Scope,
    decided: Callable[[], Collection[tuple[str, ProducerIdentity]]],
    transaction_version: int,
) -> list[Description]:
    """Abort open transactions in scope that are not decided; returns those that were asked to end.

    What is decided is asked after the transactions were found, and only if there are any: it can then not be out of
    date, and in the everyday case the question is saved.

    Each abort names the transaction by the producer id and epoch described. A request that arrives late therefore
    hits nothing newer, which InitProducerId would.
    """
    listed = [each for each in cluster.open_transactions(id_prefix(scope.prefix, scope.query)) if _is_ours(each, scope)]
    described = cluster.describe_transactions(listed) if listed else {}
    candidates = [each for each in described.values() if _is_orphan(each, scope)]
    kept = set(decided()) if candidates else set()
    orphans = [each for each in candidates if (each.transactional_id, each.identity) not in kept]
    if orphans:
        failpoints.reach("driver.mid_sweep")
        cluster.end_transactions([
            Ending(each.transactional_id, each.identity, False, transaction_version) for each in orphans
        ])
    return orphans


def _is_ours(transactional_id: str, scope: Scope) -> bool:
    name = parse_task_id(transactional_id)
    return name is not None and (name.prefix, name.query) == (scope.prefix, scope.query)


def _is_orphan(each: Description, scope: Scope) -> bool:
    if each.state is not TransactionState.ONGOING:
        return False
    name = parse_task_id(each.transactional_id)
    if name is None:
        return False
    if name.run == scope.run:
        return True
    return scope.older_than_ms is not None and 0 <= each.started_at_ms < scope.older_than_ms
