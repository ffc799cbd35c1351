"""The errors of a driver that cannot decide a micro-batch, does not know whether it has, or has lost a decided one."""

from collections.abc import Collection, Sequence
from typing import Final

from broker_core.types import ProducerIdentity, TopicPartition, counted
from spark_eos.errors import EosKafkaError, FencedError, LostTransactionError, TransactionError
from spark_eos.options.operator_commands import FOR_ANY_CLUSTER
from spark_eos.options.sink import DEFAULT_DECISION_TOPIC
from spark_eos.sink.decision import Decision, Rank, UnreadableDecisionError
from spark_eos.sink.naming import is_query_id, run_again
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.action_table import SETTLE_LIMIT_SECONDS, Settlement, SettlementAction
from spark_eos.sink.protocol.answers import CommittedOffset, Description

SKIP: Final = ("abort", "--restart", "skip")
_LINES_SHOWN: Final = 50


class UndecidedError(TransactionError):
    """A decision that was not made; another attempt may make it."""


class UnclearError(UndecidedError):
    """A decision whose outcome is unknown; another take-over determines it."""


class OutdatedError(UndecidedError):
    """A decision that is newer than the one a driver took for the newest; `rank` is the newer one's."""

    def __init__(self, happened: str, *, rank: Rank, checked: str = "", remedy: str = "") -> None:
        super().__init__(happened, checked=checked, remedy=remedy)
        self.rank = rank


def undecided_error(decision: Decision, group: str, reason: str, code: int | None) -> UndecidedError:
    return UndecidedError(
        f"Micro-batch {decision.micro_batch} of query {decision.query} was not decided: {reason}",
        checked=f"The offset of group {group}, which does not point to this decision",
        remedy=f"No row of the micro-batch is visible: {run_again(decision.query, decision.run)}",
        error_code=code,
    )


def too_late_error(micro_batch: int, late_ms: int) -> TransactionError:
    return TransactionError(
        f"Micro-batch {micro_batch} is not decided: writing the decision took {late_ms} ms too long, and its "
        "transactions might time out before they could be completed",
        checked="The clock, before the decision's transaction ended; it was aborted and nothing is visible",
        remedy="Restart the query, or the job with its jobId, and check why writing to the decision topic was "
        "slow, or whether this driver's clock was set ahead meanwhile; a longer transactionTimeout helps",
    )


def repeated_error(decision: Decision, place: TopicPartition, offset: int) -> UndecidedError:
    return UndecidedError(
        f"Micro-batch {decision.micro_batch} of query {decision.query} is not decided: the leader of {place} "
        f"acknowledged its decision at offset {offset}, where another record was before",
        checked="The offset in the response to Produce, and where the partition ended when this driver read it; the "
        "transaction of the decision was aborted",
        remedy=f"Either __transaction_state or {place.topic} has lost its newest records. Nothing that this run "
        f"prepared is visible: {run_again(decision.query, decision.run)}",
    )


def unclear_error(decision: Decision, error: EosKafkaError) -> UnclearError:
    return UnclearError(
        f"Cannot determine whether micro-batch {decision.micro_batch} of query {decision.query} is decided: the "
        "request that ends its decision had no conclusive response, and the decision log cannot be read",
        checked=str(error),
        remedy=f"Do not write its rows again by other means, but {run_again(decision.query, decision.run)}. This "
        "determines the outcome and completes the micro-batch",
    )


def outdated_error(query: str, run: str, group: str, rank: Rank) -> OutdatedError:
    return OutdatedError(
        f"Query {query} already has a decision for micro-batch {rank.micro_batch}, which this driver did not know when "
        "it decided",
        rank=rank,
        checked=f"The offset of group {group}, read from the coordinator that just accepted another offset; before the "
        "first decision also the decision topic. The earlier response came from a broker that is disconnected from the "
        "others, or another driver runs the query with another transactionalIdPrefix",
        remedy=f"Nothing was decided, and nothing that this run prepared is visible: {run_again(query, run)}",
    )


