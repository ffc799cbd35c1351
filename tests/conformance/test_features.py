"""The features of a new cluster (KIP-584), and the updates that are refused; telemetry is not advertised (KIP-714)."""

from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from broker_core.errors import ErrorCode
from tests.support.messages import SAFE, UNSAFE, UPGRADE, levels_request
from tests.support.raw_client import RawClient

GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72
FOR_ALL = "The update failed for all features since the following feature had an error: "
NEEDS_A_TYPE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)


def advertised(client: RawClient, version: int) -> Any:
    return client.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"), version)


def test_the_features_are_those_of_kafka_4_4(client: RawClient):
    answer = advertised(client, 4)
    assert answer.finalized_features_epoch >= 0
    assert {each.name: (each.min_version, each.max_version) for each in answer.supported_features} == {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 33),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    assert {each.name: each.max_version_level for each in answer.finalized_features} == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 33,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    }
    # Older clients do not understand a lowest level of 0.
    assert [each.name for each in advertised(client, 3).supported_features] == ["metadata.version"]


def test_telemetry_is_not_advertised(client: RawClient):
    keys = {each.api_key for each in advertised(client, 4).api_keys}
    assert not keys & {GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY}


def update(client: RawClient, *updates: tuple[str, int, int]) -> tuple[int, str | None]:
    """Validate an update of features; return code and message."""
    answer = client.send(levels_request(*updates, validate_only=True), 2)
    return answer.error_code, answer.error_message


@pytest.mark.parametrize(
    ("name", "level", "how", "reason"),
    [
        ("metadata.version", 6, UPGRADE, "Local controller 1 only supports versions 7-33"),
        ("share.version", 9, UPGRADE, "Local controller 1 only supports versions 0-2"),
        ("share.version", 1, UPGRADE, NEEDS_A_TYPE),
        ("transaction.version", 0, UPGRADE, NEEDS_A_TYPE),
        ("kraft.version", 0, SAFE, "Can't downgrade the version of this feature."),
        ("group.version", 1, 0, "The controller does not support the given upgrade type."),
        ("group.version", 1, 9, "The controller does not support the given upgrade type."),
        ("transaction.version", -1, SAFE, "A feature version cannot be less than 0."),
        ("nope", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("nope", 0, SAFE, "Feature nope not found."),
    ],
)
def test_an_update_that_is_refused(client: RawClient, name: str, level: int, how: int, reason: str):
    code, message = update(client, (name, level, how))
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert message == f"{FOR_ALL}Invalid update version {level} for feature {name}. {reason}"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (SAFE, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_metadata_that_would_be_lost(client: RawClient, how: int, reason: str):
    code, message = update(client, ("metadata.version", 7, how))
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert message == f"{FOR_ALL}Unsupported metadata.version downgrade from 33 to 7. {reason}"


def test_updates_that_are_possible(client: RawClient):
    assert update(client) == (ErrorCode.NONE, None)
    assert update(client, ("group.version", 0, SAFE), ("share.version", 1, UNSAFE)) == (ErrorCode.NONE, None)
    assert update(client, ("group.version", 1, UPGRADE), ("group.version", 1, UPGRADE)) == (ErrorCode.NONE, None)
    assert update(client, ("group.version", 1, SAFE), ("share.version", 2, UNSAFE)) == (ErrorCode.NONE, None)
    assert update(client, ("group.version", 1, UPGRADE), ("share.version", 9, UPGRADE))[0] == (
        ErrorCode.INVALID_UPDATE_VERSION
    )
