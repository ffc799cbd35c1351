"""The state of one led partition of `__consumer_offsets`, changed only by the replay of its records.

`record` is the only way to change durable state: it appends records and replays them. `load` replays the same way,
so a new coordinator has its predecessor's state, except for rebalances in progress.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker_core.coordinator.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from broker_core.coordinator.groups.classic.records import (
    GROUP_KEY_TYPE,
    GroupMetadata,
    group_record,
    read_group_key,
    read_group_metadata,
)
from broker_core.coordinator.groups.consumer.group import ConsumerGroup
from broker_core.coordinator.groups.consumer.records import CONSUMER_RECORDS, RecordType, write_current_without_epochs
from broker_core.coordinator.groups.consumer.requests import CONSUMER_GROUP_TYPE
from broker_core.coordinator.groups.group_types import FeatureGroup, group_types
from broker_core.coordinator.groups.modern_records import Kind, RecordFormat, RecordKey, write_epoch_alone
from broker_core.coordinator.groups.offsets.store import (
    OFFSET_KEY_TYPES,
    OffsetStore,
    StoredOffset,
    read_offset_key,
    read_offset_value,
)
from broker_core.coordinator.journal import Journal, JournalRecord
from broker_core.coordinator.record_fields import FieldReader
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.records.control import ControlType
from broker_core.types import ProducerIdentity, TransactionEnd

logger = logging.getLogger(__name__)


class KafkaRecords(NamedTuple):
    """Whether records have the fields that Kafka 4.1 and 4.3 added; older versions of Kafka write them without.

    Only the journal has the older form. The group in memory keeps what the records leave out, as it decides like the
    newest version; it forgets it when another broker takes over, as a cluster does that was upgraded.
    """

    of_4_1: bool = True
    of_4_3: bool = True


NEWEST: Final = KafkaRecords()
# The epoch of each partition (KIP-1251), and the time of the assignment.
_BEFORE_4_3: Final = CONSUMER_RECORDS.with_writers(
    {RecordType.CURRENT: write_current_without_epochs, RecordType.TARGET_EPOCH: write_epoch_alone}
)
# The hash of the topics' metadata (KIP-1101). No version before 4.1 has groups of features here.
_BEFORE_4_1: Final = _BEFORE_4_3.with_writers({RecordType.GROUP_EPOCH: write_epoch_alone})


def formats_of(records: KafkaRecords) -> tuple[RecordFormat[Any], ...]:
    """Return the formats that differ from the newest; none for the newest."""
    if records.of_4_1 and records.of_4_3:
        return ()
    return (_BEFORE_4_3 if records.of_4_1 else _BEFORE_4_1, *(each.records_before_4_3 for each in group_types()))


def in_older_form(formats: Collection[RecordFormat[Any]], record: JournalRecord) -> JournalRecord:
    """Return a record in the form of one of the formats; a tombstone and a record of another type stay as they are."""
    if record.value is None:
        return record
    key_type = FieldReader(record.key).int16()
    for each in formats:
        if key_type in each.key_types:
            key = each.read_key(record.key)
            return each.record(key, each.read_value(key.kind, record.value))
    return record


# Errors of the log or the verification, and the errors that clients of a group get instead (rules E.4).
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
    """Translate an error of the verification or the append for a group's client (rules E.4)."""
    return APPEND_ERRORS.get(code, code)


