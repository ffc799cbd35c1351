"""The runs of a query that must not decide any more, so that their open transactions may be ended.

A run's id is random, and its driver may return from a long pause without knowing that it ever took over: Spark ends an
idle Python process, and a driver takes over again in the next one. So fencing a driver once does not keep it from
taking over again. Therefore a decision names the runs it supersedes, and a run that finds itself named decides nothing.
A driver that took over before that decision was fenced by its driver; one that takes over after it reads it. So no
transaction of a superseded run can become decided.

Superseded are the run that decided last, the runs it superseded, and runs of which a transaction was swept because it
began before the first one of the new run. A job has one micro-batch and supersedes none; but an operator who abandons
its decision names its runs too.
"""

from collections.abc import Iterable
from typing import Final

from spark_eos.errors import FencedError, LostTransactionError
from spark_eos.sink.decision import Decision
from spark_eos.sink.naming import run_again
from spark_eos.sink.protocol.orphan_sweep import UNLISTED, names_of, open_of_query, run_of

# The newest ones. For a run that is older by more restarts, the rule about earlier transactions applies.
_MOST_NAMED: Final = 16


def superseding(newest: Decision | None, run: str, others: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the runs that a decision of `run` supersedes, based on the newest one before it."""
    before = () if newest is None else newest.superseded
    decided = () if newest is None else (newest.run,)
    found = dict.fromkeys((*decided, *others, *before))
    return tuple(each for each in found if each != run)[:_MOST_NAMED]


async def left_open(decision: Decision, prefixes: Iterable[str]) -> bool:
    """Return whether the run of a decision is known to have an open transaction that the decision does not name."""
    named = names_of(decision)
    try:
        opened = []
        for prefix in prefixes:
            opened += await open_of_query(prefix, decision.query)
    except UNLISTED:
        return False
    return any(
        run_of(each.transactional_id) == decision.run and (each.transactional_id, each.identity) not in named
        for each in opened
    )


def superseded_error(newest: Decision, run: str, lost: LostTransactionError | None = None) -> FencedError:
    """Return the error for a run that a newer one, or an operator, has superseded.

    `lost` describes transactions that the run had decided and the newer one has found lost.
    """
    word = newest.intervention
    remedy = (
        "If another driver uses this checkpoint or jobId, stop one of the two. Otherwise "
        f"{run_again(newest.query, newest.run)}"
    )
    by = f"run {newest.run} has decided micro-batch {newest.micro_batch}"
    if word is not None:
        by = f"{word.by} has intervened with `eos-kafka decisions {word.action}`"
    if lost is not None:
        return FencedError(
            f"Run {run} of query {newest.query} has decided, and another driver has gone on since: {by}. Transactions "
            f"of run {run} were lost: {lost.happened}",
            checked=f"{lost.checked}; then the newest decision, whose driver has settled what was lost",
            remedy=remedy,
        )
    return FencedError(
        f"Run {run} of query {newest.query} may no longer decide: {by}",
        checked="The newest decision, which names the runs it supersedes; nothing that this run prepared becomes "
        "visible",
        remedy=remedy,
    )
