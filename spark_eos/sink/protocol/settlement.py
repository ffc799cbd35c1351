"""The settlement of decided transactions: their fates are determined, finished if possible, and reported if lost.

An EndTxn error code cannot distinguish "already committed" from "timed out": it depends on versions, and on what
happened to the id since. DescribeTransactions for the exact (producer id, epoch) mostly can, and otherwise the
partition's own log, through a read_committed fetch at the offsets in the decision. A place that readers cannot reach
yet, for example behind a long transaction of another producer, is waited for, and never treated as a loss.

A known limit: if the coordinator has forgotten an id (after a week by default) and retention has removed the records
too, nothing can prove that a transaction was committed. A re-run of that very micro-batch then stops with "fate
unknown" until an operator closes it; later micro-batches continue. Decisions of batch jobs record their completion.
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition, TransactionState, counted
from spark_eos.backoff import backoff_ms
from spark_eos.errors import (
    AuthenticationError,
    AuthorizationError,
    EosKafkaError,
    LostTransactionError,
    TransactionError,
    UnsupportedError,
)
from spark_eos.options.operator_commands import FOR_ANY_CLUSTER
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.naming import run_again
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.action_table import (
    SETTLE_LIMIT_SECONDS,
    Fate,
    Settlement,
    SettlementAction,
    action_for,
    rule_for,
)
from spark_eos.sink.protocol.answers import Description
from spark_eos.sink.protocol.asks import Count, EndTransactions, Monotonic, Now, Reach, Sleep, StepsOf, info, warn
from spark_eos.sink.protocol.decision_errors import command, lost_error, repair
from spark_eos.sink.protocol.descriptions import describe_prepared, time_left_ms, without_leaders
from spark_eos.sink.protocol.log_fates import logged_fates

_PAUSE_SECONDS: Final = 0.2
# How often a settlement reports what is left, unless something changes.
_REPORT_SECONDS: Final = 5.0
# Transactions that are ended together; a report follows each group.
_GROUP_SIZE: Final = 1_000
# Between attempts to complete a decided micro-batch while its transactions are open.
_FIRST_PAUSE_MS: Final = 500
_LONGEST_PAUSE_MS: Final = 10_000
_UNSETTLED: Final = frozenset({Fate.OPEN, Fate.HIDDEN})
# After these the fates may differ, and are read again.
_LOOKED_AFTER: Final = frozenset({SettlementAction.COMMIT, SettlementAction.ABORT, SettlementAction.WAIT})


class FateRule(NamedTuple):
    """A fate, and the row of docs/protocol/sink.md that it follows."""

    fate: Fate
    rule: str


# (state, begun with transactions V2, stored epoch minus the transaction's own) -> fate. What is not listed is
# inconclusive.
FATES: Final[Mapping[tuple[TransactionState, bool, int], FateRule]] = {
    (TransactionState.ONGOING, False, 0): FateRule(Fate.OPEN, "fate 1"),
    (TransactionState.ONGOING, True, 0): FateRule(Fate.OPEN, "fate 1"),
    (TransactionState.PREPARE_COMMIT, False, 0): FateRule(Fate.COMMITTED, "fate 2"),
    (TransactionState.PREPARE_COMMIT, True, 1): FateRule(Fate.COMMITTED, "fate 2"),
    (TransactionState.COMPLETE_COMMIT, False, 0): FateRule(Fate.COMMITTED, "fate 2"),
    (TransactionState.COMPLETE_COMMIT, True, 1): FateRule(Fate.COMMITTED, "fate 2"),
    (TransactionState.PREPARE_ABORT, False, 0): FateRule(Fate.LOST, "fate 3"),
    (TransactionState.PREPARE_ABORT, True, 1): FateRule(Fate.LOST, "fate 3"),
    (TransactionState.COMPLETE_ABORT, False, 0): FateRule(Fate.LOST, "fate 3"),
    (TransactionState.COMPLETE_ABORT, True, 1): FateRule(Fate.LOST, "fate 3"),
}


async def settle(decision: Decision, limit_seconds: float = SETTLE_LIMIT_SECONDS) -> Settlement:
    """Roll a decided micro-batch forward or back by the table, and return the fates; any process may, at any time.

    What is pending is waited for until nothing was settled for `limit_seconds`. Only a commit that is answered with
    success counts as done. After anything else the fates are read again.
    """
    if decision.completed_at_ms is not None:
        return Settlement(decision, (Fate.COMMITTED,) * len(decision.transactions))
    progressed_at, fewest = await Monotonic(), len(decision.transactions)
    reported_at = -math.inf
    fates: dict[PreparedTransaction, Fate] = {}
    waiting: list[PreparedTransaction] = list(decision.transactions)
    while True:
        refusal: AuthorizationError | None = None
        fates |= await fates_of(waiting)
        action = await _next_action(decision, fates)
        held: Mapping[str, TopicPartition] = {}
        if action in (SettlementAction.COMMIT, SettlementAction.ABORT):
            still_open = [each for each in decision.transactions if fates[each] is Fate.OPEN]
            held = await _held(still_open, commit=action is SettlementAction.COMMIT)
            if ready := [each for each in still_open if each.transactional_id not in held]:
                try:
                    fates |= await _end_open(decision, fates, ready, commit=action is SettlementAction.COMMIT)
                except AuthorizationError as error:
                    # Rights that are changed may be gone for a moment.
                    refusal = error
            action = action_for(decision, fates.values())
        waiting = [t for t in waiting if fates[t] in _UNSETTLED]
        if len(waiting) < fewest:
            progressed_at, fewest = await Monotonic(), len(waiting)
        if action not in _LOOKED_AFTER or await Monotonic() >= progressed_at + limit_seconds:
            break
        if progressed_at > reported_at or await Monotonic() >= reported_at + _REPORT_SECONDS:
            reported_at = await Monotonic()
            leaderless = next((f" when {place} has a leader" for place in held.values()), "")
            await info(
                f"micro-batch {decision.micro_batch} of {decision.query}: {counted(len(waiting), 'transaction')} not "
                f"settled of {len(fates)} decided, among them {waiting[0].transactional_id}; next: {action.value}"
                f"{leaderless}"
            )
        await Sleep(_PAUSE_SECONDS)
    if refusal is not None and action in _LOOKED_AFTER:
        raise refusal
    return Settlement(decision, tuple(fates[transaction] for transaction in decision.transactions))


async def _next_action(decision: Decision, fates: Mapping[PreparedTransaction, Fate]) -> SettlementAction:
    """Return the action of the table, or to wait if it is a first commit and the time of a transaction is over.

    Coordinators that could not record anything for a while then abort, each at its own time. Of commits that are sent
    meanwhile some succeed, and the micro-batch is lost in part. Without any, all of it is aborted and written again. A
    transaction begins at its coordinator, which may be later than its task says: only the coordinator's time counts.
    """
    action = action_for(decision, fates.values())
    is_first = action is SettlementAction.COMMIT and Fate.COMMITTED not in fates.values()
    if not is_first or decision.intervention is not None:
        return action
    still_open = [each for each, fate in fates.items() if fate is Fate.OPEN]
    if await _left_ms(still_open) > 0:
        return action
    described = await describe_prepared(still_open, now_ms := await Now(), leave_out=True)
    is_over = len(described) < len(still_open) or any(time_left_ms(each, now_ms) <= 0 for each in described.values())
    return SettlementAction.WAIT if is_over else action


async def _left_ms(transactions: Collection[PreparedTransaction]) -> int:
    """Return when the first of these times out, from now, by this machine's clock."""
    return min(each.started_at_ms + each.timeout_ms for each in transactions) - await Now()


