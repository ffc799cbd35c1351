"""Judge whether a prepared transaction is open and will stay so for as long as its micro-batch needs."""

from typing import Final

from broker_core.types import ProducerIdentity
from spark_eos.sink.ports import Description, TransactionState
from spark_eos.sink.prepared import PreparedTransaction

# A transaction this near to its timeout may be gone before EndTxn arrives.
_MARGIN_SHARE: Final = 0.1
MARGIN_LIMIT_MS: Final = 30_000


def open_problem(transaction: PreparedTransaction, description: Description | None, now_ms: int) -> str | None:
    """Say why a prepared transaction must not be decided over; None when it is open and has time left."""
    if description is None:
        return "is unknown to its coordinator"
    identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if description.state is not TransactionState.ONGOING or description.identity != identity:
        return f"is not open: {description.state}, producer {description.identity}, prepared as {identity}"
    left_ms = time_left_ms(description, now_ms)
    if left_ms >= margin_ms(description.timeout_ms):
        return None
    skew = ""
    if left_ms < -MARGIN_LIMIT_MS:
        # It is open still, so its coordinator sees it otherwise.
        skew = "; by this driver's clock that is long past, by its coordinator's it is not: compare the two clocks"
    return f"times out in {left_ms} ms (its timeout is {description.timeout_ms} ms{skew})"


def margin_ms(timeout_ms: int) -> int:
    """Say how long before its timeout a transaction is not decided over any more."""
    return int(min(timeout_ms * _MARGIN_SHARE, MARGIN_LIMIT_MS))


def time_left_ms(description: Description, now_ms: int) -> int:
    """Say how long a described transaction has until its timeout, by this machine's clock."""
    return description.started_at_ms + description.timeout_ms - now_ms
