"""An ApiVersions response is encoded once, and each different response has its own bytes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_core.wire import messages as m
from broker_core.wire.framing import encode_api_versions_response

Response = m.ApiVersionsResponse
# A few values, so that equal responses and those that differ in one field are frequent.
LEVELS = st.integers(0, 1)
NAMES = st.sampled_from(["a", "b"])

ranges = st.builds(Response.ApiVersion, api_key=LEVELS, min_version=LEVELS, max_version=LEVELS)
supported = st.builds(Response.SupportedFeatureKey, name=NAMES, min_version=LEVELS, max_version=LEVELS)
finalized = st.builds(Response.FinalizedFeatureKey, name=NAMES, max_version_level=LEVELS, min_version_level=LEVELS)
responses = st.builds(
    Response,
    error_code=LEVELS,
    api_keys=st.lists(ranges, max_size=2),
    throttle_time_ms=LEVELS,
    supported_features=st.lists(supported, max_size=2),
    finalized_features_epoch=LEVELS,
    finalized_features=st.lists(finalized, max_size=2),
    zk_migration_ready=st.booleans(),
)


@given(st.lists(responses, min_size=1, max_size=5), st.integers(0, 5))
def test_the_bytes_are_those_of_the_schema(some: list[Any], version: int) -> None:
    for response in some:
        assert encode_api_versions_response(response, version) == bytes(response.encode(version=version))


def test_an_equal_response_is_not_encoded_again() -> None:
    first, again, other = (
        Response(error_code=0, api_keys=[]),
        Response(error_code=0, api_keys=[]),
        Response(error_code=1),
    )
    other.api_keys = []
    assert encode_api_versions_response(first, 4) is encode_api_versions_response(again, 4)
    assert encode_api_versions_response(first, 4) != encode_api_versions_response(other, 4)


def test_the_number_of_kept_responses_is_limited() -> None:
    first = encode_api_versions_response(Response(error_code=0, api_keys=[]), 4)
    for throttle_time_ms in range(1, 100):
        encode_api_versions_response(Response(error_code=0, api_keys=[], throttle_time_ms=throttle_time_ms), 4)
    assert encode_api_versions_response(Response(error_code=0, api_keys=[]), 4) is not first
