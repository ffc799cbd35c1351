"""The transactional ids of one worker process, and the producer identity for the next task.

InitProducerId aborts whatever its id has open, whatever epoch the caller names, and Python does not know whether
another attempt of its task is alive. So an id belongs to one process and to one run of one query. A process runs one
task at a time, but its own earlier transactions may still wait for the driver's decision:

- Transactions of the current micro-batch do. A task that fails ends its process, so none of their ids is free again
  before the micro-batch is committed.
- Transactions of an earlier micro-batch are ended, unless the driver never learned of them, for example from a second
  attempt that came too late. The driver names what it has committed to the tasks of the next micro-batch
  (`CommitReport`). The coordinator is queried about the others, once in a micro-batch.

A coordinator's response may be outdated, and must never cause an abort of a transaction that the driver may decide. One
that is proven to be outdated is not used. If it proves nothing, the id is used: Spark begins a micro-batch when the
commit of the one before has returned, and by then every decided transaction is committed, which InitProducerId waits
for and does not undo. If a foreachBatch function continues after a failed commit, a decided transaction may be open;
its coordinator reports that.

An id continues with its next epoch only after a commit, never after an abort: for recovery, an abort at the very epoch
of a decided transaction is then no outdated response (see `descriptions.EARLIER`).

Apache Kafka can lose the marker of a transaction while its partition has no leader (KAFKA-20734), and the next marker
of the same producer id ends both. So an id is not used again once a leader was elected for a partition that its last
transaction wrote to: what hangs under it waits for an operator.

An InitProducerId without a response may be applied at any later time, and would abort what another one allowed to
begin, decided or not. So it is not sent again, and the id is replaced by a new one.

A task that finds that its job cannot succeed any more (see `TaskSet`) fails, and Spark retries it in another process,
which knows nothing. So the result is stored at a coordinator, as a transactional id that exists; every later attempt
looks for it.
"""

import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_core.types import LAST_CLIENT_EPOCH, NO_LEADER_EPOCH, ProducerIdentity, TransactionState
from spark_eos.errors import EosKafkaError, LostTransactionError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.commit_report import CommitReport
from spark_eos.sink.naming import TaskId
from spark_eos.sink.prepared import WrittenRange
from spark_eos.sink.protocol.answers import ABORTED, COMMITTED, Description
from spark_eos.sink.protocol.descriptions import why_earlier

# How long an id is assumed to be unchanged: a coordinator forgets unused ids, by default after days.
_KNOWN_FOR_SECONDS: Final = 300.0
# Then at most a third of a worker's ids are more than it needs.
_OWNED_AT_ONCE: Final = 16


class TaskSet(NamedTuple):
    """The tasks whose rows become visible together, by Spark's stage.

    `attempt` counts the attempts of the task from 0 on, `limit_ms` is the longest timeout that brokers allow.

    Spark does not run a task again that has succeeded. So once a task has prepared its rows, and their transaction is
    aborted, the job cannot succeed. Another attempt can only have been accepted instead if two ran at the same time:
    under speculation, for which no `TaskSet` must be given, and after a lost shuffle file, when a job that has already
    taken longer than `transactionTimeout` may fail although it could have succeeded.
    """

    stage: int
    attempt: int
    limit_ms: int | None


@dataclass(slots=True, eq=False)
class _Slot:
    last: OpenTransaction
    micro_batch: int
    # By the monotonic clock, in seconds: before the transaction began.
    taken_at: float
    # What the transaction holds once it is prepared, and the stage of its task.
    ranges: tuple[WrittenRange, ...] = ()
    prepared_stage: int | None = None
    # How it is known to have no open transaction: the driver committed it, or its coordinator responded.
    is_committed: bool = False
    description: Description | None = None
    known_at: float = 0.0

    @property
    def transactional_id(self) -> str:
        return self.last.transactional_id

    @property
    def number(self) -> int:
        return int(self.transactional_id.rpartition(".")[2])


