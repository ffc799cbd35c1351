"""Changes of a broker's settings while it runs, and what Apache Kafka says of key stores that it refuses."""

from typing import Any, Final

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from broker_core.errors import ErrorCode
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


def alter(client: RawClient, changes: Settings, name: str = "1", *, validate_only: bool = True) -> tuple[int, Any]:
    """Send IncrementalAlterConfigs; settings without a value are deleted."""
    form = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        form.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    resource = form(resource_type=_BROKER, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = client.send(request, 1).responses
    return answer.error_code, answer.error_message


def described(client: RawClient, *keys: str) -> list[Any]:
    """Return settings of the broker."""
    form = DescribeConfigsRequest.DescribeConfigsResource
    resource = form(resource_type=_BROKER, resource_name="1", configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=False)
    return list(client.send(request, 4).results[0].configs)


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
