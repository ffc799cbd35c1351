"""The response about the cluster's feature levels that the client uses (KIP-584)."""

from collections.abc import Mapping

import pytest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from spark_eos.client.metadata import FinalizedFeatures
from spark_eos.runtime import RealClock

FEATURE = "transaction.version"
PRODUCE, END_TXN, TXN_OFFSET_COMMIT = 0, 26, 28
NEWEST = {PRODUCE: 13, END_TXN: 5, TXN_OFFSET_COMMIT: 5}


def answer(
    epoch: int, level: int | None, error: ErrorCode = ErrorCode.NONE, latest: Mapping[int, int] = NEWEST
) -> m.ApiVersionsResponse:
    response = m.ApiVersionsResponse
    supported = [
        response.ApiVersion(api_key=api, min_version=0, max_version=version) for api, version in latest.items()
    ]
    finalized = (
        []
        if level is None
        else [response.FinalizedFeatureKey(name=FEATURE, max_version_level=level, min_version_level=level)]
    )
    return response(error_code=error, api_keys=supported, finalized_features_epoch=epoch, finalized_features=finalized)


# Rule I.1/1.
def test_unlisted_feature_has_level_0() -> None:
    features = FinalizedFeatures(RealClock())
    assert features.level(FEATURE) == 0
    features.note(answer(3, 2))
    assert features.level(FEATURE) == 2
    features.note(answer(4, None))
    assert features.level(FEATURE) == 0


# Rule I.1/2.
def test_finalized_features_with_the_largest_epoch_win() -> None:
    features = FinalizedFeatures(RealClock())
    features.note(answer(3, 2))
    for late in (answer(2, 1), answer(3, 1), answer(9, 1, ErrorCode.UNSUPPORTED_VERSION)):
        features.note(late)
        assert features.level(FEATURE) == 2
    features.note(answer(4, 1))
    assert features.level(FEATURE) == 1


# Rule I.1/5.
@pytest.mark.parametrize(("api", "newest"), [(PRODUCE, 11), (END_TXN, 4), (TXN_OFFSET_COMMIT, 4)])
def test_a_proxy_that_limits_versions_leaves_level_1(api: int, newest: int) -> None:
    features = FinalizedFeatures(RealClock())
    features.note(answer(3, 2, latest={**NEWEST, api: newest}))
    assert features.transaction_version == 1
    features.note(answer(4, 0, latest={**NEWEST, api: newest}))
    assert features.transaction_version == 0
    features.note(answer(5, 2))
    assert features.transaction_version == 2
