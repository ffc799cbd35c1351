"""What a broker answers that depends on its version of Kafka, to compare a release with `broker_core` under it.

A request changes nothing: all of them are only validated.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest, UpdateFeaturesRequest

from tests.support.messages import SAFE, UNSAFE, UPGRADE, levels_request
from tests.support.raw_client import RawClient
from tests.support.recorded_api_versions import advertised

BROKER = 4
SET, DELETE = 0, 1
MIN_INSYNC_REPLICAS = "min.insync.replicas"
_FIRST_WITH_SMALL_FEATURES = 4

# What `broker_core` does not serve: voters of KRaft, groups of Kafka Streams, UnregisterController.
NOT_SERVED: Final = {80, 81, 88, 89, 93, 94}
# The first versions of requests that it serves, where Kafka serves older ones.
FIRST_SERVED: Final = {
    **dict.fromkeys((2, 9, 20, 27, 29, 30, 31, 32, 34, 35, 38, 39, 40, 41), 1),
    **dict.fromkeys((8, 19, 23), 2),
    1: 4,
}
# The end of a message of Kafka 3.6.
_ADVICE = " Retry using UNSAFE_DOWNGRADE if you want to force the downgrade to proceed."
# The level that each of them would get, and how. Two answers of old releases are left out, which `broker_core` does not
# give: Kafka 3.7 to 3.9 set features that they do not know to 0, and 3.9 and 4.0 lower `kraft.version`.
_UPDATES: Final = (
    *((name, level, UPGRADE) for name in ("transaction.version", "group.version", "share.version") for level in (1, 2)),
    ("eligible.leader.replicas.version", 1, UPGRADE),
    ("streams.version", 1, UPGRADE),
    ("kraft.version", 2, UPGRADE),
    ("no.such.version", 1, UPGRADE),
    ("metadata.version", 7, UNSAFE),
    *(("metadata.version", level, SAFE) for level in range(7, 35)),
)


def answers_of(address: str) -> dict[str, Any]:
    """Return all answers, by what was asked."""
    found: dict[str, Any] = {}
    for version in (3, 4):
        answer = advertised(address, version)
        if version == _FIRST_WITH_SMALL_FEATURES and answer.error_code:
            # Before Kafka 3.9.
            found["features as of version 4"] = answer.error_code
            continue
        found["APIs"] = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        found[f"features as of version {version}"] = {
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        }
        found[f"levels as of version {version}"] = {
            each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features
        }
    with RawClient(address) as client:
        found["settings of all brokers"] = settings_of(client, "")
        found["a setting of broker 1"] = settings_of(client, "1")
        for name in ("", "1"):
            for operation in (SET, DELETE):
                found[f"change {operation} of broker {name!r}"] = alter(client, name, operation, validate_only=True)
        highest = found["APIs"][UpdateFeaturesRequest.API_KEY][1]
        found |= _updates(client, highest)
    return found


def as_served(answers: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of a release, with the APIs as far as `broker_core` serves them."""
    served = {
        key: (max(low, FIRST_SERVED.get(key, 0)), high)
        for key, (low, high) in answers["APIs"].items()
        if key not in NOT_SERVED
    }
    return answers | {"APIs": served}


def settings_of(client: RawClient, name: str) -> list[tuple[str, str | None, int]]:
    """Return name, value and source of `min.insync.replicas` of a broker, or of all settings of all brokers."""
    form = DescribeConfigsRequest.DescribeConfigsResource
    keys = [MIN_INSYNC_REPLICAS] if name else None
    resource = form(resource_type=BROKER, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
    return [(each.name, each.value, each.config_source) for each in client.send(request, 4).results[0].configs]


def alter(client: RawClient, name: str, operation: int, *, validate_only: bool = False) -> tuple[int, str | None]:
    """Set `min.insync.replicas` of a broker or of all to 1, or delete it; return code and message."""
    form = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = form.AlterableConfig(
        name=MIN_INSYNC_REPLICAS, config_operation=operation, value="1" if operation == SET else None
    )
    request = IncrementalAlterConfigsRequest(
        resources=[form(resource_type=BROKER, resource_name=name, configs=[change])], validate_only=validate_only
    )
    (answer,) = client.send(request, 1).responses
    return answer.error_code, answer.error_message


def update(
    client: RawClient, version: int, *updates: tuple[str, int, int], validate_only: bool = False
) -> tuple[int, str | None, list[tuple[str, int, str | None]]]:
    """Update feature levels; return code, message and the results of each feature."""
    answer = client.send(levels_request(*updates, validate_only=validate_only), version)
    return (
        answer.error_code,
        _without_advice(answer.error_message),
        [(each.feature, each.error_code, _without_advice(each.error_message)) for each in answer.results],
    )


def _updates(client: RawClient, highest: int) -> Iterator[tuple[str, Any]]:
    several: Iterable[tuple[tuple[str, int, int], ...]] = (
        *((each,) for each in _UPDATES),
        (("metadata.version", 99, UPGRADE), ("transaction.version", 9, UPGRADE)),
    )
    for updates in several:
        for version in sorted({1, highest}):
            yield f"update {version} {updates}", update(client, version, *updates, validate_only=True)


def _without_advice(message: str | None) -> str | None:
    return message and message.removesuffix(_ADVICE)
