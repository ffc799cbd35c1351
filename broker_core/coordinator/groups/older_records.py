"""The records of groups as older versions of Kafka write them: without the fields that came later.

Only the journal has the older form. The group in memory keeps what the records leave out, as it decides like the newest
version; it forgets it when another broker takes over, as a cluster does that was upgraded.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from broker_core.coordinator.groups.consumer.records import CONSUMER_RECORDS, RecordType, write_current_without_epochs
from broker_core.coordinator.groups.group_types import group_types
from broker_core.coordinator.groups.modern_records import RecordFormat, write_epoch_alone
from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import FieldReader


class KafkaRecords(NamedTuple):
    """Whether records have the fields that Kafka 4.1 and 4.3 added."""

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
