"""The plan of a consumer group: which topics it reads, which partitions each member is to have, and each next step.

A heartbeat or join of any member brings the plan up to date, as records of a draft. No partition ever has two readers:
a member first revokes the partitions it must not keep, and is assigned only what no other member holds (KIP-848,
"Reconciliation of the Group").
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from broker_core.coordinator.groups.consumer.assignors import ASSIGNORS, Reader
from broker_core.coordinator.groups.consumer.group import NOTHING, ConsumerGroup, ConsumerGroupDraft
from broker_core.coordinator.groups.consumer.records import (
    Current,
    GroupEpoch,
    Held,
    Partitions,
    RecordType,
    ResolvedRegex,
    TopicIdPartition,
)
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings
from broker_core.coordinator.groups.consumer.states import MemberState
from broker_core.coordinator.groups.consumer.subscriptions import Topics, matching_topics, metadata_hash
from broker_core.coordinator.groups.modern_records import TargetEpoch
from broker_core.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a reconciliation, with the facts it depends on.

    `owned` are the partitions the member reports, None if it does not report them; `readable` are the topics it now
    subscribes to, which may be fewer than when the target was computed.
    """

    member_id: str
    target_epoch: int
    target: Partitions
    readable: frozenset[UUID]
    holders: Mapping[TopicIdPartition, str]
    owned: Collection[TopicIdPartition] | None
    subscription_changed: bool = False


def reconcile(current: Current, goal: Goal) -> Current:
    """Return the member's progress after this heartbeat; the same object if nothing changes."""
    if current.state is MemberState.STABLE:
        if current.member_epoch != goal.target_epoch:
            return _unless_same(current, _approach(current, goal, current.member_epoch))
        return _shrink(current, goal) if goal.subscription_changed else current
    if current.state is MemberState.UNREVOKED and _has_any(goal, current.pending):
        return _shrink(current, goal) if goal.subscription_changed else current
    if current.state is MemberState.UNREVOKED:
        # A smaller subscription can lead here before the next target is computed: never exceed the target.
        return _unless_same(current, _approach(current, goal, min(current.member_epoch + 1, goal.target_epoch)))
    if current.state is MemberState.UNKNOWN and (goal.owned is None or goal.owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state this coordinator does not know; it must abandon all its partitions and rejoin.",
        )
    return _unless_same(current, _approach(current, goal, current.member_epoch))


def _unless_same(current: Current, reached: Current) -> Current:
    return current if reached == current else reached


def _has_any(goal: Goal, partitions: Collection[TopicIdPartition]) -> bool:
    """Return whether the member may still read one of these, which it does unless it reports otherwise."""
    return goal.owned is None or any(partition in partitions for partition in goal.owned)


def _approach(current: Current, goal: Goal, member_epoch: int) -> Current:
    wanted = {partition for partition in goal.target if partition.topic_id in goal.readable}
    kept = {partition: epoch for partition, epoch in current.assigned.items() if partition in wanted}
    revoked = {partition: epoch for partition, epoch in current.assigned.items() if partition not in wanted}
    missing = wanted - kept.keys()
    taken = {partition for partition in missing if goal.holders.get(partition, goal.member_id) != goal.member_id}
    if revoked and _has_any(goal, revoked):
        # It revokes before it waits for others.
        return Current(member_epoch, current.member_epoch, MemberState.UNREVOKED, kept, revoked)
    state = MemberState.UNRELEASED if taken else MemberState.STABLE
    given = dict.fromkeys(missing - taken, goal.target_epoch)
    return Current(goal.target_epoch, current.member_epoch, state, kept | given, {})


def _shrink(current: Current, goal: Goal) -> Current:
    """Revoke partitions of topics that the member no longer subscribes to, before a new target is computed."""
    kept: Held = {
        partition: epoch for partition, epoch in current.assigned.items() if partition.topic_id in goal.readable
    }
    if len(kept) == len(current.assigned):
        return current
    gone = {partition: epoch for partition, epoch in current.assigned.items() if partition not in kept}
    pending = {**current.pending, **gone}
    if _has_any(goal, pending):
        return current._replace(state=MemberState.UNREVOKED, assigned=kept, pending=pending)
    return current._replace(assigned=kept)


