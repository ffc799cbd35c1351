"""Kafka's settings without an effect here are refused in a file where Apache Kafka refuses them, with its message."""

import subprocess
from pathlib import Path

import pytest

from broker_core.config import BrokerConfig, TopicConfig
from broker_core.errors import ConfigError
from broker_core.settings.catalog import TYPES
from broker_core.settings.values import effectless
from tests.support.apache_kafka import fetch_jars
from tests.support.class_archive import java_with
from tests.support.java import SHORT_LIFE

PROGRAM = Path(__file__).parents[1] / "support" / "SettingMessages.java"
DEADLINE_S = 120
PARSED = ("BOOLEAN", "DOUBLE", "INT", "LONG", "SHORT")
VALUES = (
    *("", "x", " 1 ", "+1", "1.0", "1L", "1_0", "-0", "true", " FALSE ", "yes", "NaN", "1e3", "0x1p3"),
    *("-3", "-2", "-1", "0", "1", "2", "99", "524287", "524288", "8388607", "8388608"),
    *("32767", "32768", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
)


def message_here(line: str) -> str:
    key, _, value = line.partition("=")
    try:
        BrokerConfig().override({key: value})
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("apache_asked_for")
def test_wrong_values_of_settings_without_effect_get_kafkas_messages():
    keys = [
        key
        for key in effectless(TYPES, BrokerConfig.keys().keys() | TopicConfig.keys().keys())
        # The minutes and hours of served times have more rules.
        if TYPES[key] in PARSED and not key.startswith(("log.retention.", "log.roll.hours"))
    ]
    lines = [f"{key}={value}" for key in keys for value in VALUES]
    answer = subprocess.run(
        [*java_with(fetch_jars(), *SHORT_LIFE), str(PROGRAM)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    theirs = answer.stdout.splitlines()
    assert len(theirs) == len(lines)
    assert [(line, message_here(line)) for line in lines] == list(zip(lines, theirs, strict=True))
