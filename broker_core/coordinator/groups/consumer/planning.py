"""The plan of a consumer group: which topics it reads, which partitions each member is to have, and each next step.

A heartbeat or join of any member brings the plan up to date, as records of a draft.
"""

from collections.abc import Callable, Collection

from broker_core.coordinator.groups.consumer.assignors import ASSIGNORS, Reader
from broker_core.coordinator.groups.consumer.group import NOTHING, ConsumerGroup, ConsumerGroupDraft
from broker_core.coordinator.groups.consumer.reconciliation import Goal, reconcile
from broker_core.coordinator.groups.consumer.records import GroupEpoch, RecordType, ResolvedRegex, TopicIdPartition
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings
from broker_core.coordinator.groups.consumer.subscriptions import Topics, matching_topics, metadata_hash
from broker_core.coordinator.groups.modern_records import TargetEpoch

_FIRST_EPOCH = 1


class Planning:
    """The steps from a changed subscription to a member's next assignment."""

    def __init__(self, settings_of: Callable[[str], ConsumerGroupSettings], topics: Topics) -> None:
        self._settings_of = settings_of
        self._topics = topics

    def saw_topics(self, group: ConsumerGroup) -> None:
        """Note that the group's plan takes the topics as they are now into account."""
        group.seen_topics_version = self._topics.version

    def follow_topics(
        self, group: ConsumerGroup, draft: ConsumerGroupDraft, may_see: Callable[[str], bool] | None, now_ms: int
    ) -> None:
        """Increment the group epoch if the topics that its members read have changed, for any reason."""
        if not draft.records and group.seen_topics_version == self._topics.version:
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
        in_use = draft.group.regexes_in_use()
        for regex in sorted(in_use):
            known = draft.group.regexes.get(regex)
            topics = matching_topics(regex, self._topics, may_see)
            if known is None or known.topics != topics:
                draft.put(RecordType.REGULAR_EXPRESSION, ResolvedRegex(topics, self._topics.version, now_ms), regex)
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
        facts = {name: self._topics.find(name) for name in group.subscribed_topics()}
        ids = {name: found.topic_id for name, found in facts.items() if found is not None}
        counts = {found.topic_id: found.partition_count for found in facts.values() if found is not None}
        # Once for all members that read the same.
        topic_ids = {topics: frozenset(ids[name] for name in topics & ids.keys()) for topics in group.topic_sets()}
        target_of = group.targets.get
        readers = {
            member_id: Reader(
                member_id,
                group.members[member_id].subscription.instance_id,
                topic_ids[topics],
                target_of(member_id, NOTHING),
            )
            for member_id, topics in group.reading().items()
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
        """Move the member one step towards its target."""
        group = draft.group
        topics = group.topics_of(member_id)
        has_changed = topics != former_topics
        current = draft.current_of(member_id)
        if group.members[member_id].is_reconciled_to(group.target_epoch.epoch) and not has_changed:
            return
        readable = frozenset(found.topic_id for name in topics if (found := self._topics.find(name)) is not None)
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