async def _held(still_open: Collection[PreparedTransaction], *, commit: bool) -> Mapping[str, TopicPartition]:
    """Return the transactions that wait until a partition has a leader again, by id, each with one such partition.

    No commit waits for longer than half of the timeout, after which an abort comes: a marker can be written later.
    """
    now_ms = await Now()
    found = await without_leaders({each.transactional_id: each.ranges for each in still_open})
    late = {t.transactional_id for t in still_open if commit and now_ms >= t.started_at_ms + t.timeout_ms // 2}
    for name in found.keys() & late:
        find_hanging = FOR_ANY_CLUSTER.find_hanging(found[name].topic)
        await warn(
            f"committing {name} although {found[name]} has no leader, before it times out: Apache Kafka may lose its "
            f"marker there (KAFKA-20734). Then `{find_hanging}` prints what writes it"
        )
    return {name: place for name, place in found.items() if name not in late}


async def _end_open(
    decision: Decision,
    fates: Mapping[PreparedTransaction, Fate],
    still_open: Sequence[PreparedTransaction],
    *,
    commit: bool,
) -> dict[PreparedTransaction, Fate]:
    if not commit:
        await warn(
            f"micro-batch {decision.micro_batch} of {decision.query}: aborting "
            f"{counted(len(still_open), 'transaction')} of {len(fates)} decided, among them "
            f"{still_open[0].transactional_id}: {rule_for(decision, fates.values()).reason}"
        )
    await Reach("recovery.before_commit", decision.micro_batch)
    ended: set[PreparedTransaction] = set()
    for done in range(0, len(still_open), _GROUP_SIZE):
        ended |= await end_all(still_open[done : done + _GROUP_SIZE], commit=commit)
        left = len(still_open) - done - _GROUP_SIZE
        if left > 0:
            await info(
                f"micro-batch {decision.micro_batch} of {decision.query}: {counted(left, 'transaction')} left to end "
                f"of {len(fates)} decided"
            )
    await Reach("recovery.after_commit", decision.micro_batch)
    return dict.fromkeys(ended, Fate.COMMITTED) if commit else {}


async def end_all(transactions: Sequence[PreparedTransaction], *, commit: bool) -> set[PreparedTransaction]:
    """Send EndTxn for all; return which of them had success as the response."""
    left_ms = await _left_ms(transactions) if commit and transactions else 0
    wait_ms = left_ms if left_ms > 0 else None
    answers = await EndTransactions([transaction.opened for transaction in transactions], commit, wait_ms)
    return {t for t in transactions if answers[t.transactional_id].code is ErrorCode.NONE}


async def fates_of(transactions: Collection[PreparedTransaction]) -> dict[PreparedTransaction, Fate]:
    """Return the fates of transactions, from their coordinators and then from the partitions' logs.

    A coordinator that reports an abort may mean the next transaction: one that was ended by the old protocol, after a
    downgrade, leaves the epoch unchanged. So a transaction of transactions V2 is lost only if its log can be read and
    does not show it as committed, or no longer has the records.
    """
    described = await describe_prepared(transactions, await Now(), leave_out=True) if transactions else {}
    fates = {each: described_fate(each, described.get(each.transactional_id)) for each in transactions}
    unclear = [each for each, fate in fates.items() if fate is None or fate is Fate.LOST]
    logged = await logged_fates(unclear)
    return {each: _overridden(each, fate, logged.get(each)) for each, fate in fates.items()}


def _overridden(transaction: PreparedTransaction, described: Fate | None, logged: Fate | None) -> Fate:
    if described is None or logged is Fate.COMMITTED:
        assert logged is not None
        return logged
    if logged is Fate.HIDDEN and transaction.opened.transaction_version >= 2:
        return logged
    return described


def described_fate(transaction: PreparedTransaction, description: Description | None) -> Fate | None:
    _, producer, version = transaction.opened
    if description is None or description.producer.producer_id != producer.producer_id:
        return None
    distance = description.producer.producer_epoch - producer.producer_epoch
    found = FATES.get((description.state, version >= 2, distance))
    return None if found is None else found.fate


async def complete(
    decision: Decision, prepared: Sequence[PreparedTransaction], ends_at_ms: int, *, is_open: bool
) -> None:
    """Complete a decision, with retries until its transactions are about to time out, at `ends_at_ms`.

    Refused credentials are tried again for half of that time: a process keeps its password, and only a restart that has
    the new one can commit the rest. If `is_open`, none can have timed out, and the first attempt does not verify.
    """
    wait_until_ms: float = await Now()
    refused_until_ms = (wait_until_ms + ends_at_ms) / 2
    for attempt in itertools.count():
        pause_ms = backoff_ms(attempt, _FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        try:
            if is_open and await _commit_all(decision, prepared):
                return
            is_open = False
            settled = await settle(decision)
            if not settled.took_effect:
                raise lost_error(settled)
            return
        except LostTransactionError:
            raise
        except EosKafkaError as error:
            is_open = False
            wait_until_ms = max(await Now(), wait_until_ms) + pause_ms
            is_final = isinstance(error, UnsupportedError) or (attempt and isinstance(error, AuthorizationError))
            until_ms = refused_until_ms if isinstance(error, AuthenticationError) else ends_at_ms
            if wait_until_ms >= until_ms or is_final:
                # To write it again would duplicate rows.
                raise TransactionError(
                    f"Micro-batch {decision.micro_batch} of query {decision.query} is decided, but could not be "
                    f"completed: {error}",
                    checked="EndTxn, retried until a retry could not succeed, the transactions were about to time out, "
                    "or half of their time had passed with refused logins",
                    remedy="Do not write its rows again by other means. Before the transactions time out, "
                    f"{run_again(decision.query, decision.run)}, or run "
                    f"`{command(decision, 'complete')}`",
                    error_code=error.error_code,
                ) from error
            await warn(
                f"micro-batch {decision.micro_batch} of {decision.query} is decided, retrying its completion: {error}"
            )
            await Count("completion_retries")
            await Sleep(pause_ms / 1000)


async def _commit_all(decision: Decision, prepared: Sequence[PreparedTransaction]) -> bool:
    held = await _held(prepared, commit=True)
    ready = [each for each in prepared if each.transactional_id not in held]
    steps = [[t] for t in ready] if await StepsOf("driver.mid_complete") else [ready]
    committed: set[PreparedTransaction] = set()
    for step in steps:
        committed |= await end_all(step, commit=True)
        await Reach("driver.mid_complete", decision.micro_batch)
    return len(committed) == len(prepared)


async def must_task_write(decision: Decision, split: int, policy: OnLostTransaction) -> bool:
    """Return whether a task of a decided micro-batch writes, from its own transaction alone if that is enough.

    A task writes if it cannot tell: the driver compares and drops what took effect before. Only an open transaction is
    settled at once, since it could time out before all rows are written again.
    """
    if decision.completed_at_ms is not None or decision.is_skipped:
        return False
    own = [transaction for transaction in decision.transactions if transaction.split == split]
    fates = set((await fates_of(own)).values())
    if Fate.OPEN in fates:
        return must_write(await settle(decision), split, policy)
    return fates != {Fate.COMMITTED}


def must_write(settlement: Settlement, split: int, policy: OnLostTransaction) -> bool:
    """Return whether a task writes its rows; raise `LostTransactionError` if neither writing nor skipping is safe."""
    action = settlement.action
    if action is SettlementAction.CLOSED:
        return False
    if action is SettlementAction.WRITE_AGAIN:
        return True
    if action is not SettlementAction.WRITE_LOST or policy is OnLostTransaction.FAIL:
        raise lost_error(settlement)
    return split in {transaction.split for transaction in settlement.lost}


async def judge_other(settled: Settlement, micro_batch: int) -> None:
    """Raise if transactions are lost that no re-run will write: of an older micro-batch, or of another write.

    Spark has moved past an older micro-batch, so either it was committed, or its re-run had no task and none has rolled
    it forward. Transactions whose fate is unknown most likely belong to the first case: a query that was stopped until
    its ids had expired. Open ones belong to the second case: once there is a newer decision, nothing would complete
    them.
    """
    is_older = settled.decision.micro_batch < micro_batch
    if settled.still_open:
        raise lost_error(settled)
    if settled.lost and not settled.is_closed:
        account = lost_error(settled)
        if settled.unknown:
            raise account
        remedy = f"{account.remedy}. If the foreachBatch function still makes this write, let it make it first"
        if is_older:
            remedy = (
                f"The query is at micro-batch {micro_batch} and will not run the older one again, so "
                f"onLostTransaction=rewrite cannot write it. Instead {repair(settled.decision)}"
            )
        raise type(account)(account.happened, checked=account.checked, remedy=remedy)
    if not settled.is_closed:
        await warn(
            f"micro-batch {micro_batch}: continuing although {'an older one' if is_older else 'the write'} of "
            f"{settled.decision.query} may be incomplete: {lost_error(settled)}"
        )
