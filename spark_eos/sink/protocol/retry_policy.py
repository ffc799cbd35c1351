"""The retry policy of a driver: which failures are worth another attempt, and until when."""

from typing import Final, NamedTuple

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


class RetryRule(NamedTuple):
    """Errors, and whether to commit again, or to decide in another transaction if the end was not sent.

    `rule` is the row of docs/protocol/sink.md.
    """

    rule: str
    errors: tuple[type[EosKafkaError], ...]
    codes: frozenset[ErrorCode]
    commits_again: bool
    decides_again: bool


# The first rule that matches applies.
RETRIES: Final = (
    RetryRule("retry 1", (UndecidedError,), frozenset(), True, True),
    RetryRule("retry 2", (RecordTooLargeError,), _REFUSALS, False, False),
    RetryRule("retry 3", (UnansweredError, UnreachableError, UnstableOffsetsError), frozenset(), True, True),
    RetryRule(
        "retry 4",
        (AbortableError, FencedError),
        frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_SERVER_ERROR}),
        False,
        True,
    ),
    RetryRule("retry 5", (EosKafkaError,), frozenset(), False, False),
)


def rule_of(error: EosKafkaError) -> RetryRule:
    return next(each for each in RETRIES if isinstance(error, each.errors) or error.error_code in each.codes)


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
        if not rule_of(error).commits_again:
            raise error
        if is_over and self._unclear is not None and self._unclear is not error:
            raise self._unclear from error
        if is_over:
            raise error
        if not isinstance(error, OutdatedError):
            await Sleep(pause_ms / 1000)
            self._attempt += 1
