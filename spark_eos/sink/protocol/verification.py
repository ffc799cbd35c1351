"""The checks that transactions stay open for as long as a micro-batch needs, and that their topics are the same."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_core.types import TransactionState, counted
from spark_eos.errors import EosKafkaError, LostTransactionError, TopicError
from spark_eos.options.operator_commands import FOR_ANY_CLUSTER
from spark_eos.sink.decision import Decision, utc
from spark_eos.sink.naming import run_again
from spark_eos.sink.prepared import PreparedTransaction, ids_of_topics
from spark_eos.sink.protocol.answers import Description
from spark_eos.sink.protocol.asks import Gauge, LostRanges, Now, ReplacedTopics, info, warn
from spark_eos.sink.protocol.descriptions import describe_prepared, time_left_ms
from spark_eos.sink.protocol.orphan_sweep import run_of
from spark_eos.sink.protocol.rerun_checks import written_name

# A transaction this near to its timeout may end before EndTxn arrives.
_MARGIN_SHARE: Final = 0.1
MARGIN_LIMIT_MS: Final = 30_000
# A decision and its completion take a few round trips, however short the timeout is.
_SHORTEST_MARGIN_MS: Final = 1_000
# Without rows no transaction sets a limit.
_WITHOUT_ROWS_MS: Final = 120_000


class TimeLimits(NamedTuple):
    """The times that a micro-batch's transactions leave, by this machine's clock.

    When the first one times out, and until when deciding is allowed: half of the margin is left for completion.
    `began_at_ms` is when the first one began, by its coordinator's clock; None without any.
    """

    ends_at_ms: int
    decide_by_ms: int
    began_at_ms: int | None


async def verify(query: str, micro_batch: int, prepared: Sequence[PreparedTransaction]) -> TimeLimits:
    """Raise if a transaction is not open any more, or not for long enough.

    The margin covers clocks that differ by less than half of it.
    """
    await _check_topics(query, micro_batch, prepared)
    described = await describe_prepared(prepared, await Now())
    now_ms = await Now()
    for transaction in prepared:
        found = described.get(transaction.transactional_id)
        problem = open_problem(transaction, found, now_ms)
        if problem:
            raise LostTransactionError(
                f"Micro-batch {micro_batch} of query {query} cannot be committed: transaction "
                f"{transaction.transactional_id} of task {transaction.split} {problem}",
                checked="DescribeTransactions, before anything was decided; no row of the micro-batch is visible",
                remedy=f"To write all of it again, {run_again(query, run_of(transaction.transactional_id))}. If it "
                "timed out, and no broker was away meanwhile, raise transactionTimeout above the longest duration of a "
                f"micro-batch or job{_left_open(transaction) if found is None else ''}",
            )
    await _check_logs(query, micro_batch, prepared)
    began_at_ms = min((d.started_at_ms for d in described.values() if d.started_at_ms >= 0), default=None)
    left_ms = [min(t.timeout_ms, time_left_ms(described[t.transactional_id], now_ms)) for t in prepared]
    await Gauge("open_transactions", len(prepared))
    await Gauge("oldest_open_age_ms", 0 if began_at_ms is None else now_ms - began_at_ms)
    await Gauge("time_to_timeout_ms", min(left_ms, default=0))
    if any(2 * left < t.timeout_ms for left, t in zip(left_ms, prepared, strict=True)):
        await warn(
            f"micro-batch {micro_batch} of {query}: the oldest transaction times out in {min(left_ms)} ms, more than "
            "half of its timeout has passed; raise transactionTimeout or make micro-batches smaller"
        )
    # A coordinator whose clock is ahead of this one gives no transaction more than its timeout.
    ends_at_ms = now_ms + min(left_ms, default=MARGIN_LIMIT_MS)
    margin = min((margin_ms(t.timeout_ms) for t in prepared), default=0)
    return TimeLimits(ends_at_ms, ends_at_ms - margin // 2, began_at_ms)


def _left_open(transaction: PreparedTransaction) -> str:
    """Return what an operator has to do if brokers have lost what they knew of an open transaction."""
    topics = dict.fromkeys(written.topic for written in transaction.ranges)
    searches = ", ".join(f"`{FOR_ANY_CLUSTER.find_hanging(topic)}`" for topic in topics)
    return (
        ". If brokers have lost records of __transaction_state, what the task has written blocks read_committed "
        f"readers until you end it: {searches} prints the command"
    )


async def _check_topics(query: str, micro_batch: int, prepared: Sequence[PreparedTransaction]) -> None:
    """Raise if a topic was deleted and created again after tasks had written to it: their rows went with it."""
    replaced, lost = await replaced_topics(prepared)
    if replaced:
        raise LostTransactionError(
            f"Micro-batch {micro_batch} of query {query} cannot be committed: topic {replaced} was deleted and created "
            f"again while tasks wrote to it, and up to {counted(lost, 'record')} of theirs went with it",
            checked="The topic ids in Metadata, before anything was decided; no row of the micro-batch is visible",
            remedy="Start the query or the job again: it writes all rows of the micro-batch to the new topic. What "
            "earlier micro-batches had written to the deleted topic is not written again",
        )


async def _check_logs(query: str, micro_batch: int, prepared: Sequence[PreparedTransaction]) -> None:
    """Raise if a partition has lost what tasks had written: EndTxn would commit what is left of it."""
    if all(each.leader_epoch < 0 for transaction in prepared for each in transaction.ranges):
        return
    lost = await LostRanges(prepared)
    if lost:
        transaction, written = lost[0]
        others = f", and {counted(len(lost) - 1, 'other part')}" if len(lost) > 1 else ""
        raise LostTransactionError(
            f"Micro-batch {micro_batch} of query {query} cannot be committed: {written.place} does not have "
            f"{counted(written.record_count, 'record')} from offset {written.first_offset} on of task "
            f"{transaction.split} any more{others}",
            checked="The transactions in the partition's log (DescribeProducers), since another leader was elected "
            "after the task wrote, before anything was decided; no row of the micro-batch is visible",
            remedy=f"To write all of it again, {run_again(query, run_of(transaction.transactional_id))}. "
            "The partition's leader lost its disk, or was elected uncleanly: rows of earlier micro-batches may be lost "
            "too, and are not written again. Use 3 replicas and min.insync.replicas=2",
        )


async def check_topics_kept(decision: Decision, *, is_job: bool) -> None:
    """Refuse a job, and warn of a micro-batch, whose rows went with a topic that was deleted and created again.

    A query goes on in any case: another query or a new checkpoint writes its rows again, and no re-run does.
    """
    name = written_name(decision, is_job)
    try:
        replaced, lost = await replaced_topics(decision.transactions)
    except EosKafkaError as failure:
        if is_job and isinstance(failure, TopicError):
            raise LostTransactionError(
                f"{name} was written at {utc(decision.decided_at_ms)}, and a topic with its rows is gone: "
                f"{failure.happened}",
                checked="The topics in the decision, and in Metadata now; nothing was written",
                remedy="If its rows are not needed any more, do not run it again. Otherwise create the topic, and give "
                "the job another jobId",
            ) from failure
        if is_job:
            raise
        await info(f"whether the topics of {name} are still there is unknown: {failure}")
        return
    if not replaced:
        return
    error = LostTransactionError(
        f"{name} was written at {utc(decision.decided_at_ms)}; after that topic {replaced} was deleted and created "
        f"again, and {counted(lost, 'record')} of it went with it",
        checked="The topic ids in the decision, and in Metadata now; nothing was written",
        remedy="Look into the topics first. A copy of another cluster has other topic ids and may have the rows: then "
        "the job is complete. To write all rows of the job to the topics as they are now, give it another jobId"
        if is_job
        else "The query goes on. What it had written to the deleted topic is not written again: a query with a new "
        "checkpoint writes all rows",
    )
    if is_job:
        raise error
    await warn(str(error))


async def replaced_topics(written: Sequence[PreparedTransaction]) -> tuple[str, int]:
    ids = ids_of_topics(written)
    replaced = await ReplacedTopics(ids, [transaction.transactional_id for transaction in written]) if ids else ()
    lost = sum(r.record_count for each in written for r in each.ranges if r.topic in replaced)
    return ", ".join(map(repr, sorted(replaced))), lost


def open_problem(transaction: PreparedTransaction, description: Description | None, now_ms: int) -> str | None:
    """Return why a prepared transaction must not be decided on, or None if it is open and has time left."""
    if description is None:
        return "is unknown to its coordinator"
    identity = transaction.producer
    if description.state is not TransactionState.ONGOING or description.producer != identity:
        return (
            f"is not open: its state is {description.state.label} and its producer {description.producer}; it "
            f"was prepared with {identity}"
        )
    written = {each.place for each in transaction.ranges}
    if not written <= description.topic_partitions:
        # EndTxn writes no marker to partitions that the coordinator does not know, so the records there would hang.
        return (
            f"has written to {sorted(map(str, written))}, but its coordinator has "
            f"{sorted(map(str, description.topic_partitions))}"
        )
    left_ms = time_left_ms(description, now_ms)
    if left_ms >= margin_ms(description.timeout_ms):
        return None
    if left_ms >= 0:
        return f"times out in {left_ms} ms (its timeout is {description.timeout_ms} ms)"
    # Coordinators look for such transactions every few seconds.
    reason = "its coordinator aborts it soon, or" if left_ms >= -MARGIN_LIMIT_MS else "so"
    return (
        f"timed out {-left_ms} ms ago by this driver's clock (its timeout is {description.timeout_ms} ms) and is still "
        f"open: {reason} its coordinator's clock differs: compare the two clocks"
    )


def margin_ms(timeout_ms: int) -> int:
    """Return how long before its timeout a transaction is no longer decided on: a tenth of it, within bounds."""
    shortest_ms = min(_SHORTEST_MARGIN_MS, timeout_ms // 2)
    return int(max(shortest_ms, min(timeout_ms * _MARGIN_SHARE, MARGIN_LIMIT_MS)))


def decide_until_ms(prepared: Sequence[PreparedTransaction], now_ms: int) -> int:
    """Return until when a micro-batch may be decided, based on its tasks; `verify` has the final result."""
    ends = [t.started_at_ms + t.timeout_ms - margin_ms(t.timeout_ms) for t in prepared]
    return min(ends, default=now_ms + _WITHOUT_ROWS_MS)
