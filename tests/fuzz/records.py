"""Fuzz targets for the batch format: headers, records, markers, compression."""

from broker_core.records.batch import read_records
from broker_core.records.compression import Compression, decompress
from broker_core.records.control import parse_end_txn_marker
from broker_core.records.header import BatchHeader, iter_headers
from broker_core.records.validation import iter_record_facts, summarize_records

_LIMIT_BYTES = 1 << 20


def feed_headers(data: bytes) -> None:
    """Iterate over the headers of all batches."""
    end = 0
    for position, header in iter_headers(data):
        assert position >= end, "batches overlap"
        end = position + header.size_bytes
        assert end <= len(data), "a batch extends beyond its buffer"


def feed_records(data: bytes) -> None:
    """Read the records of the first batch with every reader."""
    header = BatchHeader.parse(data)
    summarize_records(data, 0, header, _LIMIT_BYTES)
    facts = list(iter_record_facts(data, 0, header))
    assert len(facts) == len(read_records(data, 0, header)), "two readers disagree on the count"


def feed_control(data: bytes) -> None:
    """Parse a marker."""
    parse_end_txn_marker(data, 0, BatchHeader.parse(data))


def feed_compressed(data: bytes) -> None:
    """Decompress bytes; the first byte selects the codec."""
    if data:
        decompressed = decompress(tuple(Compression)[data[0] % len(Compression)], data[1:], _LIMIT_BYTES)
        assert data[0] % len(Compression) == 0 or len(decompressed) <= _LIMIT_BYTES, "the limit is exceeded"
