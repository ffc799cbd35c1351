"""What one led partition of `__consumer_offsets` says, changed only by the replay of its records.

`record` is the one way to change what lasts: append, then replay what was appended. `load` replays the same way,
so a coordinator that takes over knows what its predecessor knew, rebalances in flight excepted.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from broker_core.coordinator.groups.classic.group import ClassicGroup
from broker_core.coordinator.groups.classic.records import (
    GROUP_KEY_TYPE,
    GroupMetadata,
    group_record,
    read_group_key,
    read_group_metadata,
)
from broker_core.coordinator.groups.consumer.group import ConsumerGroup
from broker_core.coordinator.groups.consumer.records import (
    CONSUMER_KEY_TYPES,
    RecordType,
    read_consumer_key,
    read_consumer_value,
)
from broker_core.coordinator.groups.offsets.records import OFFSET_KEY_TYPES, read_offset_key, read_offset_value
from broker_core.coordinator.groups.offsets.store import OffsetStore, StoredOffset
from broker_core.coordinator.journal import Journal, JournalEntry, JournalRecord
from broker_core.coordinator.record_fields import FieldReader
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.records.control import ControlType
from broker_core.types import ProducerIdentity

logger = logging.getLogger(__name__)

# What the log or the verification said, and what a group's client is answered instead (rules E.4).
APPEND_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def translate_append_error(code: ErrorCode) -> ErrorCode:
    """Turn what verification or append answered into what a group's client understands (rules E.4)."""
    return APPEND_ERRORS.get(code, code)


class GroupShard:
    """The groups and offsets of one partition, for as long as this broker leads it."""

    def __init__(self, journal: Journal, partition: int, coordinator_epoch: int) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.offsets = OffsetStore()
        self.recorded: dict[str, GroupMetadata] = {}
        self._journal = journal
        self._foreign_types: set[int] = set()

    def load(self) -> None:
        """Replay the journal and make a group of everything it knows.

        Raises `DamageError` at a record that cannot be read: a partly read partition must not be used.
        """
        for entry in self._journal.read(self.partition):
            try:
                self._load_entry(entry)
            except Exception as error:
                # A client that may write here can write anything, and replay expects what a coordinator has written.
                raise DamageError(f"record at offset {entry.offset} cannot be replayed: {error!r}") from error
        for group_id, metadata in self.recorded.items():
            self.groups[group_id] = ClassicGroup.restored(group_id, metadata)
        for group_id in self.offsets.group_ids():
            if group_id not in self.consumer_groups:
                self.ensure_group(group_id)

    def _load_entry(self, entry: JournalEntry) -> None:
        if entry.control is not None:
            self.offsets.end_transaction(entry.producer_id, commit=entry.control is ControlType.COMMIT)
        elif entry.key is not None:
            producer_id = entry.producer_id if entry.transactional else None
            self._replay(entry.key, entry.value, entry.offset, producer_id)

    def record(
        self,
        records: Sequence[JournalRecord],
        now_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> ErrorCode:
        """Append the records, then replay them; an error means that nothing happened."""
        if not records:
            return ErrorCode.NONE
        try:
            base_offset = self._journal.append(self.partition, self.coordinator_epoch, records, now_ms, producer)
        except KafkaError as error:
            return translate_append_error(error.code)
        producer_id = None if producer is None else producer.producer_id
        for offset, (key, value) in enumerate(records, base_offset):
            self._replay(key, value, offset, producer_id)
        return ErrorCode.NONE

    def record_marker(
        self,
        producer: ProducerIdentity,
        *,
        commit: bool,
        txn_coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> ErrorCode:
        """Append the marker that ends the producer's transaction, then let it take effect."""
        try:
            self._journal.append_marker(
                self.partition,
                self.coordinator_epoch,
                producer=producer,
                commit=commit,
                txn_coordinator_epoch=txn_coordinator_epoch,
                transaction_version=transaction_version,
                now_ms=now_ms,
            )
        except KafkaError as error:
            return error.code
        self.offsets.end_transaction(producer.producer_id, commit=commit)
        return ErrorCode.NONE

    def group_tombstone(self, group_id: str) -> list[JournalRecord]:
        """Build the tombstone of a classic group that was ever recorded."""
        return [group_record(group_id, None)] if group_id in self.recorded else []

    def forget_group(self, group_id: str) -> ClassicGroup | None:
        """Take a classic group out of memory and return it; its records are another matter."""
        return self.groups.pop(group_id, None)

    def ensure_group(self, group_id: str) -> ClassicGroup:
        """Return the classic group, made now if it is not there."""
        return self.groups.setdefault(group_id, ClassicGroup(group_id))

    def _replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int | None) -> None:
        """Let one record take effect; key types of share and streams groups are not ours and are left alone."""
        key_type = FieldReader(key).int16()
        if key_type in OFFSET_KEY_TYPES:
            offset_key = read_offset_key(key)
            if value is None:
                self.offsets.forget(offset_key)
            elif producer_id is None:
                self.offsets.commit(offset_key, StoredOffset(read_offset_value(value), offset))
            else:
                self.offsets.commit_pending(producer_id, offset_key, StoredOffset(read_offset_value(value), offset))
        elif key_type == GROUP_KEY_TYPE:
            group_id = read_group_key(key)
            if value is None:
                self.recorded.pop(group_id, None)
            else:
                self.recorded[group_id] = read_group_metadata(value)
        elif key_type in CONSUMER_KEY_TYPES:
            self._replay_consumer(key, value)
        elif key_type not in self._foreign_types:
            self._foreign_types.add(key_type)
            logger.warning(
                "records of key type %d in __consumer_offsets-%d are ignored: this coordinator does not write them",
                key_type,
                self.partition,
            )

    def _replay_consumer(self, data: bytes, value: bytes | None) -> None:
        """Let one record of a consumer group take effect; the tombstone of its epoch ends the group."""
        key = read_consumer_key(data)
        if value is not None:
            group = self.consumer_groups.setdefault(key.group_id, ConsumerGroup(key.group_id))
            group.replay(key, read_consumer_value(key.kind, value))
        elif key.kind is RecordType.GROUP_EPOCH:
            self.consumer_groups.pop(key.group_id, None)
        elif key.group_id in self.consumer_groups:
            self.consumer_groups[key.group_id].replay(key, None)