def foreign_offset_error(query: str, group: str, offset: CommittedOffset, topic: str) -> UnreadableDecisionError:
    found = offset.topic_partition.topic
    return UnreadableDecisionError(
        f"Group {group} of query {query} has an offset of topic '{found}', which the sink did not commit",
        checked=f"The metadata of the offset is {offset.metadata[:200]!r}; option decisionTopic is '{topic}'",
        remedy=f"If the query began with decisionTopic={found}, set this again. Otherwise make sure that no consumer "
        f"uses the group, and run `kafka-consumer-groups.sh --delete-offsets --group {group} --topic {found}`: the "
        f"sink finds its decisions in '{topic}' without it. Keep transactionalIdPrefix",
    )


def gone_error(query: str, run: str, group: str, topic: str, micro_batch: int, ids: Sequence[str]) -> TransactionError:
    is_query = is_query_id(query, run)
    return TransactionError(
        f"The decisions of {'query' if is_query else 'the job with jobId'} {query} are gone: the decision topic "
        f"'{topic}' has none, but {counted(len(ids), 'transactional id')}, among them {ids[0]}, committed rows, which "
        "takes a decision",
        checked=(
            f"The offsets of group {group}, the records of the topic, and ListTransactions; nothing was written now. "
            "The topic was deleted, created again or emptied, or decisionTopic was changed together with "
            "transactionalIdPrefix: if so, set both back"
            + ("" if is_query else ". Or the job was completed longer ago than its decision is kept")
        ),
        remedy=gone_remedy(query, run, micro_batch),
    )


def gone_remedy(query: str, run: str, micro_batch: int, *, may_be_passed: bool = False) -> str:
    """Return how to go on without a decision that says whether a micro-batch was written.

    With `may_be_passed` the query may be at a later micro-batch, which nothing has decided: to pass that would lose it.
    """
    if not is_query_id(query, run):
        return (
            "Look into the output: the job may have written all of its rows, a part, or none. If all are there, the "
            "job is complete: do not run it again. If none is there, run it with another jobId, which writes all. If a "
            "part is there, write only the missing rows, by a job with another jobId"
        )
    outputs = "each output of the function" if "/" in query else "the output"
    passed = (
        f"If the checkpoint has the file 'commits/{micro_batch}', all rows of micro-batch {micro_batch} are written: "
        "give the query a new identity, as below, and start it. If not, look"
        if may_be_passed
        else "Look"
    )
    return (
        f"{passed} into {outputs}: all rows of micro-batch {micro_batch} may be there, a part, or none. Then give the "
        "query a new identity, under which it writes this micro-batch once more: replace the id in the checkpoint's "
        "file 'metadata' with a new UUID, and delete '.metadata.crc' next to it. If none of the rows is there, start "
        'the query. If all are there, first start it once with format("noop") and trigger(once=True), which passes '
        "this one micro-batch and writes nothing. If a part is there, do the same, and write the missing rows by a job"
    )


def newer_driver_error(query: str, run: str, found: Description, left: ProducerIdentity) -> FencedError:
    return FencedError(
        f"A newer driver is running query {query}",
        checked=f"{found.transactional_id} has producer {found.producer}; this driver had {left}. Micro-batches that "
        "this driver did not decide are not visible",
        remedy=f"Run one driver for each checkpoint or jobId, then {run_again(query, run)}. If there is no other one, "
        "an operator has ended the transactional id with force-terminate, and that restart is enough",
    )


def disagreement_error(
    settled: Settlement | None, query: str, run: str, micro_batch: int, splits: Sequence[int]
) -> UndecidedError:
    what = (
        "no decision for it"
        if settled is None
        else (f"{counted(len(settled.lost), 'transaction')} of attempt {settled.decision.attempt}, all lost")
    )
    return UndecidedError(
        f"{counted(len(splits), 'task')}, among them task {splits[0]}, found micro-batch {micro_batch} of query "
        f"{query} decided and committed; the driver found {what}",
        checked="The decision log, DescribeTransactions and the partitions' logs, by each task and then by the "
        "driver. Possible causes: a broker that is disconnected from the others or was paused and returns "
        "outdated responses, or a decision topic or output topic that was deleted in between",
        remedy=f"Nothing was decided and nothing that this run prepared becomes visible: {run_again(query, run)}; "
        "restarting is safe. If this repeats, look for a broker that lost its connection to the others",
    )