_FIRST_EPOCH = 1


@dataclass(slots=True)
class Planning:
    """The steps from a changed subscription to a member's next assignment."""

    _settings_of: Callable[[str], ConsumerGroupSettings]
    _topics: Topics

    def follow_topics(
        self, group: ConsumerGroup, draft: ConsumerGroupDraft, may_see: Callable[[str], bool] | None, now_ms: int
    ) -> None:
        """Increment the group epoch if the topics that its members read have changed, for any reason."""
        if not draft.records and group.seen_topics_version == self._topics.topics_version:
            return
        self._resolve_regexes(draft, may_see, now_ms)
        now = draft.group
        sum_of_topics = metadata_hash(now.subscribed_topics(), self._topics)
        has_changed = (
            sum_of_topics != group.epoch.metadata_hash or now.assignor != group.assignor or not now.reads_as(group)
        )
        epoch = GroupEpoch(max(group.epoch.epoch, _FIRST_EPOCH) + has_changed, sum_of_topics)
        if epoch != group.epoch:
            draft.put(RecordType.GROUP_EPOCH, epoch)

    def _resolve_regexes(self, draft: ConsumerGroupDraft, may_see: Callable[[str], bool] | None, now_ms: int) -> None:
        """Match the expressions in use against the topics the caller may see, as Kafka does; drop the others."""
        in_use = draft.group.expressions.made
        for regex in sorted(in_use):
            known = draft.group.regexes.get(regex)
            topics = matching_topics(regex, self._topics, may_see)
            if known is None or known.topics != topics:
                resolved = ResolvedRegex(topics, self._topics.topics_version, now_ms)
                draft.put(RecordType.REGULAR_EXPRESSION, resolved, regex)
        for regex in sorted(draft.group.regexes.keys() - set(in_use)):
            draft.put(RecordType.REGULAR_EXPRESSION, None, regex)

    def assign(self, draft: ConsumerGroupDraft, now_ms: int) -> None:
        """Compute a target for the group epoch, unless the last one is too recent."""
        group = draft.group
        interval_ms = self._settings_of(group.group_id).assignment_interval_ms
        if group.epoch.epoch <= group.target_epoch.epoch or (
            group.target_epoch.epoch and now_ms < group.target_epoch.timestamp_ms + interval_ms
        ):
            return
        facts = {name: self._topics.topics.get(name) for name in group.subscribed_topics()}
        ids = {name: found.topic_id for name, found in facts.items() if found is not None}
        counts = {found.topic_id: found.partition_count for found in facts.values() if found is not None}
        # Once for all members that read the same.
        topic_ids = {topics: frozenset(ids[name] for name in topics & ids.keys()) for topics in group.topics.made}
        target_of = group.targets.get
        readers = {
            member_id: Reader(
                member_id,
                group.members[member_id].subscription.instance_id,
                topic_ids[topics],
                target_of(member_id, NOTHING),
            )
            for member_id, topics in group.topics.by_member.items()
        }
        for member_id, share in ASSIGNORS[group.assignor](readers, counts).items():
            if share != target_of(member_id, NOTHING):
                draft.put(RecordType.TARGET, frozenset(share), member_id)
        draft.put(RecordType.TARGET_EPOCH, TargetEpoch(group.epoch.epoch, now_ms))

    def reconcile(
        self,
        draft: ConsumerGroupDraft,
        member_id: str,
        owned: Collection[TopicIdPartition] | None,
        former_topics: Collection[str],
    ) -> None:
        group = draft.group
        topics = group.topics_of(member_id)
        has_changed = topics != former_topics
        current = draft.current_of(member_id)
        if group.members[member_id].is_reconciled_to(group.target_epoch.epoch) and not has_changed:
            return
        readable = frozenset(found.topic_id for name in topics if (found := self._topics.topics.get(name)) is not None)
        reached = reconcile(
            current,
            Goal(
                member_id,
                group.target_epoch.epoch,
                group.target(member_id),
                readable,
                group.holders,
                owned,
                has_changed,
            ),
        )
        if reached is not current:
            draft.put(RecordType.CURRENT, reached, member_id)
