"""Share groups as the group coordinator sees them."""

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings
from broker_core.coordinator.groups.modern_records import RecordKey, TargetEpoch
from broker_core.features.share_groups.group_types import GROUP_TYPE
from broker_core.features.share_groups.groups.records import RecordType


def test_record_of_an_older_kafka_lacks_the_time_and_is_read() -> None:
    key, value = RecordKey(RecordType.TARGET_EPOCH, "g"), TargetEpoch(7, 99)
    records = GROUP_TYPE.records
    newest, older = (each.record(key, value).value for each in (records, GROUP_TYPE.records_before_4_3))
    assert newest is not None
    assert older is not None
    assert records.read_value(RecordType.TARGET_EPOCH, newest) == value
    assert records.read_value(RecordType.TARGET_EPOCH, older) == TargetEpoch(7)


def test_settings_of_a_group_come_before_the_brokers() -> None:
    found = ConsumerGroupSettings.of("share", {"share.session.timeout.ms": "47000"}, BrokerConfig())
    assert found.session_timeout_ms == 47_000
    assert found.heartbeat_interval_ms == BrokerConfig().group_share_heartbeat_interval_ms
