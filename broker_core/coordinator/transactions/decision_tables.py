"""The decision tables of the transaction coordinator (rules A.5 to A.10).

Each table gives one verdict for every stored state and every fact of a request: the error to answer or, without
an error, the next state, the image to record and the identity to answer. Rows of an ordered table are in the
order in which Kafka evaluates its conditions. END_V2 is different: it lists what is not fenced first.
"""

from collections.abc import Hashable
from enum import Enum, IntEnum, auto
from typing import Final, NamedTuple

from broker_core.coordinator.transactions.conditions import Claim, Expectation, IdForm, TwoPhase
from broker_core.coordinator.transactions.records import IDLE, PERSISTED, PREPARED
from broker_core.decision_table import Row, Table
from broker_core.errors import ErrorCode
from broker_core.types import TransactionState


class Image(IntEnum):
    """The kind of image that a verdict records."""

    BUMP = auto()
    BUMP_REMEMBERING = auto()
    REPEAT = auto()
    ROTATE = auto()
    ROTATE_REMEMBERING = auto()
    BEGIN = auto()
    EXTEND = auto()
    PREPARE = auto()
    PREPARE_BUMPED = auto()
    PREPARE_OVERFLOWED = auto()
    FENCE = auto()
    COMPLETE = auto()
    COMPLETE_ROTATED = auto()


class AnsweredIdentity(Enum):
    """The identity in a successful answer."""

    NOTHING = auto()
    STORED = auto()
    NEXT = auto()


class TransitionVerdict(NamedTuple):
    """The answer, and the record to write first."""

    error: ErrorCode
    next_state: TransactionState | None = None
    image: Image | None = None
    answer: AnsweredIdentity = AnsweredIdentity.NOTHING


_S = TransactionState
_E = ErrorCode
_STATES: Final = tuple(sorted(PERSISTED))
_FLAG: Final = (False, True)
_WRONG_ID: Final = (Claim.FOREIGN, Claim.OVERFLOW)
_WRONG_EPOCH: Final = (Claim.PREVIOUS, Claim.OTHER_EPOCH)
_MINE: Final = Claim.CURRENT
_OK: Final = TransitionVerdict(_E.NONE)


