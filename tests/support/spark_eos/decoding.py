"""Batches decoded as a whole."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spark_eos.codec.decode import SCHEMA, SCHEMA_WITH_HEADERS, Bytes, Span, decode_slabs


def decode_batches(data: Bytes, spans: Sequence[Span], *, include_headers: bool, **offsets: int) -> Any:
    """Decode as `decode_slabs` does, but return one Arrow table, which is empty when no record is wanted."""
    slabs = list(decode_slabs(data, spans, include_headers=include_headers, **offsets))
    return pa.Table.from_batches(slabs, SCHEMA_WITH_HEADERS if include_headers else SCHEMA).combine_chunks()
