"""Feature levels change at run time, as a whole or not at all."""

import pytest

from broker_core.broker.feature_levels import FIRST_LEVELS, METADATA_VERSION, check_update
from broker_core.broker.metadata import ClusterMetadata
from broker_core.errors import ErrorCode, KafkaError
from broker_core.simulation.disk import MemoryStorage
from broker_core.wire import messages as m
from broker_core.wire.kafka_versions import feature_levels
from tests.support.broker_core.feature_updates import update
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import SAFE, UNSAFE, UPGRADE


@pytest.fixture
def client():
    return DirectClient(direct_cluster(settings={"transaction.version": "1"}))


def finalized(client):
    answer = client.ask(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    levels = {f.name: f.max_version_level for f in answer.finalized_features}
    assert levels.pop("group.version") == 1
    levels = {name: level for name, level in levels.items() if level != FIRST_LEVELS[name]}
    return levels, answer.finalized_features_epoch


TV = "transaction.version"


@pytest.mark.parametrize("version", [1, 2])
def test_impossible_update_changes_nothing_and_returns_one_error_for_all(client, version):
    before = finalized(client)
    refused = update(client, (TV, 2, UPGRADE), ("no.such.feature", 1, UPGRADE), version=version)
    assert (refused.error_code, list(refused.results)) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert "no.such.feature" in refused.error_message
    assert finalized(client) == before


@pytest.mark.parametrize(("version", "answers"), [(0, [(TV, 0, "NONE")]), (1, [(TV, 0, "NONE")]), (2, [])])
def test_feature_results_are_per_feature_in_versions_that_support_it(client, version, answers):
    done = update(client, (TV, 2, UPGRADE), version=version)
    assert done.error_code == 0
    assert [(entry.feature, entry.error_code, entry.error_message) for entry in done.results] == answers
    assert finalized(client)[0] == {TV: 2}


def test_version_0_only_upgrades_regardless_of_its_flag(client):
    assert update(client, (TV, 0, SAFE), version=0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(client, (TV, 2, SAFE), version=0).error_code == 0
    assert finalized(client)[0] == {TV: 2}


def test_validate_only_changes_nothing(client):
    assert update(client, (TV, 2, UPGRADE), validate_only=True).error_code == 0
    assert finalized(client)[0] == {TV: 1}


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_newer_level_needs_an_upgrade(client, kind):
    assert update(client, (TV, 2, kind)).error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_feature_named_twice_gets_the_last_level(client):
    assert update(client, (TV, 0, SAFE), (TV, 2, UPGRADE)).error_code == 0
    assert finalized(client)[0] == {TV: 2}


@pytest.mark.parametrize("feature", ["transaction.version", "group.version"])
def test_level_set_at_run_time_survives_restarts_until_the_setting_changes(feature, storage: MemoryStorage):
    highest = feature_levels("")[feature].highest

    def reopened(**settings):
        cluster = direct_cluster(storage, settings=settings)
        level = cluster.metadata.features[feature]
        cluster.close(cluster.now_ms)
        return level

    first = direct_cluster(storage)
    assert update(DirectClient(first), (feature, highest - 1, SAFE)).error_code == 0
    first.close(first.now_ms)
    assert [reopened(), reopened()] == [highest - 1] * 2
    assert reopened(**{feature: "0"}) == 0
    assert reopened(**{feature: str(highest)}) == highest


def test_crash_while_a_new_cluster_starts_loses_no_level():
    records = []
    ClusterMetadata(lambda _key, value: records.append(value) or len(records) - 1, (1,)).open_cluster("c", 2, 1)
    for kept in range(len(records)):
        left = records[:kept]
        metadata = ClusterMetadata(lambda _key, value, left=left: left.append(value) or len(left) - 1, (1,))
        metadata.load(list(enumerate(left)))
        metadata.open_cluster("c", 2, 1)
        assert metadata.features == {**FIRST_LEVELS, "transaction.version": 2, "group.version": 1}


def test_cluster_without_recorded_settings_keeps_its_levels():
    records = [
        b'{"type": "opened", "cluster_id": "c", "brokers": [1]}',
        b'{"type": "feature", "name": "transaction.version", "level": 1}',
    ]
    metadata = ClusterMetadata(lambda _key, value: records.append(value) or len(records) - 1, (1,))
    metadata.load(list(enumerate(records)))
    metadata.open_cluster("c", 2, 1)
    assert metadata.features == {**FIRST_LEVELS, "transaction.version": 1, "group.version": 0}


@pytest.mark.parametrize(
    ("version", "wanted", "level", "how", "reason"),
    [
        # Level 23 changed the metadata, and those from 24 to 27 did not.
        ("4.1", 22, 23, SAFE, "Invalid metadata.version 22. Refusing to perform"),
        ("4.1", 22, 27, UNSAFE, "Invalid metadata.version 22. Unsafe metadata downgrade"),
        ("4.1", 23, 27, SAFE, None),
        ("", 32, 33, SAFE, "Unsupported metadata.version downgrade from 33 to 32. Refusing to perform"),
        ("", 30, 31, UNSAFE, None),
    ],
)
def test_level_of_the_metadata_falls_only_if_no_metadata_is_lost(version, wanted, level, how, reason):
    if reason is None:
        check_update(version, METADATA_VERSION, wanted, level, how, 1)
    else:
        with pytest.raises(KafkaError, match=reason):
            check_update(version, METADATA_VERSION, wanted, level, how, 1)
