"""The retirement of a decision: a batch job's decision is marked as completed, or deleted."""

from dataclasses import replace
from enum import Enum, auto
from typing import Final

from spark_eos.errors import EosKafkaError
from spark_eos.sink.decision import Decision
from spark_eos.sink.naming import group_id
from spark_eos.sink.protocol.asks import LastOffsets, info
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.decision_reader import KEPT_MS
from spark_eos.sink.protocol.driver_identity import DriverIdentity

_DAY_MS: Final = 24 * 60 * 60 * 1000
# Each completed job deletes so many, so there are never more for long.
_MOST_FORGOTTEN: Final = 3


class Retirement(Enum):
    """What happens to a decision that is completed.

    The next micro-batch of a query replaces it. A batch job has no next one. With a job id the decision is marked as
    completed, which a re-run can rely on for 30 days, even when transactional ids and records are gone; a later job
    under the same prefix deletes it after that. Without a job id no other run needs it, and it is deleted at once.
    """

    REPLACE = auto()
    MARK = auto()
    FORGET = auto()


def is_due(decision: Decision, retirement: Retirement) -> bool:
    return retirement is not Retirement.REPLACE and decision.completed_at_ms is None and not decision.is_abandoned


async def retire(
    log: DecisionLog, driver: DriverIdentity, decision: Decision, retirement: Retirement, now_ms: int
) -> DriverIdentity:
    """Mark or delete a decision whose transactions are all committed; return the driver's next identity."""
    if driver.spent:
        driver = await log.renew(driver)
        if await log.newest() != decision:
            # Another process decided while the identity was renewed; an old decision must not replace a new one.
            return driver
    if retirement is Retirement.FORGET:
        return await log.forget(decision, driver, now_ms)
    driver = await log.amend(completed(decision, now_ms), driver, now_ms)
    await _forget_expired(log, now_ms)
    return driver


async def _forget_expired(log: DecisionLog, now_ms: int) -> None:
    """Delete a few decisions of jobs that completed long ago; the driver of each job is fenced first.

    A decision with a pointer is left for later, because a pointer to a deleted decision is an error: a concurrent
    re-run of the job has decided. One that has not decided yet is fenced and can be started again.
    """
    for place, decision in log.scan.expired(now_ms)[:_MOST_FORGOTTEN]:
        each = DecisionLog(decision.prefix, decision.query, log.scan.topic, run=decision.run)
        try:
            driver = await each.take_over()
            is_pointed_to = await LastOffsets(group_id(decision.prefix, decision.query))
            newest = None if is_pointed_to else await each.newest()
            if newest is not None and (newest.run, newest.rank) == (decision.run, decision.rank):
                await each.forget(newest, driver, now_ms, place)
                await info(
                    f"the decision of job {decision.query} is deleted: the job completed more than "
                    f"{KEPT_MS // _DAY_MS} days ago"
                )
        except EosKafkaError as error:
            await info(f"the decision of job {decision.query} remains in the decision topic: {error}")


def completed(decision: Decision, now_ms: int) -> Decision:
    return replace(decision, revision=decision.revision + 1, completed_at_ms=now_ms)
