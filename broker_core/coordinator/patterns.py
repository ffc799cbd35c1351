"""Regular expressions with the syntax of Apache Kafka's, matched in linear time.

Kafka uses RE2/J, so RE2 itself is used here. Python's `re` has another syntax, and backtracks: an expression such as
`(a*)*b` takes exponential time, and would block the thread that serves all clients.
"""

from broker_core.errors import ErrorCode, KafkaError, MissingExtraError

try:
    import re2
except ModuleNotFoundError as error:
    raise MissingExtraError("google-re2", "broker") from error

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class NamePattern:
    """A compiled pattern; raises INVALID_REGULAR_EXPRESSION for one that RE2 rejects or that is too large for it."""

    def __init__(self, pattern: str) -> None:
        try:
            self._compiled = re2.compile(pattern, _OPTIONS)
        except re2.error as error:
            reason = error.args[0] if error.args else "it cannot be compiled"
            message = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None
