"""A request is measured against its schema before it is decoded, so that hostile bytes need little time and memory."""

import struct
from uuid import UUID

import pytest

from broker_core.broker.apis import SERVED
from broker_core.wire import messages as m
from broker_core.wire.framing import MalformedFrame, decode_request
from tests.support.broker_core.full_requests import full_requests
from tests.support.function_calls import count_calls

MEGABYTE = 1 << 20
# Each of the attacks took seconds to hours before; an honest request costs as much.
CALLS_FOR_A_BYTE, CALLS = 4, 200
METADATA, HEARTBEAT, INIT = 3, 12, 22


def header(api_key: int, version: int, tags: bytes = b"\0") -> bytes:
    return struct.pack(">hhih", api_key, version, 1, 1) + b"c" + tags


ENDLESS = b"\xff" * MEGABYTE
# Tagged fields with different numbers and without content.
MANY_TAGS = b"".join(bytes((each & 0x7F | 0x80, each >> 7 & 0x7F | 0x80, each >> 14, 0)) for each in range(1, 1 << 14))
ATTACKS = {
    "an endless length in the header": header(METADATA, 9, ENDLESS),
    "missing tagged fields in the header": header(METADATA, 9, b"\xff\xff\xff\xff\x07"),
    "an endless count": header(METADATA, 9) + ENDLESS,
    "a count of 2^31": header(METADATA, 9) + b"\xff\xff\xff\xff\x0f" + bytes(MEGABYTE),
    "a count of 2^31 in the old encoding": header(METADATA, 8)[:-1] + b"\x7f\xff\xff\xff" + bytes(MEGABYTE // 32),
    "a negative count": header(METADATA, 1)[:-1] + b"\xff\xff\xff\xfe",
    "a string longer than the rest of the frame": header(HEARTBEAT, 4) + b"\xff\x01" + b"g",
    "a string that is too long": header(HEARTBEAT, 4) + b"\x81\x80\x02" + b"g" * (1 << 15) + bytes(MEGABYTE),
    "null in a field that is not nullable": header(HEARTBEAT, 4) + b"\0" + bytes(100),
    "null in a field that is not nullable, in the old encoding": header(HEARTBEAT, 3)[:-1] + b"\xff\xff" + bytes(100),
    "a million sets of tagged fields": header(METADATA, 9)
    + b"\x81\x89\x7a"
    + (b"\x02t" + b"\x01" + b"\x01\x00") * 250_000,
    "endless tagged fields": header(INIT, 4) + b"\0" + struct.pack(">iqh", 1, -1, -1) + ENDLESS,
}


def cost_of(frame: bytes) -> tuple[int, list[str]]:
    """Return how many functions are called until a request is refused, and the errors."""
    errors = []

    def refuse() -> None:
        try:
            decode_request(frame, SERVED)
        except MalformedFrame as error:
            errors.append(str(error))

    return count_calls(refuse, builtins=True), errors


@pytest.mark.parametrize("name", ATTACKS)
def test_request_with_a_false_length_is_refused_immediately(name: str) -> None:
    calls, [error] = cost_of(ATTACKS[name])
    assert calls < CALLS_FOR_A_BYTE * len(ATTACKS[name]) + CALLS
    assert len(error) < 500


def test_cost_of_many_tagged_fields_is_bounded() -> None:
    # The last field is missing, so the check walks over all of them.
    frame = header(METADATA, 9, b"\xff\x7f" + MANY_TAGS) + bytes(4)
    calls, errors = cost_of(frame)
    assert len(errors) == 1 and calls < CALLS_FOR_A_BYTE * len(frame) + CALLS


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_every_request_matches_its_layout_and_no_prefix_does(api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        make = full_requests(version, UUID(int=7)).get(api.name)
        if make is None:
            continue
        body = make().encode(version=version)
        flexible = api.request.flexible_version_q(version)
        head = header(api.key, version, b"\0" if flexible else b"")
        assert decode_request(head + body, SERVED).api is api
        for end in range(0, len(body), max(1, len(body) // 40)):
            with pytest.raises(MalformedFrame):
                decode_request(head + body[:end], SERVED)


def test_unknown_tagged_field_is_skipped() -> None:
    body = m.MetadataRequest(topics=None).encode(version=9)
    assert decode_request(header(METADATA, 9, b"\x01\x63\x02ab") + body, SERVED).client_id == "c"
    assert decode_request(header(METADATA, 9) + body[:-1] + b"\x01\x63\x02ab", SERVED).body.topics is None
