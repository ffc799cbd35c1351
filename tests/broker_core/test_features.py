"""Feature levels change at run time, as a whole or not at all."""

import pytest

from broker_core.errors import ErrorCode
from broker_core.simulation.disk import MemoryStorage
from broker_core.wire import messages as m
from tests.support.direct import DirectClient, direct_cluster

UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture
def client():
    return DirectClient(direct_cluster(settings={"transaction.version": "1"}))


def update(client, *updates, version=2, validate_only=False):
    form = m.UpdateFeaturesRequest.FeatureUpdateKey
    return client.ask(m.UpdateFeaturesRequest(validate_only=validate_only, feature_updates=[
        form(feature=feature, max_version_level=level, upgrade_type=kind) for feature, level, kind in updates
    ]), version)


def finalized(client):
    answer = client.ask(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return {f.name: f.max_version_level for f in answer.finalized_features}, answer.finalized_features_epoch


def test_an_upgrade_is_seen_by_clients_under_a_higher_epoch(client):
    before, epoch = finalized(client)
    assert update(client, ("transaction.version", 2, UPGRADE)).error_code == 0
    after, new_epoch = finalized(client)
    assert (before, after) == ({"transaction.version": 1}, {"transaction.version": 2})
    assert new_epoch > epoch


def test_level_zero_is_left_out_of_the_finalized_features(client):
    assert update(client, ("transaction.version", 0, UNSAFE)).error_code == 0
    assert finalized(client)[0] == {}


@pytest.mark.parametrize("updates, code", [
    ([("transaction.version", 3, UPGRADE)], ErrorCode.INVALID_UPDATE_VERSION),
    ([("transaction.version", -1, SAFE)], ErrorCode.INVALID_UPDATE_VERSION),
    ([("transaction.version", 0, UPGRADE)], ErrorCode.INVALID_UPDATE_VERSION),
    ([("transaction.version", 2, SAFE)], ErrorCode.INVALID_UPDATE_VERSION),
    ([("no.such.feature", 1, UPGRADE)], ErrorCode.FEATURE_UPDATE_FAILED),
    ([("transaction.version", 2, UPGRADE), ("no.such.feature", 1, UPGRADE)], ErrorCode.FEATURE_UPDATE_FAILED),
])
def test_an_update_that_cannot_be_changes_nothing(client, updates, code):
    before = finalized(client)
    assert update(client, *updates).error_code == code
    [first, *_] = update(client, *updates, version=1).results
    assert first.error_code == code
    assert finalized(client) == before


def test_validating_changes_nothing(client):
    assert update(client, ("transaction.version", 2, UPGRADE), validate_only=True).error_code == 0
    assert finalized(client)[0] == {"transaction.version": 1}


def test_a_level_set_at_run_time_gives_way_to_the_setting_at_the_next_start():
    storage = MemoryStorage()
    first = direct_cluster(storage)
    assert update(DirectClient(first), ("transaction.version", 1, SAFE)).error_code == 0
    first.close(first.now_ms)
    assert finalized(DirectClient(direct_cluster(storage)))[0] == {"transaction.version": 2}
