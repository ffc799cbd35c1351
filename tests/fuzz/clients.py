"""Fuzz targets of the Spark side: decoding of records, decisions, options and checkpoints."""

import contextlib
import json
from collections.abc import Callable

from broker_core.records.header import iter_headers
from broker_core.types import TopicPartition
from spark_eos.admin.parsers import parse_properties
from spark_eos.errors import EosKafkaError
from spark_eos.options.positions import parse_assign, parse_offsets, parse_pattern, parse_subscribe, parse_timestamps
from spark_eos.sink.decision import read_part, read_pointer
from spark_eos.source.offsets import from_json_offsets
from tests.support.spark_eos.decoding import decode_batches


def feed_decode(data: bytes) -> None:
    """Decode all batches in the input."""
    spans = list(iter_headers(data))
    if spans:
        first, end = spans[0][1].base_offset, spans[-1][1].next_offset
        rows = decode_batches(data, spans, include_headers=True, first_offset=first, end_offset=end)
        rows.validate(full=True)


def feed_decision(data: bytes) -> None:
    """Parse the input as a decision record and as a pointer."""
    _ignore_refusal(
        lambda text: read_pointer(TopicPartition("topic", 0), 0, text, "fuzz"), data.decode(errors="replace")
    )
    read_part(data, "fuzz")


def feed_options(data: bytes) -> None:
    """Parse the input as each option that users write as text, and as an offset in a checkpoint."""
    text = data.decode(errors="replace")
    parse_properties(text)
    for parse in (parse_assign, parse_subscribe, parse_pattern):
        _ignore_refusal(parse, text)
    _ignore_refusal(lambda each: parse_offsets("startingOffsets", each), text)
    _ignore_refusal(lambda each: parse_timestamps("startingOffsetsByTimestamp", each), text)
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        return
    from_json_offsets(form)


def _ignore_refusal(parse: Callable[[str], object], text: str) -> None:
    """Ignore a refusal, so that the next parser gets the text too."""
    with contextlib.suppress(EosKafkaError):
        parse(text)
