"""The values of settings that clients may send, and the message of each that is refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from broker_core.errors import ErrorCode
from tests.support import setting_values as table
from tests.support.both_brokers import Kafka
from tests.support.clients import make_topic, unique
from tests.support.messages import creation
from tests.support.raw_client import RawClient
from tests.support.setting_changes import change, describe
from tests.support.setting_values import BROKER, CLIENT_METRICS, GROUP, TOPIC
from tests.support.waiting import wait_until

SET, DELETE = range(2)
KINDS = {TOPIC: "topic", BROKER: "broker", GROUP: "group", CLIENT_METRICS: "client-metrics"}
# Kafka refuses this setting of one broker whatever its value is.
OF_ALL_BROKERS = ("min.insync.replicas",)
ABOVE_ALL = "Value must be no more than 1"
Answer = tuple[int, str | None]


def alter(
    client: RawClient, kind: int, name: str, key: str, value: str | None, *, validate_only: bool = True
) -> Answer:
    """Change one setting; without a value it is deleted."""
    how = DELETE if value is None else SET
    return change(client, kind, name, (key, how, value), validate_only=validate_only)


def create(client: RawClient, key: str, value: str) -> Answer:
    """Send CreateTopics for a topic with one setting, for validation only."""
    (answer,) = client.send(creation(unique("topic"), config={key: value}, validate_only=True), 7).topics
    return answer.error_code, answer.error_message


def code_of(kind: int, message: str | None) -> int:
    """Return the code that Kafka sends with a message."""
    if message is None:
        return ErrorCode.NONE
    of_request = kind == CLIENT_METRICS and ("interval must" in message or "Unknown" in message)
    return ErrorCode.INVALID_REQUEST if kind == BROKER or of_request else ErrorCode.INVALID_CONFIG


def check(client: RawClient, kafka: Kafka, kind: int, key: str, expected: Mapping[str, str | None]) -> None:
    """Send each value of a setting in every way that it can be sent, and compare code and message."""
    names = {
        TOPIC: lambda: [make_topic(kafka)],
        BROKER: lambda: [""] if key in OF_ALL_BROKERS else ["1", ""],
        GROUP: lambda: [unique("group")],
        CLIENT_METRICS: lambda: [unique("metrics")],
    }[kind]()
    wanted: list[tuple[str, Answer]] = []
    found: list[tuple[str, Answer]] = []
    for value, message in expected.items():
        answers = [alter(client, kind, name, key, value) for name in names]
        if kind == TOPIC:
            answers.append(create(client, key, value))
        found += [(value, answer) for answer in answers]
        wanted += [(value, (code_of(kind, message), message))] * len(answers)
    assert found == wanted


def refused(key: str, value: str, problem: str, shown: str | None = None) -> str:
    return f"Invalid value {value.strip() if shown is None else shown} for configuration {key}: {problem}"


def named(keys: list[Any]) -> list[Any]:
    """Return the parameters of a test with ids that name the setting."""
    return [pytest.param(*each, id=f"{KINDS[each[0]]}-{each[1]}") for each in keys]


@pytest.mark.parametrize(("kind", "key", "size"), named(table.WHOLE_KEYS))
def test_whole_numbers_are_those_of_java(kafka: Kafka, client: RawClient, kind: int, key: str, size: str):
    expected: dict[str, str | None] = dict.fromkeys(table.WHOLE)
    for value in table.NOT_WHOLE + table.BEYOND[size]:
        expected[value] = refused(key, value, f"Not a number of type {size}", value)
    check(client, kafka, kind, key, expected)


@pytest.mark.parametrize(("kind", "key"), named(table.BOOLEAN_KEYS))
def test_booleans_are_true_and_false_in_any_case(kafka: Kafka, client: RawClient, kind: int, key: str):
    expected: dict[str, str | None] = dict.fromkeys(table.BOOLEAN)
    for value in table.NOT_BOOLEAN:
        expected[value] = refused(key, value, "Expected value to be either true or false", value)
    check(client, kafka, kind, key, expected)


@pytest.mark.parametrize(("kind", "key"), named(table.RATIO_KEYS))
def test_ratios_are_read_and_shown_as_by_java(kafka: Kafka, client: RawClient, kind: int, key: str):
    expected: dict[str, str | None] = dict.fromkeys(table.RATIO)
    expected |= {value: refused(key, value, "Not a number of type DOUBLE", value) for value in table.NOT_DOUBLE}
    expected |= {value: refused(key, value, ABOVE_ALL, shown) for value, shown in table.TOO_LARGE.items()}
    expected |= {
        value: refused(key, value, "Value must be at least 0", shown) for value, shown in table.TOO_SMALL.items()
    }
    check(client, kafka, kind, key, expected)


@pytest.mark.parametrize(("kind", "key"), named(table.UNBOUNDED_DOUBLE_KEYS))
def test_numbers_without_bounds(kafka: Kafka, client: RawClient, kind: int, key: str):
    expected: dict[str, str | None] = dict.fromkeys((*table.RATIO, *table.TOO_LARGE, *table.TOO_SMALL))
    expected |= {value: refused(key, value, "Not a number of type DOUBLE", value) for value in table.NOT_DOUBLE}
    check(client, kafka, kind, key, expected)


@pytest.mark.parametrize(
    ("kind", "key", "bounds"),
    named([(kind, key, bounds) for kind, keys in table.LOWEST.items() for key, bounds in keys.items()]),
)
def test_the_lowest_value_of_a_setting(
    kafka: Kafka, client: RawClient, kind: int, key: str, bounds: int | tuple[int, int]
):
    lowest, accepted = bounds if isinstance(bounds, tuple) else (bounds, bounds)
    below = str(lowest - 1)
    expected = {str(accepted): None, below: refused(key, below, f"Value must be at least {lowest}")}
    check(client, kafka, kind, key, expected)


@pytest.mark.parametrize(
    ("kind", "key", "said"),
    named([(kind, key, said) for kind, keys in table.SAID.items() for key, said in keys.items()]),
)
def test_what_is_said_of_a_value(
    kafka: Kafka, client: RawClient, kind: int, key: str, said: Mapping[str | None, tuple[str, ...]]
):
    expected: dict[str, str | None] = {}
    for template, values in said.items():
        for value in values:
            message = template and template.replace("{key}", key).replace("{value}", value.strip())
            is_problem = message is not None and message.startswith(("Value ", "String ", "Invalid value `"))
            expected[value] = refused(key, value, message) if message and is_problem else message
    check(client, kafka, kind, key, expected)


@pytest.mark.parametrize(
    ("kind", "key", "value", "shown"),
    [
        (TOPIC, "min.cleanable.dirty.ratio", "0.00001", "1.0E-5"),
        (TOPIC, "min.cleanable.dirty.ratio", "0x1p-1", "0.5"),
        (TOPIC, "internal.segment.bytes", "5000", "5000"),
        (TOPIC, "retention.ms", " +5 ", "5"),
        (TOPIC, "preallocate", " TRUE ", "true"),
        (TOPIC, "cleanup.policy", "delete,delete", "delete"),
        (GROUP, "consumer.session.timeout.ms", " +50000 ", "50000"),
        (GROUP, "share.isolation.level", " read_committed ", "read_committed"),
        (CLIENT_METRICS, "interval.ms", " +500 ", "500"),
    ],
)
def test_a_value_is_shown_as_it_was_read(kafka: Kafka, client: RawClient, kind: int, key: str, value: str, shown: str):
    name = make_topic(kafka) if kind == TOPIC else unique("resource")

    def values() -> list[str | None]:
        # Apache Kafka lists an internal setting once it has applied a value.
        entries = describe(client, kind, name, key).configs
        return [each.value for entry in entries for each in (entry, *entry.synonyms[:1])]

    try:
        assert alter(client, kind, name, key, value, validate_only=False) == (ErrorCode.NONE, None)
        wait_until(lambda: values() == [shown, shown], f"{key} is {shown}")
    finally:
        alter(client, kind, name, key, None, validate_only=False)
