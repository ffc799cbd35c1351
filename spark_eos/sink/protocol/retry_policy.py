"""The retry policy of a driver: which failures are worth another attempt, and until when.

Committing a micro-batch again is what a restarted driver does, so it is safe at any point: the driver takes over, which
ends what is left of an earlier attempt, reads the newest decision, and continues from there.
"""

from typing import Final

from broker_core.errors import ErrorCode
from spark_eos.backoff import backoff_ms
from spark_eos.errors import (
    AbortableError,
    EosKafkaError,
    FencedError,
    RecordTooLargeError,
    UnansweredError,
    UnreachableError,
)
from spark_eos.sink.protocol.answers import UnstableOffsetsError
from spark_eos.sink.protocol.asks import Now, Sleep
from spark_eos.sink.protocol.decision_errors import OutdatedError, UnclearError, UndecidedError

_FIRST_PAUSE_MS: Final = 200
_LONGEST_PAUSE_MS: Final = 5_000
# A decision refused with these codes was not made; the next attempt has another identity or another coordinator.
_PASSING_CODES: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_SERVER_ERROR})
# Brokers refuse the record itself, so that another transaction with the same record fails as well.
_REFUSALS: Final = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def is_passing(error: EosKafkaError) -> bool:
    """Return whether an outage may have caused a failure, so that another attempt can succeed."""
    return isinstance(error, UndecidedError | UnansweredError | UnreachableError | UnstableOffsetsError)


def may_be_decided_again(error: EosKafkaError) -> bool:
    """Return whether a decision that failed before its end was sent can succeed with another transaction."""
    if isinstance(error, RecordTooLargeError) or error.error_code in _REFUSALS:
        return False
    return is_passing(error) or isinstance(error, AbortableError | FencedError) or error.error_code in _PASSING_CODES


class RetryPolicy:
    """The attempts at one micro-batch, limited by the time that is left."""

    def __init__(self, until_ms: int) -> None:
        self._until_ms = until_ms
        self._attempt = 0
        self._unclear: UnclearError | None = None

    @property
    def is_undecided(self) -> bool:
        """Return whether no attempt can have decided: each failed before its decision's end, or was looked up."""
        return self._unclear is None

    async def wait_after(self, error: EosKafkaError) -> None:
        """Wait before the next attempt; raise the error if no attempt can help or there is no time for one.

        While it is unknown whether an attempt has decided, raise that error instead.
        """
        if isinstance(error, UnclearError):
            self._unclear = error
        elif isinstance(error, UndecidedError):
            self._unclear = None
        pause_ms = backoff_ms(self._attempt, _FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        is_over = await Now() + pause_ms >= self._until_ms
        if not is_passing(error):
            raise error
        if is_over and self._unclear is not None and self._unclear is not error:
            raise self._unclear from error
        if is_over:
            raise error
        if not isinstance(error, OutdatedError):
            await Sleep(pause_ms / 1000)
            self._attempt += 1
