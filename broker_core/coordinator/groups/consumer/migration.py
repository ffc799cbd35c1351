"""The change of a group with members from one protocol to the other (KIP-848, "Migrating to the New Protocol").

Members keep their ids, instance ids and assignments; the generation becomes the group epoch and the other way round.
"""

from collections.abc import Collection
from typing import Final

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    Member,
    common_protocols,
    elect_protocol,
)
from broker_core.coordinator.groups.classic.records import read_assignment, read_subscription, write_assignment
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.consumer.group import ConsumerGroup, ConsumerGroupDraft, ConsumerMember
from broker_core.coordinator.groups.consumer.records import (
    ClassicMetadata,
    Current,
    GroupEpoch,
    Partitions,
    RecordType,
    Subscription,
    TopicIdPartition,
)
from broker_core.coordinator.groups.consumer.states import DOWNGRADE, POLICY, UPGRADE, MigrationPolicy
from broker_core.coordinator.groups.consumer.subscriptions import Topics, metadata_hash
from broker_core.coordinator.groups.modern_records import TargetEpoch
from broker_core.coordinator.journal import JournalRecord
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.types import TopicPartition

_CUSTOM_ASSIGNOR: Final = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)


def policy_of(config: BrokerConfig) -> MigrationPolicy:
    return MigrationPolicy(config.group_consumer_migration_policy)


def check_upgrade(group: ClassicGroup, config: BrokerConfig) -> None:
    """Raise GROUP_ID_NOT_FOUND if the classic group does not become a consumer group."""
    upgrades, _ = POLICY[policy_of(config)]
    reason = UPGRADE.resolve(
        policy_allows=upgrades,
        members_are_consumers=group.is_consumer_group,
        has_space=len(group.members) <= config.group_consumer_max_size,
    )
    if reason:
        raise _not_upgraded(group, reason)


def may_downgrade(staying: Collection[ConsumerMember], config: BrokerConfig) -> bool:
    """Return whether a consumer group with only these members left becomes a classic group."""
    _, downgrades = POLICY[policy_of(config)]
    return DOWNGRADE.resolve(
        members_remain=bool(staying),
        remaining_are_classic=all(member.is_classic for member in staying),
        policy_allows=downgrades,
        has_space=len(staying) <= config.group_max_size,
    ) and bool(common_protocols(map(_classic_member, staying)))


def upgraded(group: ClassicGroup, tombstone: list[JournalRecord], topics: Topics) -> ConsumerGroupDraft:
    """Return the consumer group that a classic group becomes, with its records; no member has to move yet.

    Raises GROUP_ID_NOT_FOUND if a subscription or assignment cannot be read, or an assignor's own data would be lost.
    """
    draft = ConsumerGroupDraft(ConsumerGroup(group.group_id), tombstone)
    protocol_name = group.protocol_name or elect_protocol(group.members.values())
    try:
        subscriptions = {member.member_id: _subscription(member, protocol_name) for member in group.members.values()}
        assigned = {member.member_id: _assigned(group, member, topics) for member in group.members.values()}
    except DamageError:
        raise _not_upgraded(group, "the embedded consumer protocol is malformed") from None
    generation = group.generation_id
    for member_id, subscription in subscriptions.items():
        draft.put(RecordType.MEMBER, subscription, member_id)
    read = frozenset[str]().union(*(subscription.topics for subscription in subscriptions.values()))
    draft.put(RecordType.GROUP_EPOCH, GroupEpoch(generation, metadata_hash(read, topics)))
    for member_id, partitions in assigned.items():
        draft.put(RecordType.TARGET, partitions, member_id)
    draft.put(RecordType.TARGET_EPOCH, TargetEpoch(generation))
    for member_id, partitions in assigned.items():
        held = dict.fromkeys(partitions, generation)
        draft.put(RecordType.CURRENT, Current(generation, generation, assigned=held), member_id)
    return draft


def downgraded(
    group: ConsumerGroup, staying: Collection[ConsumerMember], generation_id: int, topics: Topics, now_ms: int
) -> ClassicGroup:
    """Return the stable classic group that a consumer group becomes, in which each member has its target."""
    classic = ClassicGroup(group.group_id)
    for member in staying:
        classic.add(_classic_member(member), CONSUMER_PROTOCOL_TYPE)
    classic.state, classic.state_since_ms, classic.generation_id = GroupState.STABLE, now_ms, generation_id
    classic.protocol_name = elect_protocol(classic.members.values())
    classic.learn_topics()
    for each in classic.members.values():
        version = read_subscription(each.metadata(classic.protocol_name)).version
        each.assignment = write_assignment(named(group.target(each.member_id), topics), version)
    return classic


def named(partitions: Collection[TopicIdPartition], topics: Topics) -> list[TopicPartition]:
    """Return partitions with the names of their topics; partitions of deleted topics are left out."""
    return [
        TopicPartition(name, partition)
        for topic_id, partition in partitions
        if (name := topics.name_of(topic_id)) is not None
    ]


def identified(partitions: Collection[TopicPartition], topics: Topics) -> Partitions:
    """Return partitions with the ids of their topics; partitions of unknown topics are left out."""
    return frozenset(
        TopicIdPartition(found.topic_id, partition)
        for topic, partition in partitions
        if (found := topics.find(topic)) is not None
    )


def _not_upgraded(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def _subscription(member: Member, protocol_name: str) -> Subscription:
    embedded = read_subscription(member.metadata(protocol_name))
    return Subscription(
        member.group_instance_id,
        embedded.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(embedded.topics))),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def _assigned(group: ClassicGroup, member: Member, topics: Topics) -> Partitions:
    assignment = read_assignment(member.assignment)
    if assignment.has_user_data:
        raise _not_upgraded(group, _CUSTOM_ASSIGNOR)
    return identified(assignment.partitions, topics)


def _classic_member(member: ConsumerMember) -> Member:
    subscription = member.subscription
    classic = subscription.classic or ClassicMetadata(0, ())
    return Member(
        member.member_id,
        subscription.instance_id,
        subscription.client_id,
        subscription.client_host,
        subscription.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
    )
