"""Keep the transactional ids of one worker process, and say with which producer identity the next task may go on.

InitProducerId aborts whatever its id has open, whatever epoch the caller names, and Python is not told whether another
attempt of its task is alive. So an id belongs to one process and to one run of one query, and nobody else ever
initialises it. A process runs one task at a time, but earlier transactions of its own may still await the
driver's verdict: those ids are left alone, and the coordinator is asked, not the memory of this process.

A coordinator may speak of the past, though, and what it says must never let a transaction be aborted that the driver
may decide. What proves itself to be from the past is not used. And where the answer proves nothing, an id that was used
in the present micro-batch of its run is left alone. One of an earlier micro-batch may be initialised whatever was
said: Spark begins a micro-batch when the commit of the one before has returned, and by then every transaction that was
decided is committed, which InitProducerId waits for and does not undo.

For the same reason an InitProducerId that stayed unanswered is not sent again: the first one may be applied as late as
a broker likes, and would abort what the second had let begin, decided or not. The id is given up for a fresh one.

The look at the coordinator also shows when a job is hopeless: an earlier task of it in this process has prepared its
rows, and their transaction has timed out since. See `TaskSet` for why that is so. The task then fails, and Spark ends
this process with it and tries the task again in another one, which knows nothing. So the finding is left with a
coordinator, as a transactional id that exists; every later attempt of a task asks for it.
"""

import itertools
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_core.types import LAST_CLIENT_EPOCH, ProducerIdentity
from spark_eos.errors import EosKafkaError, LostTransactionError
from spark_eos.sink.descriptions import why_earlier
from spark_eos.sink.naming import TaskId
from spark_eos.sink.ports import Cluster, Description, TransactionState

_ABORTED: Final = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})
_COMMITTED: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.PREPARE_COMMIT})
_MAX_POOLS: Final = 64


class TaskIdentity(NamedTuple):
    """Name the transaction a task may now begin."""

    transactional_id: str
    identity: ProducerIdentity
    transaction_version: int


class TaskSet(NamedTuple):
    """Name the tasks whose rows become visible together, by Spark's stage.

    `attempt` counts the attempts of the task from 0 on, `limit_ms` is the longest timeout that brokers allow.

    Spark accepts the first attempt of a task that succeeds and runs it no more. So once a task has prepared its rows,
    they are what the job would commit, and when their transaction is aborted, the job cannot succeed. Another attempt
    can only have been accepted instead where two ran at a time: under speculation, where no `TaskSet` is to be given,
    and after a lost shuffle file. There a job that has already taken longer than `transactionTimeout` may be failed
    although it might just have come through.
    """

    stage: int
    attempt: int
    limit_ms: int | None