def other_plan_error(settlement: Settlement, split_count: int, written: Collection[int]) -> TransactionError:
    account = lost_error(settlement)
    how = f" with the same {counted(settlement.decision.split_count, 'task')}"
    lost = sorted({transaction.split for transaction in settlement.lost})
    return type(account)(
        account.happened,
        checked=f"{account.checked}. The decision has {counted(settlement.decision.split_count, 'task')}, of which "
        f"{lost} are lost; this run has {counted(split_count, 'task')}, of which {sorted(written)} have rows",
        remedy="onLostTransaction=rewrite needs a re-run that gives each task the same rows: "
        f"{run_again(settlement.decision.query, settlement.decision.run, how)}. If that is not "
        f"possible, {repair(settlement.decision)}",
    )


def repair(decision: Decision) -> str:
    """Return how an operator writes lost rows, and closes their micro-batch."""
    return (
        f"write the rows of the lost transactions, which `{command(decision, 'show')}` lists, to the topic by other "
        f"means. Then {_close(decision)}"
    )


def _close(decision: Decision) -> str:
    return f"close the micro-batch with `{command(decision, *SKIP)}`: the sink never writes them after that"


def command(decision: Decision, name: str, *more: str) -> str:
    """Return a command about the decision, which is the newest of its query."""
    if decision.topic not in ("", DEFAULT_DECISION_TOPIC):
        more = (f"--decision-topic={decision.topic}", *more)
    return FOR_ANY_CLUSTER.decisions(name, decision.prefix, decision.query, *more)


def lost_error(settlement: Settlement) -> TransactionError:
    """Return the error that lists what of a decided micro-batch is visible and what is not; pending is not lost."""
    if settlement.pending and settlement.action is not SettlementAction.STOP:
        return _pending_error(settlement)
    decision = settlement.decision
    missing = settlement.lost + settlement.unknown + settlement.still_open
    lines = [_account(transaction, "lost") for transaction in settlement.lost]
    lines += [_account(transaction, "fate unknown") for transaction in settlement.unknown]
    lines += [_account(transaction, "open") for transaction in settlement.still_open]
    happened = (
        f"Micro-batch {decision.micro_batch} of query {decision.query} was decided, but {len(missing)} of its "
        f"{counted(len(decision.transactions), 'transaction')} ({sum(t.record_count for t in missing)} of "
        f"{counted(decision.record_count, 'record')}) are not known to be committed: "
    )
    return LostTransactionError(
        happened + _shown(lines),
        checked="DescribeTransactions for each transaction, then the log at the offsets in the decision",
        remedy=_lost_remedy(settlement),
    )


def _lost_remedy(settlement: Settlement) -> str:
    decision = settlement.decision
    if settlement.took_no_effect:
        return (
            f"No row of the micro-batch is or becomes visible: {run_again(decision.query, decision.run)}, which writes "
            "all of it again. If the transactions timed out while the query was down, raise transactionTimeout (and "
            "transaction.max.timeout.ms on the brokers)"
        )
    if settlement.still_open:
        return (
            "Whether the open transactions may be committed depends on the unknown one, which neither its "
            "coordinator nor its log reports any more. Read the topic at the offsets above. If the rows of the unknown "
            f"one are there, commit the open ones with `{command(decision, 'complete')}` before they time out; if they "
            "are not, this makes a part of the micro-batch visible. Or abort the open ones with "
            f"`{command(decision, *SKIP)}`: the sink never writes their rows after that, so write them to the topic by "
            "other means"
        )
    if settlement.unknown:
        return (
            "Neither the coordinators nor the logs know any more whether the unknown ones were committed: their ids "
            "have expired, their records or topics were deleted, or this is another cluster, such as a copy. Compare "
            f"the topic with the transactions, which `{command(decision, 'show')}` lists, and write only the rows that "
            f"are missing, by other means. Then {_close(decision)}"
        )
    return (
        "The transactions most likely timed out while the query was down: raise transactionTimeout (and "
        "transaction.max.timeout.ms on the brokers). If a re-run gives each task the same rows, set "
        f"onLostTransaction=rewrite to write only the lost ones again. Otherwise {repair(decision)}"
    )


