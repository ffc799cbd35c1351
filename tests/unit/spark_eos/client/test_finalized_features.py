"""The response about the cluster's feature levels that the client uses (KIP-584)."""

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from spark_eos.client.metadata import FinalizedFeatures
from spark_eos.runtime import RealClock

FEATURE = "transaction.version"


def answer(epoch: int, level: int | None, error: ErrorCode = ErrorCode.NONE) -> m.ApiVersionsResponse:
    response = m.ApiVersionsResponse
    finalized = (
        []
        if level is None
        else [response.FinalizedFeatureKey(name=FEATURE, max_version_level=level, min_version_level=level)]
    )
    return response(error_code=error, api_keys=[], finalized_features_epoch=epoch, finalized_features=finalized)


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
