"""The identity with which a driver writes its decisions."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from broker_core.types import LAST_CLIENT_EPOCH, ProducerIdentity
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.sink.protocol.answers import ABORTED, COMMITTED, Description


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """The identity with which a driver writes its next decision.

    A spent identity was used and the broker returned no next one (V1, or a lost response): `renew` it. One epoch is
    never used for two decisions, because a delayed EndTxn of the first could end the second (KIP-890).
    """

    transaction: OpenTransaction
    spent: bool = False

    @property
    def producer(self) -> ProducerIdentity:
        return self.transaction.producer

    def at_level(self, transaction_version: int) -> "DriverIdentity":
        """Choose the protocol of a transaction that begins now; the level may have changed since the last one."""
        return replace(self, transaction=self.transaction._replace(transaction_version=transaction_version))


async def beyond(
    driver: DriverIdentity, written: ProducerIdentity | None, take_over: Callable[[], Awaitable[DriverIdentity]]
) -> DriverIdentity:
    """Return the identity for a transaction after one that has `written`; see `OpenTransaction.is_after`."""
    while written is not None and not driver.transaction.is_after(written):
        driver = await take_over()
    return driver


def following_identity(driver: DriverIdentity, answer: EndAnswer) -> DriverIdentity:
    """Return the identity for the next write; the last epoch is never used, because its end changes the producer id."""
    following = answer.next_identity
    if following == driver.producer:
        # The end did not change the epoch: at level 0 the old protocol also ends what V2 began.
        driver = driver.at_level(min(driver.transaction.transaction_version, 1))
    spent = following is None or following == driver.producer or following.producer_epoch >= LAST_CLIENT_EPOCH
    if spent or following is None:
        return replace(driver, spent=True)
    return replace(driver, transaction=driver.transaction._replace(producer=following))


def taken_after(written: ProducerIdentity, *, is_v2: bool) -> ProducerIdentity:
    """Return the identity of the first take-over after a decision, whose end raises the epoch too since KIP-890."""
    return written._replace(producer_epoch=written.producer_epoch + (2 if is_v2 else 1))


def is_kept(found: Description, held: DriverIdentity, ended: ProducerIdentity | None = None) -> bool:
    """Return whether a driver's id is as the driver, or the end of its own transaction, left it.

    Another driver that initialized it looks like a timeout of this driver only if its own transaction was aborted.
    `ended` is a transaction that this process has aborted itself: one of a later epoch belongs to a newer driver.
    """
    if ended is not None and ended.producer_id == held.producer.producer_id and ended > held.producer:
        return False
    if found.producer.producer_id != held.producer.producer_id:
        return False
    bumps = found.producer.producer_epoch - held.producer.producer_epoch
    if found.state in ABORTED:
        # Kafka 4.0.0 raises the epoch by two when a transaction times out (KAFKA-19367).
        return bumps in (0, 1, 2)
    return bumps == 0 or (bumps == 1 and found.state in COMMITTED and held.transaction.transaction_version >= 2)