@dataclass(slots=True)
class _Slot:
    transactional_id: str
    last: ProducerIdentity
    transaction_version: int
    micro_batch: int
    # By the monotonic clock, in seconds: before the transaction began.
    taken_at: float
    # The stage of the task whose rows the transaction holds, once it is prepared.
    prepared_stage: int | None = None


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

    def take(self, timeout_ms: int, micro_batch: int, task_set: TaskSet | None = None) -> TaskIdentity:
        """Choose an id without an open transaction and make its identity ready.

        Raises `LostTransactionError` where a transaction that was prepared for the same tasks has timed out.
        """
        version = self._cluster.transaction_version()
        names = [slot.transactional_id for slot in self._slots]
        if task_set is not None and task_set.attempt:
            names.append(self._mark_of(task_set))
        described = self._cluster.describe_transactions(names) if names else {}
        if task_set is not None:
            self._check_timeouts(described, timeout_ms, task_set)
        for slot in reversed(self._slots):
            description = described.get(slot.transactional_id)
            # An id that its coordinator does not know, perhaps for a moment, may have a transaction open all the same.
            if description is None or description.state is TransactionState.ONGOING:
                continue
            # At level 0 Apache Kafka's coordinator cannot write down what transactions V2 have left: it refuses to
            # initialise such an id, and every request for it from then on.
            if slot.transaction_version >= 2 and version == 0:
                continue
            if not self._is_free(slot, description, micro_batch):
                self._cluster.forget_coordinators([slot.transactional_id])
                continue
            identity = next_identity(slot.last, slot.transaction_version, version, description)
            if identity is None:
                return self._renew(slot, version, timeout_ms, micro_batch)
            return self._use(slot, identity, version, micro_batch)
        transactional_id, identity = self._own(self._fresh_names, timeout_ms)
        return self._add(transactional_id, identity, version, micro_batch)

    def _is_free(self, slot: _Slot, description: Description, micro_batch: int) -> bool:
        """Say whether what the coordinator says of an id that has nothing open can be relied on."""
        earlier = why_earlier(slot.last, slot.transaction_version, description)
        if earlier is None and description.identity.producer_id == slot.last.producer_id:
            return True
        # A task that failed before it sent anything has left its id as the initialisation had.
        never_begun = description.state is TransactionState.EMPTY and description.identity == slot.last
        return slot.micro_batch != micro_batch and (earlier is None or never_begun)

    def note_prepared(self, transactional_id: str, task_set: TaskSet) -> None:
        """Remember that the transaction last begun on an id holds all rows of one of these tasks."""
        for slot in self._slots:
            if slot.transactional_id == transactional_id:
                slot.prepared_stage = task_set.stage

    def _mark_of(self, task_set: TaskSet) -> str:
        """Name the id that exists once a task of a stage has found that the stage is hopeless."""
        return str(self._name._replace(worker=f"stage-{task_set.stage}-timed-out"))

    def _check_timeouts(self, described: Mapping[str, Description], timeout_ms: int, task_set: TaskSet) -> None:
        mark = self._mark_of(task_set)
        if mark in described:
            raise _hopeless_error("a transaction of an earlier task", timeout_ms, task_set.limit_ms)
        for slot in self._slots:
            age_ms = round((time.monotonic() - slot.taken_at) * 1000)
            description = described.get(slot.transactional_id)
            # Younger than its timeout it was aborted by a driver, whose job has then ended anyway.
            if slot.prepared_stage != task_set.stage or age_ms < timeout_ms or description is None:
                continue
            if _is_fenced_abort(slot.last, description):
                # Without an answer the next attempt goes on until it finds out for itself.
                with suppress(EosKafkaError):
                    self._cluster.init_producer_id(mark, timeout_ms)
                what = f"transaction {slot.transactional_id} of an earlier task, begun {age_ms} ms ago,"
                raise _hopeless_error(what, timeout_ms, task_set.limit_ms)

    def _renew(self, slot: _Slot, version: int, timeout_ms: int, micro_batch: int) -> TaskIdentity:
        transactional_id, identity = self._own(itertools.chain([slot.transactional_id], self._fresh_names), timeout_ms)
        if transactional_id == slot.transactional_id:
            return self._use(slot, identity, version, micro_batch)
        self._slots.remove(slot)
        return self._add(transactional_id, identity, version, micro_batch)

    def _add(
        self, transactional_id: str, identity: ProducerIdentity, version: int, micro_batch: int
    ) -> TaskIdentity:
        self._slots.append(_Slot(transactional_id, identity, version, micro_batch, time.monotonic()))
        return TaskIdentity(transactional_id, identity, version)

    def _use(self, slot: _Slot, identity: ProducerIdentity, version: int, micro_batch: int) -> TaskIdentity:
        slot.last, slot.transaction_version, slot.micro_batch = identity, version, micro_batch
        slot.taken_at, slot.prepared_stage = time.monotonic(), None
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


def _is_fenced_abort(last: ProducerIdentity, description: Description) -> bool:
    """Say whether a transaction was aborted with a new epoch, as by its timeout. No answer from its past says that."""
    following = ProducerIdentity(last.producer_id, last.producer_epoch + 1)
    return description.state in _ABORTED and description.identity == following


def _hopeless_error(what: str, timeout_ms: int, limit_ms: int | None) -> LostTransactionError:
    """Say why a job cannot be committed any more, and how long the brokers would let it take."""
    allowed = "is not known here" if limit_ms is None else f"is {limit_ms} ms"
    raised = "transactionTimeout"
    if limit_ms is not None and timeout_ms >= limit_ms:
        raised = "transaction.max.timeout.ms on the brokers, and transactionTimeout with it,"
    return LostTransactionError(
        f"The job or micro-batch has taken longer than its transactions may: {what} has timed out with its rows "
        f"(transactionTimeout is {timeout_ms} ms), so that nothing can be committed",
        checked="DescribeTransactions, before this task wrote anything",
        remedy=(
            f"Raise {raised} above the duration of the whole; what the brokers allow now (transaction.max.timeout.ms) "
            f"{allowed}. Or write less at a time"
        ),
    )


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
