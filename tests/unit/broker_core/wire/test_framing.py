"""Frames and headers: whole requests from any split of the stream; malformed ones are rejected."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.apis import SERVED
from broker_core.wire import messages as m
from broker_core.wire.framing import (
    FrameReader,
    MalformedFrame,
    UnsupportedVersion,
    decode_request,
    encode_response,
    refuse_api_versions,
)

FETCH, PRODUCE, API_VERSIONS = 1, 0, 18


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request_bytes(request: object, correlation_id: int = 7) -> bytes:
    request.with_header(correlation_id, "tester")
    return bytes(request.encode(header=True, framed=True))


@given(st.lists(st.binary(min_size=8, max_size=40), max_size=5), st.lists(st.integers(1, 30), max_size=20))
def test_frames_are_parsed_for_any_split_of_the_stream(bodies, cuts):
    stream = b"".join(map(framed, bodies))
    reader = FrameReader(1000)
    found = []
    position = 0
    for cut in [*cuts, len(stream)]:
        found += reader.feed(stream[position : position + cut])
        position += cut
    assert found == bodies
    assert reader.buffered_bytes == 0


@pytest.mark.parametrize("length", [-1, 0, 7, 1001, 2**31 - 1])
def test_frame_length_outside_the_limits_is_refused_immediately(length):
    with pytest.raises(MalformedFrame, match=str(length)):
        list(FrameReader(1000).feed(struct.pack(">i", length)))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"GET / HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"POST /topics HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"PRI * HTTP/2.0\r\n", "the client speaks HTTP"),
        (b"\x16\x03\x01\x00\xa5\x01", "the client begins TLS.*security.protocol"),
    ],
)
def test_client_of_another_protocol_is_named(first, said):
    with pytest.raises(MalformedFrame, match=said):
        list(FrameReader(100 * 1024 * 1024).feed(first))


# Rule J.3/1.
@pytest.mark.parametrize("version", range(SERVED[API_VERSIONS].min_version, SERVED[API_VERSIONS].max_version + 1))
def test_api_versions_response_uses_header_version_0(version):
    sent = m.ApiVersionsRequest(version=version, client_software_name="x", client_software_version="1")
    [frame] = FrameReader(1000).feed(request_bytes(sent))
    request = decode_request(frame, SERVED)
    assert (request.version, request.correlation_id, request.client_id) == (version, 7, "tester")
    (answer,) = encode_response(request, m.ApiVersionsResponse(error_code=0, api_keys=[]))
    assert struct.unpack_from(">ih", answer, 4) == (7, 0)


# Rule J.3/2.
def test_unknown_version_of_api_versions_is_answered_in_version_0():
    (answer,) = refuse_api_versions(9, 35, SERVED)
    decoded = m.ApiVersionsResponse.decode(bytes(answer), version=0, header=True, framed=True)
    assert (decoded.error_code, [(a.api_key, a.min_version, a.max_version) for a in decoded.api_keys]) == (
        35,
        [(18, 0, 5)],
    )


# Rule J.1/2.
@pytest.mark.parametrize(("key", "version"), [(FETCH, 3), (FETCH, 19), (PRODUCE, 2), (4, 0), (999, 0), (-1, 0)])
def test_unserved_requests_are_not_decoded(key, version):
    with pytest.raises(UnsupportedVersion) as caught:
        decode_request(struct.pack(">hhi", key, version, 5) + b"\0" * 20, SERVED)
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (key, version, 5)


@given(st.binary(max_size=60))
def test_random_bodies_are_decoded_or_malformed(body):
    for key, api in SERVED.items():
        for version in {api.min_version, api.max_version}:
            with suppress(MalformedFrame):
                decode_request(struct.pack(">hhi", key, version, 1) + body, SERVED)


# Rules I.4/2 and J.4/1.
def test_produce_is_advertised_from_0_but_served_from_3():
    assert (SERVED[PRODUCE].advertised_min, SERVED[PRODUCE].min_version) == (0, 3)
    assert all(api.advertised_min == api.min_version for key, api in SERVED.items() if key != PRODUCE)


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_every_served_version_has_a_schema(api):
    low, high = api.request.valid_versions
    assert low <= api.min_version <= api.max_version <= high
    assert api.response.valid_versions == (low, high)


# Rules J.1/1 and I.4/4.
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("InitProducerId", 0, 5),
        ("AddPartitionsToTxn", 0, 5),
        ("AddOffsetsToTxn", 0, 4),
        ("EndTxn", 0, 5),
        ("TxnOffsetCommit", 0, 6),
        ("WriteTxnMarkers", 1, 2),
    ],
)
def test_transaction_apis_are_served_in_kafka_4_4_versions(name: str, low: int, high: int) -> None:
    [api] = [api for api in SERVED.values() if api.name == name]
    assert (api.min_version, api.max_version) == (low, high)


# Rule J.4/2.
@pytest.mark.parametrize(("version", "answered"), [(2, "00000000 0000"), (3, "00 00000000 0000 00")])
def test_flexible_requests_and_responses_have_tagged_headers(version: int, answered: str) -> None:
    sent = m.EndTxnRequest(version=version, transactional_id="i", producer_id=1, producer_epoch=0, committed=True)
    [frame] = FrameReader(1000).feed(request_bytes(sent))
    client_id = b"\x00\x06tester"
    assert frame[8 : 16 + (version >= 3)] == client_id + (b"\x00" if version >= 3 else b"")
    request = decode_request(frame, SERVED)
    assert (request.version, request.correlation_id, request.body.transactional_id) == (version, 7, "i")
    (answer,) = encode_response(request, m.EndTxnResponse(error_code=0))
    assert bytes(answer)[8:] == bytes.fromhex(answered)
