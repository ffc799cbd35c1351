"""The effect of errors of the state log and of markers on a transaction (rules A.3, A.13)."""

from enum import Enum, auto
from typing import Final

from broker_core.errors import ErrorCode

_E = ErrorCode

# Rules A.3: the client's error if the state log refuses the record; other errors are passed on unchanged.
APPEND_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
}


class MarkerAction(Enum):
    """The action for a partition after the answer to its marker."""

    DONE = auto()
    RETRY = auto()
    CANCEL = auto()
    ILLEGAL = auto()


# Rules A.13 sender: an answer that is not listed is ILLEGAL. A lost connection counts as NETWORK_EXCEPTION.
MARKER_ACTIONS: Final[dict[ErrorCode, MarkerAction]] = {
    _E.NONE: MarkerAction.DONE,
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerAction.DONE,
    _E.UNSUPPORTED_VERSION: MarkerAction.DONE,
    _E.UNKNOWN_TOPIC_OR_PARTITION: MarkerAction.RETRY,
    _E.NOT_LEADER_OR_FOLLOWER: MarkerAction.RETRY,
    _E.REQUEST_TIMED_OUT: MarkerAction.RETRY,
    _E.NETWORK_EXCEPTION: MarkerAction.RETRY,
    _E.NOT_ENOUGH_REPLICAS: MarkerAction.RETRY,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: MarkerAction.RETRY,
    _E.KAFKA_STORAGE_ERROR: MarkerAction.RETRY,
    _E.INVALID_PRODUCER_EPOCH: MarkerAction.CANCEL,
    _E.TRANSACTION_COORDINATOR_FENCED: MarkerAction.CANCEL,
}

# Rules A.13 completion: the action if the completion record is refused (with errors as mapped by rules A.3).
# CANCEL leaves the transaction prepared: its new coordinator, or the next load here, sends the markers again. After
# NOT_COORDINATOR Kafka waits for that, too, because it moves the leaders away from a failed disk. Here a disk may only
# have been full, and no load would follow; a coordinator that has resigned drops its markers and does not try again.
COMPLETION_ACTIONS: Final[dict[ErrorCode, MarkerAction]] = {
    _E.COORDINATOR_NOT_AVAILABLE: MarkerAction.RETRY,
    _E.NOT_COORDINATOR: MarkerAction.RETRY,
    _E.COORDINATOR_LOAD_IN_PROGRESS: MarkerAction.CANCEL,
}


def append_error(code: ErrorCode) -> ErrorCode:
    return APPEND_ERRORS.get(code, code)


def marker_action(code: ErrorCode) -> MarkerAction:
    return MARKER_ACTIONS.get(code, MarkerAction.ILLEGAL)


def completion_action(code: ErrorCode) -> MarkerAction:
    return COMPLETION_ACTIONS.get(code, MarkerAction.ILLEGAL)
