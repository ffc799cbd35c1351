"""A `server.properties` as it comes with Apache Kafka, and the settings of Kafka that have no effect here."""

import json
import logging
import re
from importlib.resources import files

import pytest

from broker_core.config import BrokerConfig, TopicConfig, known_settings
from broker_core.errors import ConfigError
from broker_core.server.listeners import plan_listeners
from broker_core.settings.catalog import DEFAULTS, SETTINGS, TOPIC_DEFAULTS, TYPES
from broker_core.settings.values import effectless

# Settings that Kafka's brokers have and brokers here do not act on, by type; those of topics are none of them.
WITHOUT_EFFECT = effectless(TYPES, BrokerConfig.keys().keys() | TopicConfig.keys().keys())
LOWEST = {key: low for key in WITHOUT_EFFECT if (low := SETTINGS[key].low) is not None}
JAVA_CODE = {key: each.java for key, each in SETTINGS.items() if each.java is not None}
WHOLE = {"INT": 2**31 - 1, "LONG": 2**63 - 1, "SHORT": 2**15 - 1}
PARSED = {*WHOLE, "BOOLEAN", "DOUBLE"}

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


def read_broker_properties(text):
    return BrokerConfig().override(known_settings(text))


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


def refusal(key: str, value: object) -> str:
    """Return why a file with this line is refused, or an empty text."""
    try:
        read_broker_properties(f"{key}={value}")
    except ConfigError as error:
        return str(error)
    return ""


def test_value_below_kafkas_lowest_is_refused_in_a_file():
    why = "Invalid value {} for configuration {}: Value must be at least {}"
    expected = {key: ("", why.format(low - 1, key, low)) for key, low in LOWEST.items()}
    assert {key: (refusal(key, low), refusal(key, low - 1)) for key, low in LOWEST.items()} == expected


def test_number_of_another_size_is_refused_in_a_file():
    why = "Invalid value {} for configuration {}: Not a number of type {}"
    found, expected = {}, {}
    for key in WITHOUT_EFFECT:
        if (kind := TYPES[key]) in WHOLE:
            highest = WHOLE[kind]
            found[key] = refusal(key, min(SETTINGS[key].high or 10_000_000, highest)), refusal(key, highest + 1)
            expected[key] = "", why.format(highest + 1, key, kind)
    assert found == expected


def test_value_of_another_type_is_refused_in_a_file():
    found = {key: refusal(key, "x") for key in WITHOUT_EFFECT if TYPES[key] in PARSED}
    accepted = [key for key, why in found.items() if not why.startswith(f"Invalid value x for configuration {key}: ")]
    assert accepted == []


def test_all_units_of_a_time_are_checked():
    with pytest.raises(ConfigError, match="Invalid value x for configuration log.retention.hours: Not a number"):
        read_broker_properties("log.retention.ms=5\nlog.retention.hours=x")
    with pytest.raises(ConfigError, match="Invalid value 0 for configuration log.roll.hours: Value must be"):
        read_broker_properties("log.roll.ms=5\nlog.roll.hours=0")


def test_a_setting_of_topics_is_not_checked_in_a_file():
    assert read_broker_properties("retention.ms=x") == BrokerConfig()


def test_kafkas_default_of_every_setting_is_accepted_in_a_file():
    found = {key: refusal(key, default) for key, default in DEFAULTS.items() if default is not None}
    # GSSAPI, the default of this one, is not served.
    assert [key for key, why in found.items() if why] == ["sasl.enabled.mechanisms"]


@pytest.mark.parametrize("key", sorted(JAVA_CODE))
@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext.", "listener.name.plaintext.plain."])
def test_a_setting_that_protects_a_broker_by_java_code_is_refused(key: str, prefix: str):
    for value in ("", *JAVA_CODE[key]):
        BrokerConfig().override({prefix + key: value})
    with pytest.raises(ConfigError, match=f"^{re.escape(prefix + key)}='example.Own' protects a broker"):
        BrokerConfig().override({prefix + key: " example.Own"})


def test_variables_of_config_providers_are_refused():
    BrokerConfig().override({"config.providers": "file", "num.partitions": "2"})
    with pytest.raises(ConfigError, match="variables such as .* are not replaced"):
        BrokerConfig().override({"config.providers": "file", "ssl.key.password": "${file:/secrets:key}"})


def test_settings_of_a_listener_that_have_no_effect_are_left_out(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "broker_core")
    keys = ("num.network.threads", "num.partitions", "gssapi.sasl.jaas.config", "plain.sasl.login.class")
    given = {f"listener.name.plaintext.{key}": "8" for key in keys}
    assert BrokerConfig().override(given) == BrokerConfig()
    assert all(key in caplog.text for key in given)


def test_an_unknown_setting_of_a_listener_in_a_file_gets_a_warning(caplog: pytest.LogCaptureFixture):
    assert read_broker_properties("listener.name.plaintext.no.such.key=1") == BrokerConfig()
    assert "unknown settings, which have no effect: listener.name.plaintext.no.such.key" in caplog.text


def test_settings_of_the_listener_of_controllers_are_left_out():
    given = {"controller.listener.names": "CONTROLLER", "listener.name.controller.sasl.enabled.mechanisms": "PLAIN"}
    config = BrokerConfig().override(given)
    assert [plan.name for plan in plan_listeners(config, brokers=1, host="127.0.0.1", port=0)] == ["PLAINTEXT"]


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
    assert TOPIC_DEFAULTS.keys() <= TopicConfig.keys().keys()
    assert set(TOPIC_DEFAULTS.values()) <= TYPES.keys()


def test_each_setting_has_one_line_in_the_order_of_names():
    lines = (files("broker_core.settings") / "settings.json").read_text("utf-8").splitlines()[1:-1]
    names = [next(iter(json.loads(f"{{{line.rstrip(',')}}}"))) for line in lines]
    assert names == sorted(SETTINGS) == sorted(set(names))
    assert {each.default_of for each in SETTINGS.values()} - {None} <= SETTINGS.keys()
