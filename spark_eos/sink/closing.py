"""Note in the decision topic that a batch job is done, or drop what nobody will ask for again."""

from dataclasses import replace
from enum import Enum, auto

from spark_eos.sink.decision import Decision
from spark_eos.sink.decision_log import DecisionLog
from spark_eos.sink.driver_identity import DriverIdentity


class Closing(Enum):
    """Say what becomes of a decision that is completed.

    The next micro-batch of a query replaces it. A batch job has no next one: under a job id the decision is marked as
    completed, which a re-run can rely on when transactional ids and records are gone; without one nobody will ask for
    it again, and it is deleted.
    """

    REPLACE = auto()
    MARK = auto()
    FORGET = auto()


def is_due(decision: Decision, closing: Closing) -> bool:
    """Say whether there is anything to note."""
    return closing is not Closing.REPLACE and decision.completed_at_ms is None and not decision.is_abandoned


def close(
    log: DecisionLog, driver: DriverIdentity, decision: Decision, closing: Closing, now_ms: int
) -> DriverIdentity:
    """Mark or delete a decision whose transactions are all committed; returns the driver's next identity."""
    if driver.spent:
        driver = log.renew(driver)
        if log.newest() != decision:
            # Somebody decided while the identity was renewed; an old note must not cover a new decision.
            return driver
    if closing is Closing.FORGET:
        return log.forget(decision, driver, now_ms)
    return log.amend(completed(decision, now_ms), driver, now_ms)


def completed(decision: Decision, now_ms: int) -> Decision:
    """Give the revision that says that all of a decision took effect."""
    return replace(decision, revision=decision.revision + 1, completed_at_ms=now_ms)
