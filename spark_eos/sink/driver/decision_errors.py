"""The errors of a driver that cannot decide a micro-batch, or does not know whether it has."""

from collections.abc import Collection, Sequence

from broker_core.types import ProducerIdentity
from spark_eos.errors import EosKafkaError, FencedError, TransactionError
from spark_eos.sink.decision import Decision
from spark_eos.sink.ports import Description
from spark_eos.sink.recovery.action_table import Settlement
from spark_eos.sink.recovery.settlement import lost_error


class UndecidedError(TransactionError):
    """A decision that was not made, so that another attempt may be."""


class UnclearError(UndecidedError):
    """A decision of which it is not known whether it was made; to take over again finds it out."""


class OutdatedError(UndecidedError):
    """Another decision is the newest than the one a driver took for it; `rank` is the other one's."""

    def __init__(self, happened: str, *, rank: tuple[int, int, int], checked: str = "", remedy: str = "") -> None:
        super().__init__(happened, checked=checked, remedy=remedy)
        self.rank = rank


def undecided_error(decision: Decision, group: str, reason: str, code: int | None) -> UndecidedError:
    """Say that a decision was not made."""
    return UndecidedError(
        f"Micro-batch {decision.micro_batch} of query {decision.query} was not decided: {reason}",
        checked=f"The offset of group {group} does not point to this decision",
        remedy="Nothing of it is visible. Start the query again",
        error_code=code,
    )


def unclear_error(decision: Decision, error: EosKafkaError) -> UnclearError:
    """Say that it could not be found out what became of a decision."""
    return UnclearError(
        f"It is not known whether micro-batch {decision.micro_batch} of query {decision.query} is decided: the "
        "end of its decision got no clear answer, and the decision log cannot be read",
        checked=str(error),
        remedy=(
            "Do not write its rows again by other means. Start the query again from its checkpoint, or the job "
            f"with the same jobId (for this job, jobId={decision.query}): that finds out and completes it"
        ),
    )


def outdated_error(query: str, group: str, rank: tuple[int, int, int]) -> OutdatedError:
    """Say that what a driver read of the decisions was from the past."""
    return OutdatedError(
        f"Query {query} has a decision for micro-batch {rank[0]} that this driver did not know when it decided",
        rank=rank,
        checked=(
            f"The offset of group {group}, asked of the coordinator that has just accepted another one. The earlier "
            "answer came from a broker that is cut off from its peers"
        ),
        remedy="Nothing was decided now, and nothing that was prepared now is visible. Start the query again",
    )


def behind_error(query: str, rank: tuple[int, int, int]) -> OutdatedError:
    """Say that another process of the run has decided, which what this one read did not show."""
    return OutdatedError(
        f"Another process of this run has decided micro-batch {rank[0]} of query {query}, which this one did not know",
        rank=rank,
        checked="The newest decision, again. The earlier answer came from a broker that is cut off from its peers",
        remedy="Nothing was decided now, and nothing that was prepared now is visible. Start the query again",
    )


def late_error(error: FencedError) -> UndecidedError:
    """Say that an id was perhaps taken by an earlier request of this process, which was done late."""
    return UndecidedError(
        "The driver's transactional id was taken over, perhaps by a request of this process that got no answer before",
        checked=error.checked,
        remedy="Nothing was decided now. Start the query again",
    )


def newer_driver_error(query: str, found: Description, left: ProducerIdentity) -> FencedError:
    """Say that another driver has taken the query over."""
    return FencedError(
        f"A newer driver runs query {query}",
        checked=(
            f"{found.transactional_id} is producer {found.identity}, this driver left it as {left}. What this driver "
            "has not decided is not visible"
        ),
        remedy="Run one driver for each checkpoint, then start the query again",
    )


def incomplete_error(decision: Decision, error: EosKafkaError) -> TransactionError:
    """Say that a micro-batch is decided although its commit failed: to write it again would double its rows."""
    return TransactionError(
        f"Micro-batch {decision.micro_batch} of query {decision.query} is decided, but could not be completed: {error}",
        checked="EndTxn, repeated as long as that could help and the transactions were not about to time out",
        remedy=(
            "Do not write its rows again by other means. Start the query again from its checkpoint, or the job "
            f"with the same jobId (for this job, jobId={decision.query}), before the transactions time out: that "
            "completes it, and so does `eos-kafka decisions complete`"
        ),
        error_code=error.error_code,
    )


def disagreement_error(
    settled: Settlement | None, query: str, micro_batch: int, splits: Sequence[int]
) -> UndecidedError:
    """Stop where tasks skipped their rows because they found them committed, and the driver finds nothing visible."""
    what = (
        "no decision for it"
        if settled is None
        else (f"all {len(settled.lost)} transactions of attempt {settled.decision.attempt} lost")
    )
    return UndecidedError(
        f"{len(splits)} tasks, {splits[0]} among them, found micro-batch {micro_batch} of query {query} decided and "
        f"committed; the driver finds {what}",
        checked=(
            "The decision log, DescribeTransactions and the partitions' logs, by each task and then by the driver. A "
            "stale broker can cause this: one that is cut off from the others, or wakes from a pause, and answers from "
            "the past. So can a decision topic or an output topic that was deleted meanwhile"
        ),
        remedy=(
            "Nothing was decided now and nothing that this run has prepared will be visible, so a restart is safe: "
            "start the query again. If it happens again, look for a broker that lost its connection to the others"
        ),
    )


def other_plan_error(settlement: Settlement, split_count: int, written: Collection[int]) -> TransactionError:
    """Refuse to write what is lost again with tasks that are not those of the decision: their rows are others."""
    account = lost_error(settlement)
    lost = sorted({transaction.split for transaction in settlement.lost})
    return type(account)(
        account.happened,
        checked=(
            f"{account.checked}. Decided were {settlement.decision.split_count} tasks, of which {lost} are lost; this "
            f"run has {split_count} tasks, of which {sorted(written)} have rows"
        ),
        remedy=(
            "onLostTransaction=rewrite needs a re-run that gives each task the same rows. Start the query again with "
            f"the {settlement.decision.split_count} tasks it had; if that cannot be, repair the topic by hand from "
            "this account, then let the query go on with `eos-kafka decisions abort --restart skip`"
        ),
    )
