"""The facts that the decision tables use, computed from a request and the stored image."""

from enum import Enum, IntEnum, auto
from typing import Final

from broker_core.coordinator.transactions.messages import InitProducerId
from broker_core.coordinator.transactions.records import PREPARED, TransactionImage
from broker_core.types import FENCING_EPOCH, LAST_CLIENT_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity


class IdForm(Enum):
    """The form of a request's transactional id."""

    NULL = auto()
    BLANK = auto()
    NAMED = auto()


class TwoPhase(Enum):
    """Whether the client requests two-phase commit, and whether the broker allows it (KIP-939)."""

    NOT_ASKED = auto()
    ALLOWED = auto()
    DISABLED = auto()


class Expectation(Enum):
    """The relation of the identity that an InitProducerId sends to the stored one (KIP-360)."""

    NONE = auto()
    FRESH = auto()
    CURRENT = auto()
    LAST = auto()
    OTHER = auto()
    FOREIGN = auto()


class Claim(IntEnum):
    """The relation of a request's producer id and epoch to the stored ones.

    PREVIOUS is the previous epoch and OVERFLOW the last epoch of the previous producer id: the identities
    that a retry of EndTxn has when the first answer was lost (KIP-890).
    """

    CURRENT = auto()
    PREVIOUS = auto()
    OVERFLOW = auto()
    OTHER_EPOCH = auto()
    FOREIGN = auto()


NO_EXPECTATION: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def is_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= LAST_CLIENT_EPOCH


def id_form(transactional_id: str | None) -> IdForm:
    if transactional_id is None:
        return IdForm.NULL
    return IdForm.NAMED if transactional_id else IdForm.BLANK


def two_phase(request: InitProducerId, allowed: bool) -> TwoPhase:
    if not request.enable_2pc:
        return TwoPhase.NOT_ASKED
    return TwoPhase.ALLOWED if allowed else TwoPhase.DISABLED


def expectation(image: TransactionImage, last_producer_epoch: int, expected: ProducerIdentity) -> Expectation:
    if expected == NO_EXPECTATION:
        return Expectation.NONE
    if image.producer_epoch == NO_PRODUCER_EPOCH:
        return Expectation.FRESH
    rotated_away = expected.producer_id == image.previous_producer_id and is_exhausted(expected.producer_epoch)
    if expected.producer_id != image.producer_id and not rotated_away:
        return Expectation.FOREIGN
    if expected.producer_epoch == image.producer_epoch:
        return Expectation.CURRENT
    return Expectation.LAST if expected.producer_epoch == last_producer_epoch else Expectation.OTHER


def claim(image: TransactionImage, presented: ProducerIdentity) -> Claim:
    if presented.producer_id != image.producer_id:
        before_rotation = ProducerIdentity(image.previous_producer_id, LAST_CLIENT_EPOCH)
        rotated = image.producer_epoch == 0 and image.previous_producer_id != NO_PRODUCER_ID
        return Claim.OVERFLOW if rotated and presented == before_rotation else Claim.FOREIGN
    if presented.producer_epoch == image.producer_epoch:
        return Claim.CURRENT
    if presented.producer_epoch + 1 == image.producer_epoch and _ended_by_its_holder(image):
        return Claim.PREVIOUS
    return Claim.OTHER_EPOCH


def _ended_by_its_holder(image: TransactionImage) -> bool:
    """Return whether a claim to the previous epoch may be a retry after a lost answer, not a zombie's.

    Only V2 increments the epoch at the end of a transaction. So if a V1 client ended the last transaction, a V2
    client with the previous epoch is a zombie, and must not be answered that its transaction was committed. Nor may
    a retry be answered with the fencing epoch, if an older broker stored that as the last one.
    """
    if image.state in PREPARED:
        return True
    return image.client_transaction_version >= 2 and image.producer_epoch < FENCING_EPOCH
