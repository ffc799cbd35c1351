"""What is read and written by hand for EndTxn is what the schema says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.wire import messages as m
from broker_core.wire.layout import check_body
from broker_core.wire.plain_produce import encode_end_txn_response, read_end_txn_request

BY_HAND = range(3, 6)
VERSIONS = st.integers(0, 5)
IDS = st.one_of(st.text(max_size=5), st.text("ab", min_size=120, max_size=300))
INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))

requests = st.builds(
    m.EndTxnRequest, transactional_id=IDS, producer_id=INT64, producer_epoch=INT16, committed=st.booleans()
)
responses = st.builds(
    m.EndTxnResponse, throttle_time_ms=INT32, error_code=INT16, producer_id=INT64, producer_epoch=INT16
)


def by_schema(body: bytes, version: int) -> Any:
    check_body(m.EndTxnRequest, version, memoryview(body))
    return m.EndTxnRequest.decode(memoryview(body), version=version)


@given(requests, VERSIONS, st.binary(max_size=5))
def test_both_readers_read_the_same(request: Any, version: int, header: bytes) -> None:
    body = bytes(request.encode(version=version))
    found = read_end_txn_request(header + body, len(header), version)
    assert (found is not None) == (version in BY_HAND)
    if found is not None:
        assert found == by_schema(body, version)
        assert found.to_dict() == by_schema(body, version).to_dict()


@given(requests, st.sampled_from(BY_HAND), st.data())
def test_damaged_bytes_are_never_read_in_another_way(request: Any, version: int, data: st.DataObject) -> None:
    body = bytearray(request.encode(version=version))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body
    found = read_end_txn_request(bytes(body), 0, version)
    if found is not None:
        assert found == by_schema(bytes(body), version)


@pytest.mark.parametrize("version", BY_HAND)
def test_tags_nulls_and_long_ids_are_left_to_the_schema(version: int) -> None:
    def encoded(transactional_id: str) -> bytes:
        request = m.EndTxnRequest(transactional_id=transactional_id, producer_id=1, producer_epoch=1, committed=True)
        return bytes(request.encode(version=version))

    # A body ends with the number of its tagged fields, and begins with the length of the id.
    assert read_end_txn_request(encoded("id"), 0, version) is not None
    assert read_end_txn_request(encoded("id")[:-1] + b"\x01\x09\x01x", 0, version) is None
    assert read_end_txn_request(b"\0" + encoded("")[1:], 0, version) is None
    assert read_end_txn_request(encoded("i" * (1 << 15)), 0, version) is None


@given(responses, VERSIONS)
def test_a_response_is_written_by_hand_as_by_the_schema(response: Any, version: int) -> None:
    written = encode_end_txn_response(response, version)
    assert (written is not None) == (version in BY_HAND)
    if written is not None:
        assert written == bytes(response.encode(version=version))
