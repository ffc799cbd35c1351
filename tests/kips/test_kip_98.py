"""KIP-98, Exactly Once Delivery and Transactional Messaging, as Kafka implements it.

Where numbers or names in the design texts differ, the test notes it and checks the behavior of Apache Kafka.
"""

import pytest

from broker_core.broker.journals import TopicJournal
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from tests.support.broker_core.kip_world import NONE, STATE_PARTITION, TOPIC, Session, World
from tests.support.protocols import bumped
from tests.support.raw_session import Identity

UNCOMMITTED, COMMITTED = 0, 1
both_ends = pytest.mark.parametrize("commit", [True, False])


# Transactional guarantees, and the data flow in its order


def ask_everything(session: Session, identity: Identity) -> set[int]:
    """Send each request that a transaction coordinator serves and return the set of error codes."""
    return {
        session.init()[0],
        *session.add(identity, TOPIC),
        *session.add_batched(identity, verify_only=False),
        *session.add_batched(identity, verify_only=True),
        session.add_offsets(identity, "group"),
        session.end(identity, commit=True, version=4)[0],
        session.end(identity, commit=True, version=5)[0],
        session.describe().error_code,
    }


# Rules A.5/10, A.6/2, A.6 verify/2, A.8 V1/2, A.8 V2/1, A.12/7 and F.2/3.
def test_only_the_coordinator_of_an_id_serves_it():
    """Data flow 1: another broker, and one that no longer coordinates the id, refuses every request."""
    world = World(brokers=2)
    leader = world.cluster.metadata.leadership(STATE_PARTITION).leader
    identity = world.session(broker_id=leader).init()[1]
    assert ask_everything(world.session(broker_id=3 - leader), identity) == {ErrorCode.NOT_COORDINATOR}
    world.reload(broker_id=3 - leader)
    assert ask_everything(world.session(broker_id=leader), identity) == {ErrorCode.NOT_COORDINATOR}
    assert world.session(broker_id=3 - leader).init() == (NONE, bumped(identity))


# Rules A.5/10, A.6/2, A.6 verify/2, A.8 V1/2, A.8 V2/1, A.12/1, A.12/11, F.2/3 and F.3/1.
def test_loading_coordinator_returns_a_retriable_error(world: World, session: Session, monkeypatch: pytest.MonkeyPatch):
    """Data flow 1: until a new coordinator has read its log, it returns COORDINATOR_LOAD_IN_PROGRESS."""

    def unreadable(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk does not answer")

    identity = session.init()[1]
    with monkeypatch.context() as patch:
        patch.setattr(TopicJournal, "read", unreadable)
        with pytest.raises(KafkaError):
            world.reload()
    assert ask_everything(session, identity) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert session.list_answer().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.reload()
    assert session.init() == (NONE, bumped(identity))


# Rule A.7/3.
def test_offsets_become_part_of_the_transaction(session: Session, identity: Identity):
    """Data flow 4.3, AddOffsetCommitsToTxnRequest: the group's partition of `__consumer_offsets` is added.

    In the text the response names the group coordinator; in Kafka it has only an error code.
    """
    assert session.add_offsets(identity, "group") == NONE
    assert [(entry.topic, entry.partitions) for entry in session.describe().topics] == [(CONSUMER_OFFSETS_TOPIC, [0])]


# Rule A.8 after/1.
@both_ends
def test_decision_is_stored_before_it_is_carried_out(world: World, session: Session, commit: bool, identity: Identity):
    """Data flow 5.1, EndTxnRequest: the decision is logged before the response, and a failover does not change it."""
    session.write(identity, version=11)
    world.hold_markers()
    assert session.end(identity, commit=commit, version=4)[0] == NONE
    assert session.state() == ("PrepareCommit" if commit else "PrepareAbort")
    assert session.end(identity, commit=not commit, version=4)[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    assert session.stable() == 0
    world.release_markers()
    assert session.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert session.stable() == 2
