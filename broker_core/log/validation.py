"""Check one batch before it may enter a log, and give it the form the topic wants (facts C.1, rows 13 to 20).

The header answers nearly all of it. Records are looked at where a rule is about records; they are taken apart only to
name the guilty ones, for old timestamps, and when the topic prescribes another compression.
"""

from typing import Final, NamedTuple

from broker_core.config import TopicConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.producer_state import AppendOrigin
from broker_core.records.batch import NewRecord, Record, build_batch, read_records
from broker_core.records.compression import Compression
from broker_core.records.header import HEADER_SIZE, MAGIC, BatchHeader, InvalidBatch, crc_matches
from broker_core.records.validation import validate_records
from broker_core.types import NO_TIMESTAMP, TimestampType

_MAGIC_POSITION: Final = 16
_ANY_AGE: Final = 2**63 - 1
_CODECS: Final = {
    "uncompressed": Compression.NONE, "gzip": Compression.GZIP, "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4, "zstd": Compression.ZSTD,
}


class ValidBatch(NamedTuple):
    """Hold a batch that may be appended, in bytes of our own; `stamp_ms` is set when the broker gives the time."""

    data: bytearray
    header: BatchHeader
    stamp_ms: int | None


def validate_batch(
    data: bytes | bytearray | memoryview, config: TopicConfig, origin: AppendOrigin, now_ms: int
) -> ValidBatch:
    """Return the batch ready to get its offsets; raise the verdict of the first row it fails.

    A `bytearray` is taken over and written to; anything else is copied, once.
    """
    header = _header(data, config, origin)
    stamped = config.message_timestamp_type == "LogAppendTime"
    if origin is AppendOrigin.CLIENT:
        _check_client_header(header)
        _check_records(data, header, config)
        _check_timestamps(data, header, config, None if stamped else now_ms)
        codec = _CODECS.get(config.compression_type)
        if codec is not None and codec is not header.compression:
            data = _recompress(data, header, codec)
            header = BatchHeader.parse(data)
            _check_size(header, config)
    if header.size_bytes > config.segment_bytes:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {header.size_bytes} bytes does not fit a "
                         f"segment of segment.bytes={config.segment_bytes}")
    buffer = data if isinstance(data, bytearray) else bytearray(data)
    if not stamped:
        return ValidBatch(buffer, header, None)
    return ValidBatch(buffer, header._replace(max_timestamp=now_ms), now_ms)


def _header(data: bytes | bytearray | memoryview, config: TopicConfig, origin: AppendOrigin) -> BatchHeader:
    """Parse the header and check that exactly one whole, undamaged batch of allowed size is there."""
    if len(data) > _MAGIC_POSITION and data[_MAGIC_POSITION] != MAGIC:
        raise _invalid(f"magic {data[_MAGIC_POSITION]}; only record batches of magic {MAGIC} are taken")
    try:
        header = BatchHeader.parse(data)
    except InvalidBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if origin is AppendOrigin.CLIENT and header.base_offset != 0:
        raise _invalid(f"base offset {header.base_offset}; a producer's batch begins at 0")
    _check_size(header, config)
    if len(data) > header.size_bytes:
        raise _invalid(f"{len(data) - header.size_bytes} bytes follow the batch; a partition takes one at a time")
    if not crc_matches(data, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size_bytes} bytes, {len(data)} of them here, "
                         f"fails its CRC-32C {header.crc:#010x}; at least {HEADER_SIZE} bytes were expected")
    return header


def _check_size(header: BatchHeader, config: TopicConfig) -> None:
    if header.size_bytes > config.max_message_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {header.size_bytes} bytes is over "
                         f"max.message.bytes={config.max_message_bytes}")


def _check_client_header(header: BatchHeader) -> None:
    count, span = header.record_count, header.last_offset_delta + 1
    if count <= 0 or span <= 0 or count != span:
        raise _invalid(f"the header counts {count} records over {span} offsets")
    if header.is_control:
        raise _invalid("clients may not write control batches")
    if header.has_producer and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} sent base sequence {header.base_sequence}")
    try:
        _ = header.compression
    except InvalidBatch as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None


def _check_records(data: bytes | bytearray | memoryview, header: BatchHeader, config: TopicConfig) -> None:
    compacted = "compact" in config.cleanup_policy
    errors = validate_records(data, 0, header, require_keys=compacted)
    if errors:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"record {errors[0][0]} of the batch: {errors[0][1]}", errors)


def _check_timestamps(
    data: bytes | bytearray | memoryview, header: BatchHeader, config: TopicConfig, now_ms: int | None
) -> None:
    """Refuse timestamps outside the topic's limits around `now_ms`, None when the broker stamps them anyway."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not mark its batch as stamped by the broker")
    if now_ms is None:
        return
    newest = now_ms + config.message_timestamp_after_max_ms
    before = config.message_timestamp_before_max_ms
    if header.max_timestamp <= newest and before == _ANY_AGE:
        return
    oldest = now_ms - before
    errors = [
        (index, f"timestamp {record.timestamp_ms} is not between {oldest} and {newest}")
        for index, record in enumerate(_records(data, header))
        if record.timestamp_ms != NO_TIMESTAMP and not oldest <= record.timestamp_ms <= newest
    ]
    if errors or header.max_timestamp > newest:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"the broker's clock says {now_ms}; the topic takes timestamps "
                         f"up to {before} ms before and {config.message_timestamp_after_max_ms} ms after it", errors)


def _recompress(data: bytes | bytearray | memoryview, header: BatchHeader, codec: Compression) -> bytes:
    records = [
        NewRecord(record.key, record.value, record.headers, record.timestamp_ms)
        for record in _records(data, header)
    ]
    return build_batch(
        records, compression=codec, timestamp_type=header.timestamp_type, producer_id=header.producer_id,
        producer_epoch=header.producer_epoch, base_sequence=header.base_sequence,
        is_transactional=header.is_transactional)


def _records(data: bytes | bytearray | memoryview, header: BatchHeader) -> list[Record]:
    try:
        return read_records(data, 0, header)
    except InvalidBatch as error:
        raise _invalid(str(error)) from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
