"""The identity with which a driver writes its decisions, from one decision to the next."""

from dataclasses import dataclass, replace

from broker_core.types import LAST_CLIENT_EPOCH, ProducerIdentity
from spark_eos.sink.ports import ENDED, Description, EndAnswer


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """Hold the identity with which a driver writes its next decision.

    A spent one has served and the broker gave no next (V1, a lost answer): `renew` it. One epoch never serves
    two decisions, or a delayed EndTxn of the first could end the second (KIP-890).
    """

    identity: ProducerIdentity
    transaction_version: int
    spent: bool = False


def following_identity(driver: DriverIdentity, answer: EndAnswer) -> DriverIdentity:
    """Give the identity for the next write; the last epoch is never written with, its end would change the id."""
    following = answer.next_identity
    spent = following is None or following == driver.identity or following.producer_epoch >= LAST_CLIENT_EPOCH
    return replace(driver, spent=True) if spent or following is None else replace(driver, identity=following)


def is_own(found: Description, left: ProducerIdentity) -> bool:
    """Say whether a driver's id is as the driver left it, or as the end of that driver's own transaction left it."""
    if found.identity == left:
        return True
    # Kafka 4.0.0 raises the epoch by two when a transaction times out (KAFKA-19367).
    ended = [ProducerIdentity(left.producer_id, left.producer_epoch + bumps) for bumps in (1, 2)]
    return found.identity in ended and found.state in ENDED