def _account(transaction: PreparedTransaction, fate: str) -> str:
    places = ", ".join(
        f"{w.topic}-{w.partition}@{w.first_offset}..{w.last_offset} ({counted(w.record_count, 'record')})"
        for w in transaction.ranges
    )
    return (
        f"task {transaction.split}: {fate}, {transaction.transactional_id} producer {transaction.producer.producer_id} "
        f"epoch {transaction.producer.producer_epoch}: {places}"
    )


def _shown(lines: list[str]) -> str:
    if len(lines) > _LINES_SHOWN:
        lines[_LINES_SHOWN:] = [f"... and {len(lines) - _LINES_SHOWN} more, all listed in the decision record"]
    return "; ".join(lines)


def _pending_error(settlement: Settlement) -> TransactionError:
    decision = settlement.decision
    topic = next(written.topic for transaction in settlement.pending for written in transaction.ranges)
    find_hanging = FOR_ANY_CLUSTER.find_hanging(topic)
    still_open = settlement.still_open
    lines = [
        _account(transaction, "open" if transaction in still_open else "not readable yet")
        for transaction in settlement.pending
    ]
    so_far = "Nothing is lost so far"
    if settlement.lost:
        lines += [_account(transaction, "lost") for transaction in settlement.lost]
        so_far = "The lost transactions stay lost; whether a part is visible becomes known when all can be read"
    elif len(still_open) == len(decision.transactions):
        so_far += (
            ". If their time was over by this driver's clock, none is the first to be committed: brokers abort all, "
            "and the next start writes all again; if they stay open, compare the clocks of driver and brokers"
        )
    return TransactionError(
        f"Micro-batch {decision.micro_batch} of query {decision.query} is decided, but {len(settlement.pending)} of "
        f"its {counted(len(decision.transactions), 'transaction')} could not be ended or read yet: " + _shown(lines),
        checked="DescribeTransactions and the log at the offsets in the decision, until no transaction was settled "
        f"for {SETTLE_LIMIT_SECONDS:.0f} s, or there was no more time for the next micro-batch",
        remedy=f"{so_far}. Make sure that the coordinators and leaders are running and that the driver has READ on the "
        "topics, and end any other producer's open transaction that blocks the last stable offset there (if it "
        f"hangs, `{find_hanging}` prints the command).{_end_of_forgotten(settlement)} Then "
        f"{run_again(decision.query, decision.run)}",
    )


def _end_of_forgotten(settlement: Settlement) -> str:
    """Return how to end what brokers may have forgotten, as the others end: the tool proposes an abort in any case."""
    hidden = [transaction for transaction in settlement.pending if transaction not in settlement.still_open]
    if not hidden:
        return ""
    is_kept = not settlement.decision.is_abandoned and (bool(settlement.committed) or not settlement.lost)
    outcome = "the micro-batch is decided, so commit it" if is_kept else "abort it like the others"
    # Without its coordinator nothing but the decision proves that it may be committed.
    written = hidden[0].ranges[0]
    command = FOR_ANY_CLUSTER.abort(written.place, written.first_offset, commit=is_kept, is_forced=is_kept)
    return (
        " If it names one that is not readable above, the brokers have lost what its coordinator knew: "
        f"{outcome}, in each of its partitions, as with `{command}`."
    )
