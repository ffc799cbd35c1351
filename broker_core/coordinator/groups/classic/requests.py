"""The requests of the classic group protocol and their answers, as plain values.

The handlers translate them from and to the wire. They have no API version: what differs by version is a field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker_core.coordinator.groups.classic.records import RecordedMember
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.errors import ErrorCode

UNKNOWN_MEMBER: str = ""
NO_GENERATION: int = -1


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """A request to join the next generation; `protocols` are (name, metadata), in order of preference.

    Set `requires_known_member_id` for version 4 and later, so that a client whose first answer is lost
    leaves no ghost member behind (KIP-394), and `can_skip_assignment` for version 9 and later (KIP-814).
    Before version 1 there is no rebalance timeout: pass the session timeout. `may_see` decides which topics the
    expressions of a consumer group's members may match; None allows all.
    """

    group_id: str
    member_id: str
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    requires_known_member_id: bool = True
    can_skip_assignment: bool = False
    may_see: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member as the leader sees it: its ids, and its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a join; `members` is filled for the leader only.

    A missing `protocol_name` is null on the wire from version 7 on, the empty string before.
    """

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """A request for the member's assignment; the leader's request has all members' in `assignments`.

    `protocol_type` and `protocol_name` are null before version 5 and are then not compared.
    """

    group_id: str
    member_id: str
    generation_id: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The answer to a sync: the member's own assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member's heartbeat."""

    group_id: str
    member_id: str
    generation_id: int
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One leaving member, identified by member id, or by instance id alone (removal by an administrator)."""

    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """A request to remove members from the group; before version 3 it has exactly one."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The answer to a leave: an error of the whole request, or one for each member that it names.

    Before version 3 a response has one error; it is then the error of the only member.
    """

    error: ErrorCode
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group as administrators see it; subscriptions and assignments are empty unless it is stable.

    A group that does not exist is Dead with GROUP_ID_NOT_FOUND (NONE before version 6).
    """

    error: ErrorCode
    group_id: str
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[RecordedMember, ...] = ()
    message: str | None = None
