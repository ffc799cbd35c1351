"""What a driver does about an outage: which failures are worth another attempt, and until when.

To commit a micro-batch again is what a restarted driver does, so it is safe at any point: the driver takes over, which
ends what is left of an earlier attempt, reads the newest decision, and goes on from there.
"""

from collections.abc import Callable
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity
from spark_eos.errors import (
    AbortableError,
    EosKafkaError,
    FencedError,
    RecordTooLargeError,
    TransactionError,
    UnansweredError,
    UnreachableError,
)
from spark_eos.sink.decision import Decision
from spark_eos.sink.ports import Description, UnstableOffsetsError

_FIRST_PAUSE_MS: Final = 200
_LONGEST_PAUSE_MS: Final = 5_000
# A decision that these refuse was not made; its next attempt has another identity, or another coordinator.
_PASSING_CODES: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_SERVER_ERROR})


class UndecidedError(TransactionError):
    """Report a decision that was not made, so that another attempt may be."""


class UnclearError(UndecidedError):
    """Report a decision of which it is not known whether it was made; to take over again finds it out."""


class OutdatedError(UndecidedError):
    """Report that another decision is the newest than the one a driver took for it; `rank` is the other one's."""

    def __init__(self, happened: str, *, rank: tuple[int, int, int], checked: str = "", remedy: str = "") -> None:
        super().__init__(happened, checked=checked, remedy=remedy)
        self.rank = rank


def is_passing(error: EosKafkaError) -> bool:
    """Say whether a failure may be that of an outage, so that another attempt can succeed."""
    return isinstance(error, UndecidedError | UnansweredError | UnreachableError | UnstableOffsetsError)


def may_be_decided_again(error: EosKafkaError) -> bool:
    """Say whether a decision that failed before its end was sent can succeed with another transaction."""
    if isinstance(error, RecordTooLargeError):
        return False
    return is_passing(error) or isinstance(error, AbortableError | FencedError) or error.error_code in _PASSING_CODES


class RetryPolicy:
    """The attempts at one micro-batch: as many as there is time for, by the clock `now_ms`."""

    def __init__(self, until_ms: int, now_ms: Callable[[], int], pause: Callable[[int], None]) -> None:
        self._until_ms = until_ms
        self._now_ms = now_ms
        self._pause = pause
        self._pause_ms = _FIRST_PAUSE_MS
        self._unclear: UnclearError | None = None

    def wait_after(self, error: EosKafkaError) -> None:
        """Wait before the next attempt; raises the error where none can help or there is no time for it.

        As long as it is unclear whether an attempt has decided, that is the error.
        """
        if isinstance(error, UnclearError):
            self._unclear = error
        elif isinstance(error, UndecidedError):
            self._unclear = None
        is_over = self._now_ms() + self._pause_ms >= self._until_ms
        if not is_passing(error):
            raise error
        if is_over and self._unclear is not None and self._unclear is not error:
            raise self._unclear from error
        if is_over:
            raise error
        if not isinstance(error, OutdatedError):
            self._pause(self._pause_ms)
            self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)


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