class IdentityPool:
    """The pool of identities for the tasks of one worker process."""

    def __init__(self, cluster: KafkaCluster, prefix: str, query: str, run: str, worker: str) -> None:
        self._cluster = cluster
        self._monotonic = cluster.runtime.clock.monotonic
        self._name = TaskId(prefix, query, run, worker, 0)
        self._micro_batch = -1
        # Ids that may have an open transaction, by name, and ids without one; the last one was taken last. There is an
        # id for each task, so no task looks at all of them.
        self._held: dict[str, _Slot] = {}
        self._ended: list[_Slot] = []
        self._is_asked = False
        self._reported = -1
        self._fresh_names = (str(self._name._replace(number=number)) for number in itertools.count())
        # Initialized and not used yet: for which timeout, by which protocol, and when.
        self._spares: list[OpenTransaction] = []
        self._spares_for = (0, 0)
        self._spares_owned_at = 0.0

    def __len__(self) -> int:
        return len(self._held) + len(self._ended)

    def take(
        self, timeout_ms: int, micro_batch: int, task_set: TaskSet | None = None, began_at: float | None = None
    ) -> OpenTransaction:
        """Choose an id without an open transaction and make its identity ready.

        What brokers have said of leaders since the task began, at `began_at`, is not asked again. Raises
        `LostTransactionError` if a transaction that was prepared for the same tasks has timed out.
        """
        version = self._cluster.transaction_version()
        if task_set is not None:
            self._check_timeouts(timeout_ms, task_set)
        if micro_batch > self._micro_batch:
            self._drop_those_with_new_leaders(self._monotonic() if began_at is None else began_at)
            self._micro_batch, self._is_asked = micro_batch, False
        # A task of an older micro-batch is no longer waited for; free ids are left to the others.
        slot = self._take_ended(version) if micro_batch == self._micro_batch else None
        if slot is None:
            taken = self._own_fresh(timeout_ms, version)
        elif (following := _following_commit(slot, version)) is not None:
            taken = OpenTransaction(slot.transactional_id, following, version)
        else:
            taken = self._own(timeout_ms, slot.last)
        self._held[taken.transactional_id] = _Slot(taken, self._micro_batch, self._monotonic())
        return taken

    def _drop_those_with_new_leaders(self, since: float) -> None:
        """Drop the ids whose last transaction may have lost a marker: a leader was elected since it was written."""
        topics = {each.topic for slot in (*self._held.values(), *self._ended) for each in slot.ranges}
        epochs = self._cluster.leader_epochs(topics, since) if topics else {}

        def has_kept(slot: _Slot) -> bool:
            return all(each.leader_epoch in (NO_LEADER_EPOCH, epochs.get(each.place)) for each in slot.ranges)

        self._held = {name: slot for name, slot in self._held.items() if has_kept(slot)}
        self._ended = list(filter(has_kept, self._ended))

    def note_committed(self, report: CommitReport) -> None:
        """Record what the driver has committed, so that no request is needed for it."""
        mine = report.workers.get(self._name.worker)
        if report.run != self._name.run or mine is None or mine.micro_batch <= self._reported:
            return
        self._reported = mine.micro_batch
        for slot in [each for each in self._held.values() if each.micro_batch == mine.micro_batch]:
            if mine.numbers >> slot.number & 1:
                slot.is_committed, slot.known_at = True, slot.taken_at
                self._note_ended(slot)

    def _note_ended(self, slot: _Slot) -> None:
        self._ended.append(self._held.pop(slot.transactional_id))

    def _take_ended(self, version: int) -> _Slot | None:
        """Choose an id of an earlier micro-batch that has nothing open; ask at most once in a micro-batch."""
        while True:
            while self._ended:
                slot = self._ended.pop()
                if self._monotonic() - slot.known_at > _KNOWN_FOR_SECONDS:
                    self._held[slot.transactional_id] = slot
                    self._is_asked = False
                # At level 0, Apache Kafka's coordinator cannot store what transactions V2 left: it refuses to
                # initialize such an id, and every later request for it. So the id is given up.
                elif version > 0 or slot.last.transaction_version < 2:
                    return slot
            if self._is_asked:
                return None
            unknown = [each for each in self._held.values() if each.micro_batch < self._micro_batch]
            if not unknown:
                return None
            self._ask(unknown)

    def _ask(self, unknown: Sequence[_Slot]) -> None:
        self._is_asked = True
        described = self._cluster.describe_transactions([slot.transactional_id for slot in unknown])
        for slot in unknown:
            found = described.get(slot.transactional_id)
            slot.is_committed, slot.description, slot.known_at = False, found, self._monotonic()
            # An id that its coordinator does not know, perhaps only for a moment, may still have an open transaction.
            if found is None or found.state is TransactionState.ONGOING:
                continue
            # A task that failed before it sent anything left its id as the initialization did.
            never_begun = found.state is TransactionState.EMPTY and found.producer == slot.last.producer
            if never_begun or why_earlier(slot.last, found) is None:
                self._note_ended(slot)
            else:
                self._cluster.forget_coordinators([slot.transactional_id])

    def note_prepared(
        self, transactional_id: str, ranges: tuple[WrittenRange, ...], task_set: TaskSet | None = None
    ) -> None:
        if (slot := self._held.get(transactional_id)) is not None:
            slot.ranges, slot.prepared_stage = ranges, None if task_set is None else task_set.stage

    def _check_timeouts(self, timeout_ms: int, task_set: TaskSet) -> None:
        """Raise if an earlier task found that the job cannot succeed, or the first prepared transaction shows it."""
        # The id that exists once a task of the stage has found that the stage cannot succeed.
        mark = str(self._name._replace(worker=f"stage-{task_set.stage}-timed-out"))
        names = [mark] if task_set.attempt else []
        now = self._monotonic()
        taken = (slot for slot in self._held.values() if slot.micro_batch == self._micro_batch)
        first = next((slot for slot in taken if slot.prepared_stage == task_set.stage), None)
        # If it was younger than its timeout, a driver aborted it, and the driver's job has ended anyway.
        if first is not None and (now - first.taken_at) * 1000 >= timeout_ms:
            names.append(first.transactional_id)
        described = self._cluster.describe_transactions(names) if names else {}
        if mark in described:
            raise _hopeless_error("a transaction of an earlier task", timeout_ms, task_set.limit_ms)
        description = described.get(first.transactional_id) if first is not None else None
        # Aborted with a new epoch, as by its timeout. No outdated response says that.
        if (
            first is not None
            and description is not None
            and description.state in ABORTED
            and description.producer == _next_epoch(first.last.producer)
        ):
            # Without a response the next attempt continues until it detects this itself.
            with suppress(EosKafkaError):
                self._cluster.init_producer_id(mark, timeout_ms)
            age_ms = round((now - first.taken_at) * 1000)
            what = f"transaction {first.transactional_id} of an earlier task, which began {age_ms} ms ago,"
            raise _hopeless_error(what, timeout_ms, task_set.limit_ms)

    def _own_fresh(self, timeout_ms: int, version: int) -> OpenTransaction:
        """Become the owner of ids that were never used, the more at once the more this worker has needed."""
        wanted, now = (timeout_ms, version), self._monotonic()
        # Drop identities that were initialized for another timeout, or by another protocol.
        if self._spares_for != wanted or now - self._spares_owned_at > _KNOWN_FOR_SECONDS:
            self._spares = []
        if not self._spares:
            count = min(max(len(self) // 2, 1), _OWNED_AT_ONCE)
            self._spares = list(self._cluster.own_some_of(self._fresh_names, count, timeout_ms))
            self._spares_for, self._spares_owned_at = wanted, now
        return self._spares.pop(0)

    def _own(self, timeout_ms: int, last: OpenTransaction) -> OpenTransaction:
        """Become the owner of the id of this transaction, or of a fresh one."""
        taken = last
        # At the last epoch, ending a transaction changes the producer id, and recovery could not follow it.
        while taken.producer.producer_epoch >= LAST_CLIENT_EPOCH or not taken.is_after(last.producer):
            names = itertools.chain([taken.transactional_id], self._fresh_names)
            [taken] = self._cluster.own_some_of(names, 1, timeout_ms)
        return taken


def _next_epoch(last: ProducerIdentity) -> ProducerIdentity:
    return ProducerIdentity(last.producer_id, last.producer_epoch + 1)


def _following_commit(slot: _Slot, version: int) -> ProducerIdentity | None:
    """Return the identity for the next transaction of an id without InitProducerId, or None if there is none.

    Transactions V2 (KIP-890) raise the epoch by one at every end. The last transaction must be known to be committed,
    and nothing else may have happened on its id.
    """
    following, described = _next_epoch(slot.last.producer), slot.description
    is_committed = slot.is_committed or (
        described is not None and described.state in COMMITTED and described.producer == following
    )
    is_next = slot.last.transaction_version >= 2 and version >= 2 and following.producer_epoch < LAST_CLIENT_EPOCH
    return following if is_committed and is_next else None


def _hopeless_error(what: str, timeout_ms: int, limit_ms: int | None) -> LostTransactionError:
    allowed = "is not known" if limit_ms is None else f"is {limit_ms} ms"
    raised = "transactionTimeout"
    if limit_ms is not None and timeout_ms >= limit_ms:
        raised = "transaction.max.timeout.ms on the brokers, and transactionTimeout with it,"
    return LostTransactionError(
        f"The job or micro-batch has taken longer than transactionTimeout ({timeout_ms} ms): {what} has timed out "
        "with its rows, so nothing can be committed",
        checked="DescribeTransactions, before this task wrote anything",
        remedy=f"Raise {raised} above the duration of the job or micro-batch; the brokers' limit "
        f"(transaction.max.timeout.ms) {allowed}. Or write less at a time",
    )
