"""Settings that belong to the protocol have Kafka's names and defaults."""

import pytest

from broker_core.config import BrokerConfig

DEFAULTS = [
    ("H.2/1", "transaction.max.timeout.ms", "900000"),
    ("H.2/2", "transactional.id.expiration.ms", "604800000"),
    ("H.2/3", "transaction.state.log.num.partitions", "50"),
    ("H.2/4", "transaction.state.log.segment.bytes", "104857600"),
    ("H.2/5", "transaction.abort.timed.out.transaction.cleanup.interval.ms", "10000"),
    ("H.2/6", "transaction.remove.expired.transaction.cleanup.interval.ms", "3600000"),
    ("H.2/7", "transaction.partition.verification.enable", "true"),
    ("H.2/8", "transaction.two.phase.commit.enable", "false"),
    ("H.2/9", "producer.id.expiration.ms", "86400000"),
    ("H.2/10", "producer.id.expiration.check.interval.ms", "600000"),
    ("H.2/11", "add.partitions.to.txn.retry.backoff.ms", "20"),
    ("H.2/12", "add.partitions.to.txn.retry.backoff.max.ms", "100"),
    ("H.2/13", "message.max.bytes", "1048588"),
    ("H.2/14", "offsets.topic.num.partitions", "50"),
    ("H.2/15", "offsets.topic.segment.bytes", "104857600"),
    ("H.2/16", "offset.metadata.max.bytes", "4096"),
]


@pytest.mark.parametrize(("rule", "key", "value"), DEFAULTS, ids=[rule for rule, _, _ in DEFAULTS])
def test_setting_default_matches_kafka(rule: str, key: str, value: str) -> None:
    assert BrokerConfig().as_text()[key] == value
