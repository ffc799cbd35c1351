"""The requests to the share coordinator and their answers, as plain values without wire versions."""

from typing import NamedTuple

from broker_core.errors import STANDARD_MESSAGES, ErrorCode
from broker_core.features.share_groups.states.state import UNINITIALIZED, StateBatch


class Outcome(NamedTuple):
    """The result for one share partition; `message` explains an error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @classmethod
    def of(cls, error: ErrorCode) -> "Outcome":
        """Return the result for an error, with Kafka's message."""
        return cls(error, STANDARD_MESSAGES.get(error)) if error else cls()


class ShareWrite(NamedTuple):
    """A change of a share partition by its leader."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int = UNINITIALIZED


class ShareRead(NamedTuple):
    """The state of a share partition for its leader."""

    outcome: Outcome
    state_epoch: int = 0
    start_offset: int = 0
    batches: tuple[StateBatch, ...] = ()


class ShareSummary(NamedTuple):
    """The state of a share partition for administrators."""

    outcome: Outcome
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED
    delivery_complete_count: int = UNINITIALIZED
