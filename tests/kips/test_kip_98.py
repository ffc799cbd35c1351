"""KIP-98, Exactly Once Delivery and Transactional Messaging, as Kafka implements it.

Where numbers or names in the design texts differ, the test notes it and checks the behavior of Apache Kafka.
"""

import pytest

from broker_core.broker.journals import TopicJournal
from broker_core.errors import ErrorCode, KafkaError
from broker_core.records.batch import read_records
from broker_core.records.header import iter_headers
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from broker_core.wire import messages as m
from tests.support.broker_core.kip_world import NONE, STATE_PARTITION, TOPIC, Session, World, batch
from tests.support.messages import filled
from tests.support.protocols import bumped
from tests.support.raw_session import NOBODY, Identity

UNCOMMITTED, COMMITTED = 0, 1
COORDINATOR_TYPES = {"group": 0, "transaction": 1}
both_ends = pytest.mark.parametrize("commit", [True, False])


def plain(identity: Identity, sequence: int, count: int = 1) -> bytes:
    """Build a batch outside any transaction."""
    return batch(identity, sequence, (b"v",) * count, transactional=False)


def values(session: Session, isolation: int, offset: int = 0) -> list[bytes | None]:
    """Return the values that a reader of this isolation level gets, by the rules of a consumer's filter."""
    part = session.fetch(TOPIC, offset, isolation=isolation)
    data, found = bytes(part.records or b""), []
    aborted = {(entry.producer_id, entry.first_offset) for entry in part.aborted_transactions or ()}
    for position, header in iter_headers(data):
        if header.is_control:
            aborted = {one for one in aborted if one[0] != header.producer_id or one[1] > header.base_offset}
        elif not any(one[0] == header.producer_id and one[1] <= header.last_offset for one in aborted):
            found += [record.value for record in read_records(data, position, header)]
    return found


# Idempotent producer guarantees


# Rule C.1/26.
def test_lost_batch_is_detected(world: World):
    """Idempotent producer guarantees: a sequence with a gap is out of order, and nothing is written."""
    session = world.session(None)
    identity = session.init()[1]
    assert session.produce(TOPIC, plain(identity, 0, 2), version=9) == (NONE, 0)
    for sequence in (1, 3):
        refused = session.produce(TOPIC, plain(identity, sequence), version=9)[0]
        assert refused == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert session.fetch(TOPIC, 0, isolation=UNCOMMITTED).high_watermark == 2


# Transactional guarantees, and the data flow in its order


# Rules A.4/5 and A.4/6.
@pytest.mark.parametrize("key_type", COORDINATOR_TYPES.values(), ids=COORDINATOR_TYPES)
def test_coordinator_is_found_by_type(world: World, key_type: int):
    """Data flow 1, FindCoordinatorRequest: one request finds coordinators of groups and of transactions."""
    answer = world.session().client.send(m.FindCoordinatorRequest(key="any", key_type=key_type), 2)
    assert (answer.error_code, answer.node_id) == (NONE, 1)
    unknown = world.session().client.send(m.FindCoordinatorRequest(key="any", key_type=9), 2)
    assert unknown.error_code == ErrorCode.INVALID_REQUEST


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


# Rules A.5/10, A.6/2, A.8 V1/2, A.8 V2/1, A.12/7 and F.2/3.
def test_only_the_coordinator_of_an_id_serves_it():
    """Data flow 1: another broker, and one that no longer coordinates the id, refuses every request."""
    world = World(brokers=2)
    leader = world.cluster.metadata.leadership(STATE_PARTITION).leader
    identity = world.session(broker_id=leader).init()[1]
    assert ask_everything(world.session(broker_id=3 - leader), identity) == {ErrorCode.NOT_COORDINATOR}
    world.reload(broker_id=3 - leader)
    assert ask_everything(world.session(broker_id=leader), identity) == {ErrorCode.NOT_COORDINATOR}
    assert world.session(broker_id=3 - leader).init() == (NONE, bumped(identity))


# Rules A.5/10, A.6/2, A.8 V1/2, A.8 V2/1, A.12/1, A.12/11, F.2/3 and F.3/1.
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


# Rules C.5 codes/2 and C.5 codes/3.
def test_unknown_producers_cannot_add_partitions(session: Session, identity: Identity):
    """Data flow 4.1: an unknown producer id and a wrong epoch have different errors; newer clients get another code."""
    foreign = Identity(identity.producer_id + 1, 0)
    assert session.add(foreign, TOPIC) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert session.add(bumped(identity), TOPIC) == {ErrorCode.PRODUCER_FENCED}
    assert session.add(bumped(identity), TOPIC, version=1) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert session.state() == "Empty"


# Rules A.6 request/4 and A.6 request/5.
def test_missing_partition_fails_the_whole_request(session: Session, identity: Identity):
    """Data flow 4.1: either all partitions of a request are added, or none."""
    assert session.add(identity, TOPIC, 0, 9) == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
    assert session.state() == "Empty"


# Rules C.1/1 and G.1/17.
def test_transactional_records_require_the_transactional_id(world: World, session: Session, identity: Identity):
    """Data flow 4.2, ProduceRequest: without the transactional id its transactional batches are not authorized."""
    refused = world.session(None).produce(TOPIC, batch(identity, 0), version=9)[0]
    assert refused == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


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


# Rules A.13 receiver/3, C.6/2 and C.6/4.
def test_marker_ends_only_transactions_of_its_epoch(session: Session):
    """Data flow 5.2: a marker of an older producer epoch, or of an older coordinator, is refused."""
    identity = bumped(session.init()[1], 3)
    assert session.write_marker(TOPIC, identity, commit=True, coordinator_epoch=7) == NONE
    old = bumped(identity, -1)
    assert session.write_marker(TOPIC, old, commit=True, coordinator_epoch=7) == ErrorCode.INVALID_PRODUCER_EPOCH
    refused = session.write_marker(TOPIC, identity, commit=True, coordinator_epoch=6)
    assert refused == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert session.write_marker("nowhere", identity, commit=True, coordinator_epoch=7) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


# Readers


# Rules D.1/2, D.1/3 and D.3/2.
def test_each_isolation_level_reads_its_own_records(world: World, session: Session):
    """Transactional guarantees: committed readers get decided records below the last stable offset, others get all.

    In the detailed design ListOffsets has -3 for that offset; in Kafka the request has the isolation level.
    """
    other = world.session("other")
    mine, foreign = session.init()[1], other.init()[1]
    session.write(mine, values=(b"a",))
    other.write(foreign, values=(b"b",))
    other.end(foreign, commit=True, version=5)
    assert (values(session, COMMITTED), values(session, UNCOMMITTED)) == ([], [b"a", b"b"])
    newest = [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    for level, end in ((UNCOMMITTED, 3), (COMMITTED, 0)):
        request = filled(m.ListOffsetsRequest, replica_id=-1, isolation_level=level, topics=newest)
        assert session.client.send(request, 7).topics[0].partitions[0].offset == end
    session.end(mine, commit=False, version=5)
    assert (values(session, COMMITTED), values(session, UNCOMMITTED)) == ([b"b"], [b"a", b"b"])


# Rule C.1/27.
def test_transaction_excludes_other_writes_of_its_producer(world: World, session: Session, identity: Identity):
    """Transactional guarantees: the leader accepts no batch of the same producer outside its open transaction."""
    session.write(identity)
    refused = world.session(None).produce(TOPIC, plain(identity, 1), version=9)[0]
    assert refused == ErrorCode.INVALID_TXN_STATE
    assert world.session(None).produce(TOPIC, plain(NOBODY, -1), version=9) == (NONE, 1)
