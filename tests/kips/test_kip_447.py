"""KIP-447, Producer scalability for exactly once semantics: fencing by the group, and unstable offsets."""

from uuid import UUID

import pytest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.broker_core.kip_world import NONE, TOPIC, Session
from tests.support.group_session import GroupSession
from tests.support.raw_session import Identity

GROUP = "group"
both_ends = pytest.mark.parametrize("commit", [True, False])


@pytest.fixture
def group(session: Session) -> GroupSession:
    """Return the group, which has no members."""
    return GroupSession(session.client, GROUP, TOPIC)


def settled(group: GroupSession, **fields: str) -> tuple[str, int]:
    """Join a group without other members, with the classic protocol; return member id and generation."""
    member_id, generation = group.enter_classic(**fields)
    group.sync_classic(member_id, generation, assignments={member_id: ()}, **fields)
    return member_id, generation


@pytest.fixture
def begun(session: Session) -> Identity:
    """Return the identity of a producer whose transaction includes the group's offsets."""
    identity = session.init()[1]
    assert session.add_offsets(identity, GROUP) == NONE
    return identity


def test_member_commits_transactional_offsets(session: Session, group: GroupSession, begun: Identity):
    """Fence zombie: the commit carries the group's member id and generation, and is accepted if both are current."""
    assert group.commit_in_transaction("id", begun, *settled(group), version=3) == NONE
    session.end(begun, commit=True, version=4)
    assert session.committed(GROUP, TOPIC, require_stable=True) == (NONE, 7)


# Rules E.1/15 and E.5/3.
def test_former_generation_is_fenced(session: Session, group: GroupSession, begun: Identity):
    """Fence zombie: a commit of an older generation is refused with ILLEGAL_GENERATION and leaves no pending offset."""
    member_id, generation = settled(group)
    refused = group.commit_in_transaction("id", begun, member_id, generation - 1, version=3)
    assert refused == ErrorCode.ILLEGAL_GENERATION
    assert session.committed(GROUP, TOPIC, require_stable=True) == (NONE, -1)


# Rule E.1/13.
def test_replaced_static_member_is_fenced(group: GroupSession, begun: Identity):
    """Fence zombie: another member has taken the instance id, so the former one gets FENCED_INSTANCE_ID."""
    former = settled(group, group_instance_id="static")
    settled(group, group_instance_id="static")
    refused = group.commit_in_transaction("id", begun, *former, version=3, instance_id="static")
    assert refused == ErrorCode.FENCED_INSTANCE_ID


# Rules E.1/10 and E.1/22.
@pytest.mark.parametrize(("version", "refusal"), [(3, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_generation_of_an_unknown_group_is_refused(
    group: GroupSession, begun: Identity, version: int, refusal: ErrorCode
):
    """Fence zombie: a generation of a group that does not exist is an illegal generation."""
    assert group.commit_in_transaction("id", begun, "member", 1, version=version) == refusal


# Rule E.1/22.
def test_unknown_topic_id_is_refused(group: GroupSession, begun: Identity):
    """Version 6 (KIP-1319): a topic id that does not exist gets UNKNOWN_TOPIC_ID."""
    group.ids[TOPIC] = UUID(int=1)
    assert group.commit_in_transaction("id", begun, "", -1, version=6) == ErrorCode.UNKNOWN_TOPIC_ID


# Rules E.1/12 and E.5/3.
@pytest.mark.parametrize("version", [0, 2, 3])
def test_commit_without_group_metadata_is_not_checked(group: GroupSession, begun: Identity, version: int):
    """Compatibility: as before, only the epoch fences a producer; below version 3 there is no field for metadata."""
    settled(group)
    assert group.commit_in_transaction("id", begun, "", -1, version=version) == NONE


# Rules E.2/1, E.2/2, E.2/3, E.3/1, E.3/2 and E.5/1.
@both_ends
def test_unstable_offsets_are_not_returned(session: Session, begun: Identity, commit: bool):
    """Offset fetch request: with RequireStable a partition in an open transaction returns UNSTABLE_OFFSET_COMMIT."""
    assert session.commit_plainly(GROUP, TOPIC, 1) == NONE
    assert session.commit_in_transaction(begun, GROUP, TOPIC, 5, version=3) == NONE
    assert session.committed(GROUP, TOPIC, require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert session.committed(GROUP, TOPIC, require_stable=False) == (NONE, 1)
    assert session.end(begun, commit=commit, version=4)[0] == NONE
    assert session.committed(GROUP, TOPIC, require_stable=True) == (NONE, 5 if commit else 1)


# Rule E.3/1.
def test_require_stable_is_unavailable_before_version_7(session: Session, begun: Identity):
    """Public interfaces, OffsetFetch 7: an older request returns the last committed offset."""
    assert session.commit_in_transaction(begun, GROUP, TOPIC, 5, version=3) == NONE
    form = m.OffsetFetchRequest.OffsetFetchRequestTopic
    answer = session.client.send(
        m.OffsetFetchRequest(group_id=GROUP, topics=[form(name=TOPIC, partition_indexes=[0])]), 6
    )
    part = answer.topics[0].partitions[0]
    assert (part.error_code, part.committed_offset) == (NONE, -1)
