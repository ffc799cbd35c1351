"""KIP-360, Improve reliability of idempotent/transactional producer: a producer sends its identity and continues."""

import pytest

from broker_core.errors import ErrorCode
from tests.support.broker_core.kip_world import NONE, TOPIC, Session, World, batch
from tests.support.protocols import bumped
from tests.support.raw_session import Identity


# Rules A.1/2 and A.12/9.
def test_lost_response_is_not_remembered_across_failover(world: World, session: Session):
    """Proposed changes: only the coordinator's memory keeps the previous epoch, so a failover fences the retry."""
    first = session.init()[1]
    session.init(expected=first)
    world.reload()
    assert session.init(expected=first)[0] == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("level", ["1", "2"])
def test_own_open_transaction_is_aborted_first(level: str):
    """Proposed changes: a bump during a transaction aborts the transaction with a fencing epoch; the client retries.

    At transaction.version 1 the fence applies to the caller too. At 2 the caller gets the fence's epoch (KAFKA-19367).
    """
    session = World(settings={"transaction.version": level}).session()
    first = session.init()[1]
    session.write(first, version=11)
    assert session.init(expected=first)[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    assert session.state() == "CompleteAbort"
    fenced = (ErrorCode.PRODUCER_FENCED, Identity(-1, -1))
    assert session.init(expected=first) == (fenced if level == "1" else (NONE, bumped(first)))


def test_epoch_bumped_by_the_producer_is_accepted(world: World):
    """Proposed changes, idempotent producer: it bumps its own epoch and starts at sequence 0."""
    session = world.session(None)
    identity = session.init()[1]
    assert session.produce(TOPIC, batch(identity, 0, transactional=False), version=9) == (NONE, 0)
    late = batch(bumped(identity), 1, transactional=False)
    assert session.produce(TOPIC, late, version=9)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert session.produce(TOPIC, batch(bumped(identity), 0, transactional=False), version=9) == (NONE, 1)
    assert session.produce(TOPIC, batch(identity, 1, transactional=False), version=9)[0] == (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )
