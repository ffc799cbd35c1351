"""Answers that leave out what was requested, as brokers send that lag behind others or have a fault."""

import struct
from typing import Any, Final

from broker_core.broker.apis import SERVED
from broker_core.wire.layout import answer_has_tags

_API = struct.Struct(">hh")
_CORRELATION_BYTES = 4
# The lists of the requested items, by API; an old version has another one.
ITEMS: Final = {
    0: ("responses",),
    1: ("responses",),
    2: ("topics",),
    3: ("topics",),
    9: ("topics",),
    10: ("coordinators",),
    24: ("results_by_transaction", "results_by_topic_v3_and_below"),
    28: ("topics",),
    65: ("transaction_states",),
}


def without_items(request: bytes, answer: bytes) -> bytes:
    """Return an answer without the items that were requested; both have a header and no length."""
    api_key, version = _API.unpack_from(request)
    kind: Any = SERVED[api_key].response
    start = _CORRELATION_BYTES + answer_has_tags(kind, version)
    body = kind.decode(memoryview(answer)[start:], version=version)
    # kafka-python's decoder leaves it unset, and its encoder needs it.
    body._header = None
    # OffsetFetch has a list for each group.
    for part in [body, *(getattr(body, "groups", None) or ())]:
        for name in ITEMS[api_key]:
            if getattr(part, name, None):
                setattr(part, name, [])
    return answer[:start] + bytes(body.encode(version=version))