# Rules A.5/4 to A.5/9: the checks of an InitProducerId that need no state.
INIT_REQUEST: Final = Table[ErrorCode | None](
    "InitProducerId request",
    {
        "half_expectation": _FLAG,
        "form": tuple(IdForm),
        "two_phase": tuple(TwoPhase),
        "keep_prepared": _FLAG,
        "timeout_fits": _FLAG,
    },
    [
        Row("A.5/4", {"half_expectation": True}, _E.INVALID_REQUEST),
        Row("A.5/5", {"form": IdForm.NULL}, _E.NONE),
        Row("A.5/6", {"form": IdForm.BLANK}, _E.INVALID_REQUEST),
        Row("A.5/7", {"two_phase": TwoPhase.DISABLED}, _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        Row("A.5/8", {"keep_prepared": True}, _E.UNSUPPORTED_VERSION),
        Row("A.5/9 two-phase", {"two_phase": TwoPhase.ALLOWED}, None),
        Row("A.5/9", {"timeout_fits": False}, _E.INVALID_TRANSACTION_TIMEOUT),
        Row("A.5/9 fits", {}, None),
    ],
    ordered=True,
)


def _grant(image: Image) -> TransitionVerdict:
    return TransitionVerdict(_E.NONE, _S.EMPTY, image, AnsweredIdentity.STORED)


# Rules A.5/13 to A.5/22: the stored state and the identity that the caller sends (KIP-360).
INIT: Final = Table[TransitionVerdict](
    "InitProducerId",
    {"state": _STATES, "pending": _FLAG, "exhausted": _FLAG, "expectation": tuple(Expectation)},
    [
        Row("A.5/13", {"pending": True}, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        Row("A.5/14", {"expectation": Expectation.FOREIGN}, TransitionVerdict(_E.PRODUCER_FENCED)),
        Row("A.5/15", {"state": PREPARED}, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        Row("A.5/22", {"state": _S.ONGOING}, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS, _S.PREPARE_EPOCH_FENCE)),
        Row("A.5/16", {"exhausted": True, "expectation": Expectation.NONE}, _grant(Image.ROTATE)),
        Row(
            "A.5/16 expected", {"exhausted": True, "expectation": Expectation.CURRENT}, _grant(Image.ROTATE_REMEMBERING)
        ),
        Row("A.5/21", {"exhausted": True}, TransitionVerdict(_E.UNKNOWN_SERVER_ERROR)),
        Row("A.5/17", {"expectation": Expectation.NONE}, _grant(Image.BUMP)),
        Row("A.5/18", {"expectation": (Expectation.CURRENT, Expectation.FRESH)}, _grant(Image.BUMP_REMEMBERING)),
        Row("A.5/19", {"expectation": Expectation.LAST}, _grant(Image.REPEAT)),
        Row("A.5/20", {}, TransitionVerdict(_E.PRODUCER_FENCED)),
    ],
    impossible=[{"exhausted": True, "expectation": Expectation.FRESH}],
    ordered=True,
)

# Rules A.6: adding partitions; AddOffsetsToTxn (rules A.7) goes through it too.
ADD: Final = Table[TransitionVerdict](
    "AddPartitionsToTxn",
    {"state": _STATES, "pending": _FLAG, "claim": tuple(Claim), "all_in": _FLAG},
    [
        Row("A.6/4", {"pending": True}, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        Row("A.6/5", {"claim": _WRONG_ID}, TransitionVerdict(_E.INVALID_PRODUCER_ID_MAPPING)),
        Row("A.6/6", {"claim": _WRONG_EPOCH}, TransitionVerdict(_E.PRODUCER_FENCED)),
        Row("A.6/7", {"state": PREPARED}, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        Row("A.6/8", {"state": _S.ONGOING, "all_in": True}, _OK),
        Row("A.6/9", {"state": IDLE}, TransitionVerdict(_E.NONE, _S.ONGOING, Image.BEGIN)),
        Row("A.6/10", {"state": _S.ONGOING}, TransitionVerdict(_E.NONE, _S.ONGOING, Image.EXTEND)),
    ],
    ordered=True,
)

# Rules A.6 verify: verifying one partition; it deliberately ignores whether a transition is pending.
VERIFY: Final = Table[ErrorCode](
    "AddPartitionsToTxn verify",
    {"state": _STATES, "claim": tuple(Claim), "is_in": _FLAG},
    [
        Row("A.6 verify/3", {"claim": _WRONG_ID}, _E.INVALID_PRODUCER_ID_MAPPING),
        Row("A.6 verify/4", {"claim": _WRONG_EPOCH}, _E.PRODUCER_FENCED),
        Row("A.6 verify/5", {"claim": _MINE, "state": PREPARED}, _E.CONCURRENT_TRANSACTIONS),
        Row("A.6 verify/6", {"claim": _MINE, "state": (*IDLE, _S.ONGOING), "is_in": True}, _E.NONE),
        Row("A.6 verify/7", {"claim": _MINE, "state": (*IDLE, _S.ONGOING), "is_in": False}, _E.TRANSACTION_ABORTABLE),
    ],
)


def _end(
    rule: str, state: Hashable, claims: Hashable, commit: Hashable, verdict: TransitionVerdict
) -> Row[TransitionVerdict]:
    return Row(rule, {"state": state, "claim": claims, "commit": commit}, verdict)


# Rules A.8 V1: the path of EndTxn up to version 4.
END_V1: Final = Table[TransitionVerdict](
    "EndTxn V1",
    {"state": _STATES, "pending": _FLAG, "claim": tuple(Claim), "commit": _FLAG},
    [
        # Only here, Kafka checks the identity before it checks whether a transition is pending.
        Row("A.8 V1/3", {"claim": _WRONG_ID}, TransitionVerdict(_E.INVALID_PRODUCER_ID_MAPPING)),
        Row("A.8 V1/4", {"claim": _WRONG_EPOCH}, TransitionVerdict(_E.PRODUCER_FENCED)),
        Row("A.8 V1/5", {"pending": True}, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        _end("A.8 V1/6 commit", _S.ONGOING, _MINE, True, TransitionVerdict(_E.NONE, _S.PREPARE_COMMIT, Image.PREPARE)),
        _end("A.8 V1/6 abort", _S.ONGOING, _MINE, False, TransitionVerdict(_E.NONE, _S.PREPARE_ABORT, Image.PREPARE)),
        _end("A.8 V1/7 commit", _S.COMPLETE_COMMIT, _MINE, True, _OK),
        _end("A.8 V1/7 abort", _S.COMPLETE_ABORT, _MINE, False, _OK),
        _end("A.8 V1/8 commit", _S.COMPLETE_ABORT, _MINE, True, TransitionVerdict(_E.INVALID_TXN_STATE)),
        _end("A.8 V1/8 abort", _S.COMPLETE_COMMIT, _MINE, False, TransitionVerdict(_E.INVALID_TXN_STATE)),
        _end("A.8 V1/9 commit", _S.PREPARE_COMMIT, _MINE, True, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        _end("A.8 V1/9 abort", _S.PREPARE_ABORT, _MINE, False, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        _end("A.8 V1/10 commit", _S.PREPARE_ABORT, _MINE, True, TransitionVerdict(_E.INVALID_TXN_STATE)),
        _end("A.8 V1/10 abort", _S.PREPARE_COMMIT, _MINE, False, TransitionVerdict(_E.INVALID_TXN_STATE)),
        _end("A.8 V1/11", _S.EMPTY, _MINE, _FLAG, TransitionVerdict(_E.INVALID_TXN_STATE)),
    ],
    ordered=True,
)

_RETRY: Final = (Claim.PREVIOUS, Claim.OVERFLOW)
_REPEATED_ANSWER: Final = TransitionVerdict(_E.NONE, answer=AnsweredIdentity.STORED)


def _bumping(next_state: TransactionState) -> TransitionVerdict:
    return TransitionVerdict(_E.NONE, next_state, Image.PREPARE_BUMPED, AnsweredIdentity.NEXT)


# Rules A.8 V2: EndTxn from version 5 on (KIP-890): each end increments the epoch.
END_V2: Final = Table[TransitionVerdict](
    "EndTxn V2",
    {"state": _STATES, "pending": _FLAG, "claim": tuple(Claim), "commit": _FLAG},
    [
        Row("A.8 V2/2", {"pending": True}, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        Row("A.8 V2/3", {"claim": Claim.FOREIGN}, TransitionVerdict(_E.INVALID_PRODUCER_ID_MAPPING)),
        _end("A.8 V2/5 commit", _S.ONGOING, _MINE, True, _bumping(_S.PREPARE_COMMIT)),
        _end("A.8 V2/5 abort", _S.ONGOING, _MINE, False, _bumping(_S.PREPARE_ABORT)),
        _end("A.8 V2/6", _S.EMPTY, _MINE, False, _bumping(_S.PREPARE_ABORT)),
        _end("A.8 V2/7", _S.EMPTY, _MINE, True, TransitionVerdict(_E.INVALID_TXN_STATE)),
        _end("A.8 V2/8", _S.PREPARE_COMMIT, Claim.PREVIOUS, True, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        _end("A.8 V2/8 abort", _S.PREPARE_ABORT, Claim.PREVIOUS, False, TransitionVerdict(_E.CONCURRENT_TRANSACTIONS)),
        _end("A.8 V2/8 other", PREPARED, Claim.PREVIOUS, _FLAG, TransitionVerdict(_E.INVALID_TXN_STATE)),
        _end("A.8 V2/9", _S.COMPLETE_COMMIT, _RETRY, True, _REPEATED_ANSWER),
        _end("A.8 V2/10", _S.COMPLETE_COMMIT, _MINE, True, TransitionVerdict(_E.INVALID_TXN_STATE)),
        _end("A.8 V2/11 retry", _S.COMPLETE_COMMIT, _RETRY, False, TransitionVerdict(_E.INVALID_TXN_STATE)),
        _end("A.8 V2/11", _S.COMPLETE_COMMIT, _MINE, False, _bumping(_S.PREPARE_ABORT)),
        _end("A.8 V2/12 retry", _S.COMPLETE_ABORT, _RETRY, False, _REPEATED_ANSWER),
        _end("A.8 V2/12", _S.COMPLETE_ABORT, _MINE, False, _bumping(_S.PREPARE_ABORT)),
        _end("A.8 V2/13", _S.COMPLETE_ABORT, (_MINE, *_RETRY), True, TransitionVerdict(_E.INVALID_TXN_STATE)),
        # Rules A.8 epochs: the claims above are not fenced.
        Row("A.8 V2/4", {}, TransitionVerdict(_E.PRODUCER_FENCED)),
    ],
    ordered=True,
)

# Rules A.9/1 and A.10: the identity after the end of a transaction, by its client or by the broker itself: the next
# epoch, or a new producer id. A bump by the broker that overflows rotates as trunk does (KAFKA-20090): the releases
# before it store the fencing epoch as the id's own, and would return it to a retrying client.
ENDED: Final = Table[Image](
    "identity after the end",
    {"bumps": _FLAG, "exhausted": _FLAG},
    [
        Row("A.10/1", {"bumps": False}, Image.FENCE),
        Row("A.9/1 normal, A.10/2", {"bumps": True, "exhausted": False}, Image.PREPARE_BUMPED),
        Row("A.9/1 overflow, A.10/3", {"bumps": True, "exhausted": True}, Image.PREPARE_OVERFLOWED),
    ],
)

# Rule A.9/4: the state of a transaction when its last marker is written.
COMPLETE: Final = Table[TransitionVerdict](
    "completion",
    {"state": tuple(sorted(PREPARED)), "rotates": _FLAG},
    [
        Row(
            f"A.9/4 {state.label} {image.name}",
            {"state": state, "rotates": (image is Image.COMPLETE_ROTATED)},
            TransitionVerdict(_E.NONE, complete, image),
        )
        for state, complete in ((_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT), (_S.PREPARE_ABORT, _S.COMPLETE_ABORT))
        for image in (Image.COMPLETE, Image.COMPLETE_ROTATED)
    ],
)

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

# Rules A.13 completion: after these refusals of the completion record (as mapped by rules A.3) it is tried again. After
# another one the transaction stays prepared: its new coordinator, or the next load here, sends the markers again. After
# NOT_COORDINATOR Kafka waits for that, too, because it moves the leaders away from a failed disk. Here a disk may only
# have been full, and no load would follow; a coordinator that has resigned drops its markers and does not try again.
RETRIED_COMPLETIONS: Final = frozenset({_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR})
