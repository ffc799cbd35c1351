"""The identity of a caller: which member it is, whether the group has space for it, and whose place it takes.

Both protocols use static members (KIP-345) in the same way, with one difference: a caller takes the place of an
instance that is still there if one of the two uses the classic protocol, which cannot say that an instance returns.
"""

from broker_core.coordinator.groups.consumer.group import ConsumerGroup, ConsumerGroupDraft, ConsumerMember
from broker_core.coordinator.groups.consumer.records import RecordType
from broker_core.coordinator.groups.consumer.states import STATIC_LEAVE_EPOCH
from broker_core.errors import ErrorCode, KafkaError


def check_capacity(group: ConsumerGroup, limit: int, member_id: str, instance_id: str | None) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    is_known = member_id in group.members or instance_id in group.static_members
    if len(group.members) >= limit and not is_known:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the caller's member; raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID if there is none."""
    if instance_id is not None:
        return static_member(group, member_id, instance_id)
    if member_id not in group.members:
        raise unknown_member(group.group_id, member_id)
    return group.members[member_id]


def static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the static member of the instance id, if the caller is its current owner."""
    holder = group.static_members.get(instance_id)
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
        )
    return group.members[holder]


def join_static(draft: ConsumerGroupDraft, instance_id: str, member_id: str, *, is_classic: bool) -> ConsumerMember:
    """Add a static member, which takes over the assignment of its previous incarnation.

    Between two incarnations of the consumer protocol, the previous one must have left temporarily (epoch -2).
    """
    holder = draft.group.static_members.get(instance_id)
    if holder is None:
        return draft.group.members.get(member_id, ConsumerMember(member_id))
    former, target = draft.group.members[holder], draft.group.target(holder)
    may_replace = is_classic or former.is_classic or former.current.member_epoch == STATIC_LEAVE_EPOCH
    if not may_replace:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot "
            f"join the group because the instance id is owned by {holder} member.",
        )
    draft.remove_member(holder)
    draft.put(RecordType.MEMBER, former.subscription, member_id)
    draft.put(RecordType.TARGET, target, member_id)
    draft.put(RecordType.CURRENT, former.current._replace(member_epoch=0, previous_epoch=0), member_id)
    return draft.group.members[member_id]


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
