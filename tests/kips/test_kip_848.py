"""KIP-848, The next generation of the consumer rebalance protocol: the coordinator assigns, and members converge."""

import pytest

from broker_core.errors import ErrorCode
from broker_core.simulation.disk import MemoryStorage
from tests.support.broker_core.kip_world import NONE, START_MS, Connection, Session, World
from tests.support.group_session import GroupSession
from tests.support.messages import UPGRADE, levels_request

READ, OTHER_READ = "read", "other-read"
ALL = {0, 1, 2, 3}
LEAVE_FOR_A_WHILE = -2
SESSION_MS, HEARTBEAT_MS = 45_000, 5_000


@pytest.fixture
def group(world: World) -> GroupSession:
    """Return a group that reads a topic of four partitions."""
    world.cluster.controller.create_topic(READ, 4)
    world.cluster.controller.create_topic(OTHER_READ, 2)
    return GroupSession(Connection(world.cluster), "group", READ, OTHER_READ)


def join(group: GroupSession, member_id: str, *topics: str, **fields: object) -> int:
    """Join, subscribed to the larger topic by default, and return the member epoch."""
    answer = group.join(member_id, subscribed_topic_names=list(topics or (READ,)), **fields)
    assert answer.error == NONE, answer
    return answer.member_epoch


def test_member_revokes_before_advancing_its_epoch_and_others_wait(group: GroupSession):
    """Member Epoch - Reconciliation of the group: revoke, acknowledge, then receive what others have released."""
    epoch = join(group, "a")
    join(group, "b")
    assert group.heartbeat("a", epoch, owned={READ: ALL})[1:3] == (epoch, {READ: {0, 1}})
    assert group.heartbeat("b", epoch + 1)[1:3] == (epoch + 1, None)
    assert group.heartbeat("a", epoch, owned={READ: {0, 1}})[1:3] == (epoch + 1, None)
    assert group.heartbeat("b", epoch + 1)[1:3] == (epoch + 1, {READ: {2, 3}})


def test_coordinator_sets_the_heartbeat_interval_and_fences_silent_members(world: World, group: GroupSession):
    """Broker Configurations: the broker sets heartbeat interval and session timeout; silent members are removed."""
    joined = group.join("a")
    assert joined.heartbeat_interval_ms == HEARTBEAT_MS
    world.pass_ms(SESSION_MS - 1)
    assert group.heartbeat("a", joined.member_epoch).error == NONE
    world.pass_ms(SESSION_MS)
    assert group.heartbeat("a", joined.member_epoch).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_wrong_epochs_and_unknown_members_are_fenced(group: GroupSession):
    """ConsumerGroupHeartbeat API, request validation: the member must exist and its epoch must be current."""
    epoch = join(group, "a")
    assert group.heartbeat("a", epoch + 1).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.heartbeat("a", epoch - 1).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.heartbeat("b", epoch).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat("a", epoch, server_assignor="x").error == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_lost_response_does_not_fence(group: GroupSession):
    """ConsumerGroupHeartbeat API, request validation: the previous epoch is accepted while the member owns no more."""
    epoch = join(group, "a")
    join(group, "b")
    group.settle(a=epoch, b=epoch + 1)
    assert group.heartbeat("a", epoch, owned={READ: {1}}).member_epoch == epoch + 1
    assert group.heartbeat("a", epoch, owned={READ: {1, 2}}).error == ErrorCode.FENCED_MEMBER_EPOCH


def test_static_member_keeps_its_place_while_absent(world: World, group: GroupSession):
    """Static Membership (KIP-345): epoch -2 keeps the assignment for a session; the next incarnation takes the id."""
    epoch = join(group, "a", instance_id="one")
    assert group.join("b", instance_id="one").error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.heartbeat("a", LEAVE_FOR_A_WHILE, instance_id="one").member_epoch == LEAVE_FOR_A_WHILE
    back = group.join("b", subscribed_topic_names=[READ], instance_id="one")
    assert (back.member_epoch, back.assigned) == (epoch, {READ: ALL})
    group.heartbeat("b", LEAVE_FOR_A_WHILE, instance_id="one")
    world.pass_ms(SESSION_MS)
    assert group.describe().group_state == "Empty"


def test_regular_expression_is_resolved_by_the_coordinator(world: World, group: GroupSession):
    """Topic subscriptions by regular expression: RE2, evaluated on the server, for new topics too."""
    answer = group.join("a", subscribed_topic_regex="read|re.d2")
    assert answer.assigned == {READ: ALL}
    world.cluster.controller.create_topic("read2", 1)
    later = GroupSession(group.client, group.group, READ, "read2")
    assert later.heartbeat("a", answer.member_epoch).assigned == {READ: ALL, "read2": {0}}
    assert group.join("b", subscribed_topic_regex="(").error == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_commits_and_fetches_carry_the_member_epoch(group: GroupSession):
    """OffsetCommit API and OffsetFetch API: STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID from version 9 on."""
    epoch = join(group, "a")
    assert group.commit("a", epoch) == {NONE}
    assert group.commit("a", epoch + 1) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert group.commit("b", epoch) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert group.commit("a", epoch, version=8) == {ErrorCode.UNSUPPORTED_VERSION}
    assert group.fetch("a", epoch) == (NONE, 5)
    assert group.fetch("a", epoch + 1)[0] == ErrorCode.STALE_MEMBER_EPOCH
    assert group.fetch("b", epoch)[0] == ErrorCode.UNKNOWN_MEMBER_ID


# Rules E.1/16, E.1/17 and E.1/22.
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("version", "refusal"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.STALE_MEMBER_EPOCH)])
def test_transactional_offsets_carry_the_member_epoch(
    group: GroupSession, session: Session, commit: bool, version: int, refusal: ErrorCode
):
    """TxnOffsetCommit API: the generation is the member epoch; a wrong one gets ILLEGAL_GENERATION."""
    epoch, producer = join(group, "a"), session.init()[1]
    stale = group.commit_in_transaction(session.transactional_id, producer, "a", epoch + 1, version=version)
    assert stale == refusal
    unknown = group.commit_in_transaction(session.transactional_id, producer, "b", epoch, version=version)
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit_in_transaction(session.transactional_id, producer, "a", epoch, version=version) == NONE
    assert group.fetch("a", epoch, require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    session.end(producer, commit=commit, version=5)
    assert group.fetch("a", epoch, require_stable=True) == (NONE, 7 if commit else -1)


def test_group_survives_a_restart():
    """Records: the log contains the whole state of the group."""
    storage = MemoryStorage()
    first = World(storage=storage)
    first.cluster.controller.create_topic(READ, 4)
    epoch = join(GroupSession(Connection(first.cluster), "group", READ), "a")
    first.cluster.close(first.cluster.now_ms)
    again = GroupSession(Connection(World(storage=storage).cluster), "group", READ)
    assert again.heartbeat("a", epoch, owned={READ: ALL}).error == NONE
    assert again.commit("a", epoch) == {NONE}


def test_feature_level_disables_the_protocol():
    """Compatibility: `group.version` 0 leaves only the classic protocol."""
    world = World(settings={"group.version": "0"})
    world.cluster.controller.create_topic(READ, 4)
    group = GroupSession(Connection(world.cluster), "group", READ)
    assert group.join("a").error == group.describe().error_code == ErrorCode.UNSUPPORTED_VERSION
    answer = group.client.send(levels_request(("group.version", 1, UPGRADE)), 2)
    assert answer.error_code == NONE
    assert group.join("a").error == NONE
    assert world.cluster.now_ms == START_MS
