"""What share groups keep in one broker: the share coordinator, and the share partitions of the partitions it leads."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, cast
from uuid import UUID

from broker_core.broker.broker import Broker
from broker_core.broker.metadata_records import ConfigResource
from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.group_settings import ShareFetchSettings, share_fetch_settings
from broker_core.features.share_groups.groups.groups import share_groups
from broker_core.features.share_groups.groups.requests import Deletion, Initialization
from broker_core.features.share_groups.partitions.share_partitions import SharePartitions
from broker_core.features.share_groups.states.coordinator import ShareCoordinator, coordinator_key
from broker_core.features.share_groups.states.state import Outcome, SharePartitionKey, outcome_of, standard_error
from broker_core.types import SHARE_GROUP_STATE_TOPIC, TopicPartition
from broker_core.wire.kafka_versions import is_before

# The version of Kafka whose internal topic has this field first.
_FIRST_WITH_COMPLETE_COUNTS: Final = "4.2"


class ShareBroker:
    """The share groups' part of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.states = ShareCoordinator(
            config=broker.config,
            journal=broker.journal(SHARE_GROUP_STATE_TOPIC),
            partition_exists=self._has_partition_of,
            delete_before=self._delete_state_before,
            records_complete_counts=not is_before(broker.config.kafka_version, _FIRST_WITH_COMPLETE_COUNTS),
        )
        self.coordinators: Final[Mapping[str, ShareCoordinator]] = {SHARE_GROUP_STATE_TOPIC: self.states}
        self.partitions = SharePartitions(broker, self.fetch_settings, self.coordinator_of)

    def fetch_settings(self, group_id: str) -> ShareFetchSettings:
        broker = self._broker
        return share_fetch_settings(broker.metadata.stored.of(ConfigResource.GROUP, group_id), broker.config)

    def advance(self, now_ms: int) -> None:
        """Release records whose locks have ended, and shorten the share coordinator's log."""
        self.partitions.advance(now_ms)
        self.states.advance(now_ms)

    def next_deadline_ms(self) -> int | None:
        deadlines = (self.partitions.next_deadline_ms(), self.states.next_deadline_ms())
        return min((each for each in deadlines if each is not None), default=None)

    def forget_sessions(self) -> None:
        self.partitions.forget_all()

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> None:
        self.states.forget_topics(topic_ids, now_ms)

    def delete_kept_for(self, group_id: str, now_ms: int) -> ErrorCode:
        """Delete the states that are kept for a group, if it is a share group; then the group can be deleted."""
        try:
            deletion = share_groups(self._broker.groups).begin_deletion_of_group(group_id, now_ms)
        except KafkaError as error:
            return error.code
        if deletion is None:
            return ErrorCode.NONE
        outcomes = self.delete_states(deletion)
        return next((outcome.error for outcome in outcomes.values() if outcome.error), ErrorCode.NONE)

    def delete_states(self, deletion: Deletion) -> dict[TopicIdPartition, Outcome]:
        """Delete states of a group; the record of the beginning deletion exists, and the record of its end follows.

        Each step is durable before the next: after a crash the group has no state that the share coordinator lacks.
        """
        self._broker.logs.sync()
        outcomes = {each: outcome_of(self._delete, deletion.group_id, each) for each in sorted(deletion.partitions)}
        self._broker.logs.sync()
        return outcomes

    def _delete(self, group_id: str, partition: TopicIdPartition) -> None:
        key = SharePartitionKey(group_id, *partition)
        self.coordinator_of(key).delete(key, self._broker.now_ms())

    def initialize(self, wanted: Initialization, now_ms: int) -> dict[TopicIdPartition, Outcome]:
        """Initialize states for a group, all or none, and record the outcome; return the error of the record for all.

        The states are durable before the group's record of them: otherwise a crash could lose a state that is never
        initialized again, because the group has it already.
        """
        outcomes = {each: outcome_of(self._initialize, wanted, each) for each in wanted.start_offsets}
        self._broker.logs.sync()
        offsets = share_groups(self._broker.groups).offsets
        has_failed = any(outcome.error for outcome in outcomes.values())
        record = offsets.not_initialized if has_failed else offsets.initialized
        recorded = outcome_of(record, wanted.group_id, frozenset(outcomes), now_ms)
        return dict.fromkeys(outcomes, recorded) if recorded.error else outcomes

    def _initialize(self, wanted: Initialization, partition: TopicIdPartition) -> None:
        key, now_ms = SharePartitionKey(wanted.group_id, *partition), self._broker.now_ms()
        self.coordinator_of(key).initialize(key, wanted.state_epoch, wanted.start_offsets[partition], now_ms)

    def coordinator_of(self, key: SharePartitionKey) -> ShareCoordinator:
        """Return the coordinator of a share partition; raise COORDINATOR_NOT_AVAILABLE if none can be reached."""
        controller = self._broker.controller
        with suppress(KafkaError):
            place = controller.coordinator_partition_of(SHARE_GROUP_STATE_TOPIC, coordinator_key(key))
            leader = controller.leader_of(place)
            if leader is not None:
                return cast(ShareCoordinator, leader.coordinators[SHARE_GROUP_STATE_TOPIC])
        raise standard_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _has_partition_of(self, topic_id: UUID, partition: int) -> bool:
        metadata = self._broker.metadata
        name = metadata.names.get(topic_id)
        return name is not None and metadata.has_partition(TopicPartition(name, partition))

    def _delete_state_before(self, partition: int, offset: int, now_ms: int) -> None:
        topic_partition, logs = TopicPartition(SHARE_GROUP_STATE_TOPIC, partition), self._broker.logs
        # The later snapshots, because of which these records are not needed, must be durable before they go.
        logs.sync()
        self._broker.led_log(topic_partition, now_ms)[0].delete_records_before(offset)
        logs.appended(topic_partition)


def share_broker(broker: Broker) -> ShareBroker:
    return broker.part(ShareBroker)


PART = ShareBroker
