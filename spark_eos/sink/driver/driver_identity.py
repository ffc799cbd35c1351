"""The identity with which a driver writes its decisions, from one decision to the next."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker_core.types import LAST_CLIENT_EPOCH, ProducerIdentity, TransactionState
from spark_eos.sink.ports import Description, EndAnswer

_ABORTED: Final = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})
_COMMITTED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT})


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """The identity with which a driver writes its next decision.

    A spent one has served and the broker gave no next (V1, a lost answer): `renew` it. One epoch never serves
    two decisions, or a delayed EndTxn of the first could end the second (KIP-890).
    """

    identity: ProducerIdentity
    transaction_version: int
    spent: bool = False

    def at_level(self, transaction_version: int) -> "DriverIdentity":
        """Choose the protocol of a transaction that begins now: the level may have changed since the last one."""
        return replace(self, transaction_version=transaction_version)


class Known(NamedTuple):
    """The newest decision that a driver knows of, by its rank; None for none."""

    rank: tuple[int, int, int] | None


def following_identity(driver: DriverIdentity, answer: EndAnswer) -> DriverIdentity:
    """Give the identity for the next write; the last epoch is never written with, its end would change the id."""
    following = answer.next_identity
    if following == driver.identity:
        # The end has left the epoch as it was: at level 0 the old protocol ends what V2 has begun, too.
        driver = replace(driver, transaction_version=min(driver.transaction_version, 1))
    spent = following is None or following == driver.identity or following.producer_epoch >= LAST_CLIENT_EPOCH
    return replace(driver, spent=True) if spent or following is None else replace(driver, identity=following)


def is_kept(found: Description, held: DriverIdentity) -> bool:
    """Say whether a driver's id is as the driver left it, or as the end of that driver's own transaction left it.

    Another driver initialises the id, which raises the epoch and leaves it Empty or with a transaction of its own. Only
    where that one was aborted does it look like a timeout of ours.
    """
    if found.identity.producer_id != held.identity.producer_id:
        return False
    bumps = found.identity.producer_epoch - held.identity.producer_epoch
    if found.state in _ABORTED:
        # Kafka 4.0.0 raises the epoch by two when a transaction times out (KAFKA-19367).
        return bumps in (0, 1, 2)
    return bumps == 0 or (bumps == 1 and found.state in _COMMITTED and held.transaction_version >= 2)
