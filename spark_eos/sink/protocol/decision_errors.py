"""The errors of a driver that cannot decide a micro-batch, or does not know whether it has decided."""

from collections.abc import Collection, Sequence

from broker_core.types import ProducerIdentity, counted
from spark_eos.errors import EosKafkaError, FencedError, TransactionError
from spark_eos.sink.decision import Decision, Rank, UnreadableDecisionError
from spark_eos.sink.naming import is_query_id, run_again
from spark_eos.sink.protocol.action_table import Settlement
from spark_eos.sink.protocol.answers import CommittedOffset, Description
from spark_eos.sink.protocol.settlement import lost_error, repair


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
