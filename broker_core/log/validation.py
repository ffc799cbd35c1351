"""The checks of one batch before it may enter a log, and the form the topic wants it in (rules C.1/13 to C.1/19).

The header and a fast scan of all records answer most checks. Records are checked one by one only to identify invalid
ones, and decoded only if the topic requires another compression.

The size of a compressed batch does not limit its work, and one thread serves all clients. So it may have no more
records than an uncompressed one could, and decompress to at most a hundred times that size. Kafka has no such limit;
its error for a batch that is too large makes Java's producer split the batch and send it again.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple, Self

from broker_core.config import TopicConfig
from broker_core.errors import DecompressedTooLarge, ErrorCode, InvalidBatch, KafkaError, UnreadableRecords
from broker_core.log.producer_state import AppendOrigin
from broker_core.records.batch import DECOMPRESSED_LIMIT_BYTES, NewRecord, build_batch, read_records
from broker_core.records.compression import Compression
from broker_core.records.header import HEADER_SIZE, MAGIC, MAGIC_POSITION, BatchHeader, crc_matches, write_timestamps
from broker_core.records.validation import RecordFacts, iter_record_facts, summarize_records
from broker_core.types import NO_TIMESTAMP, TimestampType, counted

_SMALLEST_RECORD_BYTES: Final = 7
_MOST_EXPANSION: Final = 100
# The lowest limit, also for topics whose own limit is lower: what costs little elsewhere costs little there.
_LEAST_LIMIT_BYTES: Final = TopicConfig().max_message_bytes
# A longer list helps no reader, and it would make an answer larger than the request.
_MOST_NAMED: Final = 100
_ANY_AGE: Final = 2**63 - 1
_NO_KEY: Final = "a compacted topic takes no record without a key"
_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def is_stamped(config: TopicConfig) -> bool:
    """Return whether batches get the time of their append."""
    return config.message_timestamp_type == "LogAppendTime"


def validate_batch(
    data: bytes | bytearray | memoryview,
    config: TopicConfig,
    origin: AppendOrigin,
    now_ms: int,
    header: BatchHeader | None = None,
) -> tuple[bytearray, BatchHeader, int | None]:
    """Return the batch ready to get its offsets, its header, and the time if the broker gives it.

    Raises the error of the first row it fails. A `bytearray` is taken over and written to; anything else is copied,
    once. `header` is the batch's, if the caller has read it already.
    """
    if header is None:
        header = _read_header(data)
    stamped = is_stamped(config)
    max_timestamp = header.max_timestamp
    if origin is AppendOrigin.COORDINATOR:
        # The coordinator has just built it, so it is whole and undamaged, and its header is true of its records.
        is_restamped = False
    else:
        _check_frame(data, header, config)
        _check_client_header(header, config)
        max_timestamp = _check_records(data, header, config, None if stamped else now_ms)
        codec = _CODECS.get(config.compression_type)
        if codec is not None and codec is not header.compression:
            data = _recompress(data, header, codec, config.compression_level(config.compression_type))
            header = BatchHeader.parse(data)
        is_restamped = header.max_timestamp != max_timestamp or header.timestamp_type is not TimestampType.CREATE_TIME
    if len(data) > config.max_message_bytes:
        raise _over_max_message_bytes(len(data), config)
    buffer = data if isinstance(data, bytearray) else bytearray(data)
    if stamped:
        return buffer, header._replace(max_timestamp=now_ms), now_ms
    if is_restamped:
        # Indexes, retention and producers go by the header, so it has to say what is true of the records.
        header = write_timestamps(buffer, 0, header, TimestampType.CREATE_TIME, max_timestamp)
    return buffer, header, None


def _read_header(data: bytes | bytearray | memoryview) -> BatchHeader:
    if len(data) > MAGIC_POSITION and data[MAGIC_POSITION] != MAGIC:
        raise _invalid(f"magic {data[MAGIC_POSITION]}; only record batches of magic {MAGIC} are accepted")
    try:
        return BatchHeader.parse(data)
    except InvalidBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def _check_frame(data: bytes | bytearray | memoryview, header: BatchHeader, config: TopicConfig) -> None:
    if header.base_offset != 0:
        raise _invalid(f"base offset {header.base_offset}; a producer's batch begins at 0")
    size_bytes = header.size_bytes
    if size_bytes > config.max_message_bytes:
        raise _over_max_message_bytes(size_bytes, config)
    if len(data) > size_bytes:
        raise _invalid(
            f"{counted(len(data) - size_bytes, 'byte')} after the batch; a partition accepts one batch at a time"
        )
    if not crc_matches(data, 0, header):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch of {size_bytes} bytes, {len(data)} of them here, "
            f"fails its CRC-32C {header.crc:#010x}; at least {HEADER_SIZE} bytes were expected",
        )


def _over_max_message_bytes(size_bytes: int, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size_bytes} bytes is over max.message.bytes={config.max_message_bytes}",
    )


def _largest_plain_bytes(config: TopicConfig) -> int:
    return max(config.max_message_bytes, _LEAST_LIMIT_BYTES)


def _check_client_header(header: BatchHeader, config: TopicConfig) -> None:
    try:
        codec = header.compression
    except InvalidBatch as error:
        raise _unreadable(error) from None
    count, span = header.record_count, header.last_offset_delta + 1
    if count <= 0 or span <= 0 or count != span:
        raise _invalid(f"the header counts {count} records over {span} offsets")
    if header.is_control:
        raise _invalid("clients may not write control batches")
    if header.has_producer and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} sent base sequence {header.base_sequence}")
    if codec is Compression.NONE:
        return
    most = _largest_plain_bytes(config) // _SMALLEST_RECORD_BYTES
    if count > most:
        raise _too_large(
            f"a compressed batch of {count} records; at most {most} are accepted, as many as an "
            "uncompressed batch can hold"
        )


def _check_records(
    data: bytes | bytearray | memoryview, header: BatchHeader, config: TopicConfig, now_ms: int | None
) -> int:
    """Return the largest timestamp of the records; `now_ms` is None when the broker stamps them."""
    try:
        limit_bytes = min(
            _MOST_EXPANSION * _largest_plain_bytes(config),
            config.max_decompressed_message_bytes,
            DECOMPRESSED_LIMIT_BYTES,
        )
        summary = summarize_records(data, 0, header, limit_bytes)
    except DecompressedTooLarge as too_large:
        raise _too_large(str(too_large)) from None
    except UnreadableRecords as unreadable:
        raise _unreadable(unreadable) from None
    except InvalidBatch as invalid:
        raise _invalid(str(invalid)) from None
    limits = _Limits.of(config, header, now_ms)
    if (summary.all_have_keys or not limits.need_keys) and (
        limits.oldest_ms <= summary.min_timestamp_ms <= summary.max_timestamp_ms <= limits.newest_ms
    ):
        return summary.max_timestamp_ms
    errors = list(islice(_refused_records(data, header, limits), _MOST_NAMED))
    if not errors:
        # The smallest timestamp came from a record that has none.
        return summary.max_timestamp_ms
    code = ErrorCode.INVALID_RECORD if all(problem == _NO_KEY for _, problem in errors) else ErrorCode.INVALID_TIMESTAMP
    refused = f"{len(errors)}" if len(errors) < _MOST_NAMED else f"{len(errors)} or more"
    raise KafkaError(
        code,
        f"{refused} of the batch's {counted(header.record_count, 'record')} refused, the first of them, number "
        f"{errors[0][0]}: {errors[0][1]}",
        errors,
    )


def _refused_records(
    data: bytes | bytearray | memoryview, header: BatchHeader, limits: "_Limits"
) -> Iterator[tuple[int, str]]:
    # Not as an expression: mypyc makes a list of it, and there may be millions.
    for index, record in enumerate(iter_record_facts(data, 0, header)):
        problem = limits.judge(record)
        if problem is not None:
            yield index, problem


class _Limits(NamedTuple):
    """The topic's limits for each record; its timestamp, if it has one, must be in [oldest_ms, newest_ms]."""

    need_keys: bool
    oldest_ms: int
    newest_ms: int
    forbid_stamps: bool = False

    @classmethod
    def of(cls, config: TopicConfig, header: BatchHeader, now_ms: int | None) -> Self:
        """Return the limits in the topic's settings; `now_ms` is None if the broker stamps the records."""
        need_keys = "compact" in config.cleanup_policy
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME and (
            now_ms is None or header.max_timestamp == NO_TIMESTAMP
        ):
            return cls(need_keys, 1, 0, forbid_stamps=True)
        if now_ms is None:
            return cls(need_keys, -_ANY_AGE - 1, _ANY_AGE)
        return cls(
            need_keys, now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
        )

    def judge(self, record: RecordFacts) -> str | None:
        if self.need_keys and not record.has_key:
            return _NO_KEY
        if self.forbid_stamps:
            return "a producer must not set the timestamp type LogAppendTime"
        if self.oldest_ms <= record.timestamp_ms <= self.newest_ms or record.timestamp_ms == NO_TIMESTAMP:
            return None
        return (
            f"timestamp {record.timestamp_ms} is not between {self.oldest_ms} and {self.newest_ms}, the bounds "
            "of the topic's settings at the broker's present time"
        )


def _recompress(
    data: bytes | bytearray | memoryview, header: BatchHeader, codec: Compression, level: int | None
) -> bytes:
    read = read_records(data, 0, header)
    records = [NewRecord(record.key, record.value, record.headers, record.timestamp_ms) for record in read]
    return build_batch(
        records,
        compression=codec,
        compression_level=level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _too_large(message: str) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{message}; send smaller batches")


def _unreadable(error: InvalidBatch) -> KafkaError:
    # Kafka has no verdict for this: it meets it as an error of its own.
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
