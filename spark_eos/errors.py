"""The exceptions of the data source.

Owns: the exception families.

Uses: the address of each message on the page of errors.

Never: decides which family applies; the package that detects the failure does.

Every exception survives pickling: tasks raise on executors and drivers read them. A message has up to three sentences:
what happened, what was checked, what to do.
"""

from typing import ClassVar, Final

from broker_core.errors_page import OnErrorsPage


class EosKafkaError(OnErrorsPage):
    """The base of all errors; its message says what happened, what was checked and what to do next.

    `error_code` is Kafka's, if a broker returned one. It is information only: an EndTxn code, for example, does not say
    whether a transaction was committed.
    """

    default_remedy: ClassVar[str] = ""

    def __init__(self, happened: str, *, checked: str = "", remedy: str = "", error_code: int | None = None) -> None:
        self.happened = happened
        self.checked = checked
        self.remedy = remedy
        self.error_code = error_code
        super().__init__(_compose(happened, checked, remedy or self.default_remedy))

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the parts, so that a message that is unpickled on the driver is not composed twice."""
        return _rebuild, (type(self), self.args), dict(self.__dict__)


def _compose(*sentences: str) -> str:
    ended = (text if text.endswith((".", "!", "?", ":")) else text + "." for text in sentences if text)
    return " ".join(ended)


def _rebuild(family: type[EosKafkaError], args: tuple[object, ...]) -> EosKafkaError:
    error = family.__new__(family)
    error.args = args
    return error


class OptionError(EosKafkaError, ValueError):
    """An option, a column type or a topic that is refused before any data is sent."""


class UnreachableError(EosKafkaError):
    """No broker responded in time; the message has the addresses that were tried."""

    default_remedy = (
        "Check that the brokers are running, that kafka.bootstrap.servers names a listener that this machine can "
        "reach, and that kafka.security.protocol matches the listener. A broker that closes connections at once "
        "may have rejected the user, the token, or a client without a certificate"
    )


class AuthenticationError(EosKafkaError):
    """Refused credentials or a failed TLS handshake."""

    default_remedy = "Check kafka.security.protocol, kafka.sasl.* and kafka.ssl.* against the broker's listener"


class AuthorizationError(EosKafkaError):
    """The principal lacks a right on a topic, group, cluster or transactional id."""

    default_remedy = "Ask an administrator for the ACL named above"


class UnsupportedError(EosKafkaError):
    """A broker, library or feature that is missing or too old."""


class UnansweredError(EosKafkaError):
    """A request without a response: the connection broke or the time was up.

    The broker may or may not have executed it. The sender decides whether sending it again is safe.
    """


# Of a broker or of all: both pass if brokers come back.
OUTAGES: Final = (UnansweredError, UnreachableError)


class BrokerError(EosKafkaError):
    """An error code without a more specific family."""


class TopicError(EosKafkaError):
    """A topic or partition that does not exist or cannot be used."""


class TransactionError(EosKafkaError):
    """A failure of one transaction."""


class AbortableError(TransactionError):
    """The open transaction cannot be completed and must be aborted; a new one may succeed."""


class DeliveryTimeoutError(AbortableError):
    """Records that were not acknowledged within the delivery timeout."""


class RecordTooLargeError(AbortableError):
    """One record that is larger than the broker or the topic accepts."""


class FencedError(TransactionError):
    """A newer owner of the transactional id exists, or the coordinator ended the transaction."""


class LostTransactionError(TransactionError):
    """A prepared or decided transaction that took no effect and can no longer be completed."""


class DifferentRowsError(TransactionError):
    """A micro-batch or job that was written before and now has different rows; none of them were written."""


class DataLossError(EosKafkaError):
    """Records that should exist and do not."""


class ClientStateError(EosKafkaError):
    """A client that is used after it was closed, in another process, or out of order."""
