"""KIP-447, Producer scalability for exactly once semantics: fencing by the group, and unstable offsets."""

from uuid import UUID

import pytest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.broker_core.kip_world import NONE, OTHER, TOPIC, Session, World
from tests.support.raw_session import Identity

GROUP = "group"
both_ends = pytest.mark.parametrize("commit", [True, False])


class Member:
    """A member of the group that uses the classic protocol."""

    def __init__(self, session: Session, instance_id: str | None = None) -> None:
        self._client = session.client
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def join_request(self) -> m.JoinGroupRequest:
        """Return the JoinGroup request."""
        request = m.JoinGroupRequest
        return request(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[request.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    def join(self) -> "Member":
        """Join, and send the assignment if the member is the leader."""
        for _ in range(2):
            answer = self._client.send(self.join_request(), 7)
            self.member_id, self.generation = answer.member_id, answer.generation_id
            if answer.error_code == NONE:
                break
        assert answer.error_code == NONE, answer
        self._client.send(
            m.SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"")],
            ),
            5,
        )
        return self

    def leave(self) -> None:
        form = m.LeaveGroupRequest.MemberIdentity
        self._client.send(
            m.LeaveGroupRequest(
                group_id=GROUP, members=[form(member_id=self.member_id, group_instance_id=self.instance_id)]
            ),
            3,
        )


def commit_as(
    session: Session,
    identity: Identity,
    member_id: str,
    generation: int,
    *,
    instance_id: str | None = None,
    version: int = 3,
    offset: int = 5,
    topic_id: UUID = m.NULL_UUID,
) -> int:
    """Send one TxnOffsetCommit with the group's metadata and return its error code."""
    form = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = form.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    answer = session.client.send(
        m.TxnOffsetCommitRequest(
            transactional_id=session.transactional_id,
            group_id=GROUP,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[form(name=TOPIC, topic_id=topic_id, partitions=[part])],
        ),
        version,
    )
    return int(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def begun(session: Session) -> Identity:
    """Return the identity of a producer whose transaction includes the group's offsets."""
    identity = session.init()[1]
    assert session.add_offsets(identity, GROUP) == NONE
    return identity


def test_member_commits_transactional_offsets(session: Session, begun: Identity):
    """Fence zombie: the commit carries the group's member id and generation, and is accepted if both are current."""
    member = Member(session).join()
    assert commit_as(session, begun, member.member_id, member.generation) == NONE
    session.end(begun, commit=True, version=4)
    assert session.committed(GROUP, TOPIC, require_stable=True) == (NONE, 5)


# Rules E.1/15 and E.5/3.
def test_former_generation_is_fenced(session: Session, begun: Identity):
    """Fence zombie: a commit of an older generation is refused with ILLEGAL_GENERATION and leaves no pending offset."""
    member = Member(session).join()
    zombie = member.generation - 1
    assert commit_as(session, begun, member.member_id, zombie) == ErrorCode.ILLEGAL_GENERATION
    assert session.committed(GROUP, TOPIC, require_stable=True) == (NONE, -1)


# Rule E.1/13.
def test_replaced_static_member_is_fenced(session: Session, begun: Identity):
    """Fence zombie: another member has taken the instance id, so the former one gets FENCED_INSTANCE_ID."""
    former = Member(session, "static").join()
    Member(session, "static").join()
    refused = commit_as(session, begun, former.member_id, former.generation, instance_id="static")
    assert refused == ErrorCode.FENCED_INSTANCE_ID


# Rules E.1/10 and E.1/22.
@pytest.mark.parametrize(("version", "refusal"), [(3, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_generation_of_an_unknown_group_is_refused(
    world: World, session: Session, begun: Identity, version: int, refusal: ErrorCode
):
    """Fence zombie: a generation of a group that does not exist is an illegal generation."""
    topic_id = world.cluster.metadata.topics[TOPIC].topic_id
    assert commit_as(session, begun, "member", 1, version=version, topic_id=topic_id) == refusal


# Rule E.1/22.
def test_unknown_topic_id_is_refused(session: Session, begun: Identity):
    """Version 6 (KIP-1319): a topic id that does not exist gets UNKNOWN_TOPIC_ID."""
    refused = commit_as(session, begun, "", -1, version=6, topic_id=UUID(int=1))
    assert refused == ErrorCode.UNKNOWN_TOPIC_ID


# Rules E.1/12 and E.5/3.
@pytest.mark.parametrize("version", [0, 2, 3])
def test_commit_without_group_metadata_is_not_checked(session: Session, begun: Identity, version: int):
    """Compatibility: as before, only the epoch fences a producer; below version 3 there is no field for metadata."""
    Member(session).join()
    assert commit_as(session, begun, "", -1, version=version) == NONE


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


def test_only_the_pending_partition_is_unstable(session: Session, begun: Identity):
    """Offset fetch request: the error applies to one partition; other partitions and groups return their offsets."""
    assert session.commit_plainly(GROUP, OTHER, 3) == NONE
    assert session.commit_plainly("another", TOPIC, 4) == NONE
    assert session.commit_in_transaction(begun, GROUP, TOPIC, 5, version=3) == NONE
    assert session.committed(GROUP, OTHER, require_stable=True) == (NONE, 3)
    assert session.committed("another", TOPIC, require_stable=True) == (NONE, 4)


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


# Rules E.2/2 and E.2/5.
def test_plain_commit_does_not_make_an_offset_stable(session: Session, begun: Identity):
    """Offset fetch request: the partition is unstable until the transaction ends; then the newer offset applies."""
    assert session.commit_in_transaction(begun, GROUP, TOPIC, 5, version=3) == NONE
    assert session.commit_plainly(GROUP, TOPIC, 9) == NONE
    assert session.committed(GROUP, TOPIC, require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    session.end(begun, commit=True, version=4)
    assert session.committed(GROUP, TOPIC, require_stable=True) == (NONE, 9)