class GroupShard:
    """The groups and offsets of one partition, while this broker leads it."""

    def __init__(
        self, journal: Journal, partition: int, coordinator_epoch: int, recorded: KafkaRecords = NEWEST
    ) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        # In memory: a classic group is here as long as it is coordinated, whatever is recorded of it.
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.of_features: dict[str, dict[str, FeatureGroup]] = {each.name: {} for each in group_types()}
        self.offsets = OffsetStore()
        self.recorded: dict[str, GroupMetadata] = {}
        # The groups with the record of an offset since they were last deleted: a load finds them again.
        self._with_offset_records: set[str] = set()
        self._journal = journal
        self._older_formats = formats_of(recorded)
        self._foreign_types: set[int] = set()

    def load(self) -> None:
        """Replay the journal and build the groups.

        Raises `DamageError` for a record that cannot be read: a partly loaded partition must not be used.
        """
        for entry in self._journal.read(self.partition):
            try:
                if entry.control is not None:
                    self.offsets.end_transaction(entry.producer_id, commit=entry.control is ControlType.COMMIT)
                elif entry.key is not None:
                    producer_id = entry.producer_id if entry.transactional else None
                    self._replay(entry.key, entry.value, entry.offset, producer_id)
            except Exception as error:
                # A client with write access can write anything, and replay expects a coordinator's records.
                raise DamageError(f"record at offset {entry.offset} cannot be replayed: {error!r}") from error
        for group_id, metadata in self.recorded.items():
            self.groups[group_id] = ClassicGroup.restored(group_id, metadata)
        for group_id in self._with_offset_records:
            if group_id not in self.consumer_groups and self.feature_group(group_id) is None:
                self.ensure_group(group_id)

    def record(
        self, records: Sequence[JournalRecord], now_ms: int, producer: ProducerIdentity | None = None
    ) -> ErrorCode:
        if not records:
            return ErrorCode.NONE
        written = [in_older_form(self._older_formats, each) for each in records] if self._older_formats else records
        try:
            base_offset = self._journal.append(self.partition, self.coordinator_epoch, written, now_ms, producer)
        except KafkaError as error:
            return translate_append_error(error.code)
        producer_id = None if producer is None else producer.producer_id
        for offset, (key, value) in enumerate(records, base_offset):
            self._replay(key, value, offset, producer_id)
        return ErrorCode.NONE

    def record_marker(self, end: TransactionEnd, now_ms: int) -> ErrorCode:
        try:
            self._journal.append_marker(self.partition, self.coordinator_epoch, end, now_ms)
        except KafkaError as error:
            return error.code
        self.offsets.end_transaction(end.producer.producer_id, commit=end.commit)
        return ErrorCode.NONE

    def group_tombstone(self, group_id: str) -> list[JournalRecord]:
        is_simple = group_id in self._with_offset_records and group_id not in self.consumer_groups
        return [group_record(group_id, None)] if is_simple or group_id in self.recorded else []

    def ensure_group(self, group_id: str) -> ClassicGroup:
        return self.groups.setdefault(group_id, ClassicGroup(group_id))

    def feature_group(self, group_id: str) -> FeatureGroup | None:
        return next((groups[group_id] for groups in self.of_features.values() if group_id in groups), None)

    def _replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int | None) -> None:
        """Apply one record; records of streams groups are ignored."""
        key_type = FieldReader(key).int16()
        if key_type in OFFSET_KEY_TYPES:
            offset_key = read_offset_key(key)
            if value is None:
                self.offsets.forget(offset_key)
                return
            self._with_offset_records.add(offset_key.group_id)
            stored = StoredOffset(read_offset_value(value), offset)
            if producer_id is None:
                self.offsets.commit(offset_key, stored)
            else:
                self.offsets.commit_pending(producer_id, offset_key, stored)
        elif key_type == GROUP_KEY_TYPE:
            group_id = read_group_key(key)
            if value is None:
                self.recorded.pop(group_id, None)
                self._with_offset_records.discard(group_id)
            else:
                self.recorded[group_id] = read_group_metadata(value)
        elif key_type in CONSUMER_RECORDS.key_types:
            ended = _replay_modern(CONSUMER_RECORDS, self.consumer_groups, ConsumerGroup, key, value)
            self._with_offset_records.discard(ended or "")
        elif found := [each for each in group_types() if key_type in each.records.key_types]:
            [kind] = found
            _replay_modern(kind.records, self.of_features[kind.name], kind.make, key, value)
        elif key_type not in self._foreign_types:
            self._foreign_types.add(key_type)
            logger.warning(
                "records of key type %d in __consumer_offsets-%d are ignored: this coordinator does not write them",
                key_type,
                self.partition,
            )


class _ModernGroup(Protocol[Kind]):
    def replay(self, key: RecordKey[Kind], value: Any) -> None: ...


_Group = TypeVar("_Group", bound=_ModernGroup[Any])


def _replay_modern(
    records: RecordFormat[Kind],
    groups: dict[str, _Group],
    make: Callable[[str], _Group],
    data: bytes,
    value: bytes | None,
) -> str | None:
    """Apply one record of a consumer group or of a feature's group; return the group's id if the record ends it."""
    key = records.read_key(data)
    group = groups.get(key.group_id)
    if value is not None:
        if group is None:
            group = groups[key.group_id] = make(key.group_id)
        group.replay(key, records.read_value(key.kind, value))
    elif key.kind is records.group_epoch:
        # The tombstone of its epoch.
        groups.pop(key.group_id, None)
        return key.group_id
    elif group is not None:
        group.replay(key, None)
    return None


CLASSIC_GROUP_TYPE: str = "classic"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in the list of groups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC_GROUP_TYPE


def listed(shards: Iterable[GroupShard], states: Iterable[str], types: Iterable[str]) -> list[GroupListing]:
    """List the groups of some partitions: classic groups, then consumer groups, then the types of features.

    States and types are compared without case; without any, all match.
    """
    states, types = {state.lower() for state in states}, {group_type.lower() for group_type in types}
    classic, consumer, of_features = [], [], []
    for shard in shards:
        classic += [
            GroupListing(group.group_id, group.protocol_type or "", group.state.value)
            for group in shard.groups.values()
        ]
        consumer += [
            GroupListing(group.group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, CONSUMER_GROUP_TYPE)
            for group in shard.consumer_groups.values()
        ]
        of_features += [
            GroupListing(group.group_id, name, group.state.value, name)
            for name, groups in shard.of_features.items()
            for group in groups.values()
        ]
    return [
        group
        for group in (*classic, *consumer, *of_features)
        if (not types or group.group_type in types) and (not states or group.state.lower() in states)
    ]
