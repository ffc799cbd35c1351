"""Keep the transactional ids of one worker process, and say with which producer identity the next task may go on.

InitProducerId aborts whatever its id has open, whatever epoch the caller names, and Python is not told whether another
attempt of its task is alive. So an id belongs to one process and to one run of one query, and nobody else ever
initialises it. A process runs one task at a time, but earlier transactions of its own may still await the
driver's verdict: those ids are left alone, and the coordinator is asked, not the memory of this process.

For the same reason an InitProducerId that stayed unanswered is not sent again: the first one may be applied as late as
a broker likes, and would abort what the second had let begin, decided or not. The id is given up for a fresh one.
"""

import itertools
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_core.types import LAST_CLIENT_EPOCH, ProducerIdentity
from spark_eos.sink.naming import TaskId
from spark_eos.sink.ports import Cluster, Description, TransactionState

_COMMITTED: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.PREPARE_COMMIT})
_MAX_POOLS: Final = 64


class TaskIdentity(NamedTuple):
    """Name the transaction a task may now begin."""

    transactional_id: str
    identity: ProducerIdentity
    transaction_version: int


@dataclass(slots=True)
class _Slot:
    transactional_id: str
    last: ProducerIdentity
    transaction_version: int


class IdentityPool:
    """Hand out identities to one task after another."""

    def __init__(self, cluster: Cluster, prefix: str, query: str, run: str, worker: str) -> None:
        self._cluster = cluster
        self._name = TaskId(prefix, query, run, worker, 0)
        self._slots: list[_Slot] = []
        self._fresh_names = self._name_ids()

    def __len__(self) -> int:
        """Count the ids in use."""
        return len(self._slots)

    def take(self, timeout_ms: int) -> TaskIdentity:
        """Choose an id without an open transaction and make its identity ready."""
        version = self._cluster.transaction_version()
        names = [slot.transactional_id for slot in self._slots]
        described = self._cluster.describe_transactions(names) if names else {}
        for slot in reversed(self._slots):
            description = described.get(slot.transactional_id)
            # An id that its coordinator does not know, perhaps for a moment, may have a transaction open all the same.
            if description is None or description.state is TransactionState.ONGOING:
                continue
            identity = next_identity(slot.last, slot.transaction_version, version, description)
            return self._renew(slot, version, timeout_ms) if identity is None else self._use(slot, identity, version)
        transactional_id, identity = self._own(self._fresh_names, timeout_ms)
        return self._add(transactional_id, identity, version)

    def _renew(self, slot: _Slot, version: int, timeout_ms: int) -> TaskIdentity:
        transactional_id, identity = self._own(itertools.chain([slot.transactional_id], self._fresh_names), timeout_ms)
        if transactional_id == slot.transactional_id:
            return self._use(slot, identity, version)
        self._slots.remove(slot)
        return self._add(transactional_id, identity, version)

    def _add(self, transactional_id: str, identity: ProducerIdentity, version: int) -> TaskIdentity:
        self._slots.append(_Slot(transactional_id, identity, version))
        return TaskIdentity(transactional_id, identity, version)

    def _use(self, slot: _Slot, identity: ProducerIdentity, version: int) -> TaskIdentity:
        slot.last, slot.transaction_version = identity, version
        return TaskIdentity(slot.transactional_id, identity, version)

    def _own(self, names: Iterator[str], timeout_ms: int) -> tuple[str, ProducerIdentity]:
        transactional_id, identity = self._cluster.own_one_of(names, timeout_ms)
        # At the last epoch the end of a transaction changes the producer id, and recovery could not follow it.
        while identity.producer_epoch >= LAST_CLIENT_EPOCH:
            again = itertools.chain([transactional_id], names)
            transactional_id, identity = self._cluster.own_one_of(again, timeout_ms)
        return transactional_id, identity

    def _name_ids(self) -> Iterator[str]:
        return (str(self._name._replace(number=number)) for number in itertools.count())


def next_identity(
    last: ProducerIdentity, begun_with: int, version: int, description: Description | None
) -> ProducerIdentity | None:
    """Give the identity with which an id goes on without InitProducerId, or None where that is not certain.

    Transactions V2 (KIP-890) raise the epoch by one at every end, so a committed transaction followed by its own epoch
    plus one says that nothing else has happened on the id.
    """
    if description is None or description.state not in _COMMITTED or begun_with < 2 or version < 2:
        return None
    expected = ProducerIdentity(last.producer_id, last.producer_epoch + 1)
    if description.identity != expected or expected.producer_epoch >= LAST_CLIENT_EPOCH:
        return None
    return expected


def is_worker_kept() -> bool:
    """Say whether Spark gives this process further tasks: `spark.python.worker.reuse`, as its daemon is told."""
    return bool(os.environ.get("SPARK_REUSE_WORKER"))


_pools: dict[tuple[object, ...], IdentityPool] = {}


def pool_of(cluster: Cluster, prefix: str, query: str, run: str, launch: str | None = None) -> IdentityPool:
    """Give this process's pool for a run of a query.

    A worker is forked, so pools under its parent's pid are not its own. The token is the pool's, not the process's: a
    pool that is made anew must not meet ids of the one before, whose transactions may still await their verdict.
    """
    key = (os.getpid(), prefix, query, run, launch, id(cluster))
    if key not in _pools:
        while len(_pools) >= _MAX_POOLS:
            _pools.pop(next(iter(_pools)))
        worker = secrets.token_hex(6)
        _pools[key] = IdentityPool(cluster, prefix, query, run, worker if launch is None else f"{launch}-{worker}")
    return _pools[key]
