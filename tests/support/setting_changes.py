"""Settings that change while a broker runs, and what Apache Kafka says of key stores that it refuses."""

from typing import Any, Final

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.messages import filled
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

_BROKER: Final = 4
_SET, _DELETE = range(2)
_DYNAMIC: Final = 2
WRAPPED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
NOT_LOADED = (
    "Validation of dynamic config update of SSLFactory failed: "
    "org.apache.kafka.common.errors.InvalidConfigurationException: {}"
)
NOT_COMPATIBLE = (
    "Validation of dynamic config update of SSLFactory failed: org.apache.kafka.common.config.ConfigException: {}"
)
Settings = dict[str, str | None]
# A key, an operation, and a value.
Change = tuple[str, int, str | None]


def change(client: RawClient, kind: int, name: str, *changes: Change, validate_only: bool = False) -> tuple[int, Any]:
    """Send IncrementalAlterConfigs for one resource; return code and message."""
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    request = filled(m.IncrementalAlterConfigsRequest, resources=resources, validate_only=validate_only)
    (answer,) = client.send(request, 1).responses
    return answer.error_code, answer.error_message


def describe(
    client: RawClient, kind: int, name: str, *keys: str, synonyms: bool = True, documentation: bool = False
) -> Any:
    """Send DescribeConfigs for one resource, of all settings or of some; return the result."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    shown = {"include_synonyms": synonyms, "include_documentation": documentation}
    return client.send(filled(m.DescribeConfigsRequest, resources=[resource], **shown), 4).results[0]


def alter(client: RawClient, changes: Settings, name: str = "1", *, validate_only: bool = True) -> tuple[int, Any]:
    """Change settings of a broker; those without a value are deleted."""
    given = [(key, _DELETE if value is None else _SET, value) for key, value in changes.items()]
    return change(client, _BROKER, name, *given, validate_only=validate_only)


def described(client: RawClient, *keys: str) -> list[Any]:
    """Return settings of the broker."""
    return list(describe(client, _BROKER, "1", *keys).configs)


def store(client: RawClient, changes: Settings) -> None:
    """Change settings, and wait until the broker has them."""
    assert alter(client, changes, validate_only=False) == (0, None)

    def is_applied() -> bool:
        stored = {entry.name for entry in described(client) if entry.config_source == _DYNAMIC}
        return all((key in stored) == (value is not None) for key, value in changes.items())

    wait_until(is_applied, "the broker has the settings")


def delete_stored(client: RawClient) -> None:
    """Delete the settings of the broker that were changed."""
    stored = [entry.name for entry in described(client) if entry.config_source == _DYNAMIC]
    assert alter(client, dict.fromkeys(stored), validate_only=False) == (0, None)
    wait_until(lambda: all(entry.config_source != _DYNAMIC for entry in described(client)), "they are deleted")


def answer_to(message: str | None) -> tuple[int, str | None]:
    """Return the code and the message of a change that is refused, or accepted without a message."""
    return (ErrorCode.NONE, None) if message is None else (ErrorCode.INVALID_REQUEST, message)
