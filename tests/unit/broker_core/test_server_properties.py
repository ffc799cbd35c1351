"""A `server.properties` as it comes with Apache Kafka, and the settings of Kafka that have no effect here."""

import logging

import pytest

from broker_core.config import TOPIC_SYNONYMS, BrokerConfig, TopicConfig
from broker_core.errors import ConfigError
from broker_core.kafka_settings import TYPES
from broker_core.server.listeners import plan_listeners
from broker_core.server.properties_file import read_broker_properties

SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=3
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.load.buffer.size=5242880
log.retention.hours=24
log.segment.bytes=1073741824
"""


def test_server_properties_of_kafka_are_accepted(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "broker_core")
    config = read_broker_properties(SERVER_PROPERTIES)
    assert (config.num_partitions, config.log_retention_ms) == (3, 24 * 3_600_000)
    assert [plan.name for plan in plan_listeners(config, brokers=1, host="127.0.0.1", port=0)] == ["PLAINTEXT"]
    assert "transaction.state.log.min.isr" in caplog.text
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert "--data-dir" in warning.getMessage()


def test_an_unknown_setting_in_a_file_gets_a_warning(caplog: pytest.LogCaptureFixture):
    assert read_broker_properties("no.such.key=1\nnum.partitions=2").num_partitions == 2
    assert "no.such.key" in caplog.text


@pytest.mark.parametrize("key", ["ssl.keystore.password", "sasl.server.callback.handler.class", "ssl.cipher.suites"])
def test_a_setting_that_protects_something_is_not_left_out(key: str):
    with pytest.raises(ConfigError, match="unsupported setting"):
        BrokerConfig().override({key: "x"})


@pytest.mark.parametrize(
    ("settings", "expected_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "1", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": " +1 "}, 60_000),
        ({"log.retention.ms": "-2"}, -1),
    ],
)
def test_the_shortest_unit_of_the_retention_counts(settings: dict[str, str], expected_ms: int):
    assert BrokerConfig().override(settings).topic_defaults().retention_ms == expected_ms


@pytest.mark.parametrize("key", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_a_retention_of_no_time_is_refused(key: str):
    with pytest.raises(ConfigError, match=r"log\.retention\.ms='?0'?: must be at least 1"):
        BrokerConfig().override({key: "0"})


def test_numbers_in_a_file_are_those_of_java():
    config = read_broker_properties("log.cleaner.min.cleanable.ratio=0x1p-2\nnum.partitions=+3")
    assert (config.log_cleaner_min_cleanable_ratio, config.num_partitions) == (0.25, 3)


def test_defaults_of_topics_come_from_the_broker():
    config = BrokerConfig().override({"min.insync.replicas": "2", "log.cleaner.delete.retention.ms": "7"})
    assert (config.topic_defaults().min_insync_replicas, config.topic_defaults().delete_retention_ms) == (2, 7)
    assert BrokerConfig().topic_defaults() == TopicConfig()


def test_topic_settings_and_their_synonyms_are_settings_of_kafka():
    assert TopicConfig.keys().keys() <= TYPES.keys()
    assert set(TOPIC_SYNONYMS) <= TopicConfig.keys().keys()
    assert set(TOPIC_SYNONYMS.values()) <= BrokerConfig.keys().keys() & TYPES.keys()
