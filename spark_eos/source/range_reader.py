"""The reader of one planned range in a task, which returns Arrow batches for Spark."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.errors import InvalidBatch
from broker_core.records.header import BatchHeader
from broker_core.types import NO_LEADER_EPOCH, TopicPartition
from spark_eos import failpoints
from spark_eos.client.aborted_filter import visible_in
from spark_eos.client.fetch import FetchedChunk, Gone, OffsetsGoneError, RangeFetch
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import LogPoint, PartitionPlace
from spark_eos.codec.arrow_numbers import arrow_numbers
from spark_eos.codec.decode import decode_slabs
from spark_eos.errors import BrokerError, UnansweredError
from spark_eos.options.client import ClientOptions
from spark_eos.options.source import SourceOptions
from spark_eos.runtime import ProcessState, Runtime, process_state
from spark_eos.source.data_loss import DataLoss, DataLossPolicy
from spark_eos.source.offsets import OffsetRange
from spark_eos.source.schema import ARROW_HEADERS, arrow_schema, in_microseconds
from spark_eos.transactions.judge import name_blocker

logger = logging.getLogger(__name__)

# The rows decoded at once: enough for columns to pay off, few enough for a worker's memory after decompression.
_DECODED_ROWS: Final = 65_536
_DECODED_BYTES: Final = 4 * 1024 * 1024
# Long before brokers close idle connections (connections.max.idle.ms).
_LONGEST_IDLE_SECONDS: Final = 60.0
_MOST_IDLE: Final = 8

Spans = list[tuple[int, BatchHeader]]


def read_range(
    piece: OffsetRange, options: SourceOptions, process: ProcessState | None = None, *, is_last: bool = True
) -> Iterator[pa.RecordBatch]:
    """Read a range; if none follows it and its log was truncated, with what the current log has in its place."""
    losses = DataLossPolicy(options.fail_on_data_loss)
    failpoints.reach("source.before_read")
    with task_client(process or process_state(), options.client) as client:
        place = PartitionPlace(piece.topic_id, piece.leader_id, piece.leader_epoch)
        planned = LogPoint(piece.end_epoch, piece.end)
        fetch = RangeFetch(client, piece.topic_partition, place, options.isolation, options.fetch, planned)
        position, end = piece.start, piece.end
        while position < end:
            try:
                # Damage behind the range stops no read that ends before it.
                for chunk in fetch.chunks(position, end, until=end):
                    yield from _rows(chunk, piece, options)
                    failpoints.reach("source.mid_read")
                return
            except UnansweredError as error:
                if not fetch.is_hidden:
                    raise
                # The plan ended before any open transaction. An unclean election since then has lost a marker.
                remedy = name_blocker(client, piece.topic_partition)
                raise UnansweredError(error.happened, checked=error.checked, remedy=remedy) from error
            except OffsetsGoneError as gone:
                position, until = _after_loss(gone, piece, losses)
                # A driver that has planned with an epoch finds the cut, too: its next micro-batch begins there.
                if gone.cut_at is not None and piece.end_epoch > NO_LEADER_EPOCH and not is_last:
                    until = min(until, gone.cut_at)
                end = min(end, until)


def _after_loss(gone: OffsetsGoneError, piece: OffsetRange, losses: DataLossPolicy) -> tuple[int, int]:
    """Report a loss; if the user has chosen to continue, return the range to continue with."""
    log = "the topic has no log"
    if gone.log_start_offset is not None:
        log = f"the log has offsets [{gone.log_start_offset}, {gone.end_offset})"
    what = f"offset {gone.position} cannot be read"
    if gone.reason is Gone.LOG_TRUNCATED:
        what = f"the records from offset {gone.log_start_offset if gone.cut_at is None else gone.cut_at} are gone"
    losses.report(DataLoss.COULD_NOT_READ_OFFSET_RANGE, f"wanted {piece}, {what} because {gone.reason.value}; {log}")
    if gone.log_start_offset is None or gone.end_offset is None:
        return piece.end, piece.end
    if gone.reason is Gone.LOG_TRUNCATED:
        # Records that were read are not read again, and the new log may be shorter than the old one.
        return max(gone.position, gone.log_start_offset), min(piece.end, gone.end_offset)
    return (piece.end if gone.log_start_offset <= gone.position else gone.log_start_offset), piece.end


def _rows(chunk: FetchedChunk, piece: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    try:
        # The decoder leaves out what is before the position or after the end.
        for spans in _portions(visible_in(chunk)):
            for columns in decode_slabs(
                chunk.data,
                spans,
                include_headers=options.include_headers,
                first_offset=chunk.position,
                end_offset=piece.end,
            ):
                yield _to_spark(columns, piece.topic_partition, options.include_headers)
    except InvalidBatch as error:
        raise BrokerError(
            f"A record batch of {piece.topic_partition} between offsets {chunk.position} and {chunk.next_position} "
            f"cannot be read: {error}",
            checked="The bytes were read exactly as the broker sent them",
            remedy="Read it with another client to check whether the log is corrupt",
        ) from error


def _portions(spans: Iterable[tuple[int, BatchHeader]]) -> Iterator[Spans]:
    portion: Spans = []
    rows = size_bytes = 0
    for span in spans:
        # Many topics have batches of one record, so this runs for every row.
        _, header = span
        rows += header.record_count
        size_bytes += header.batch_length
        if (rows > _DECODED_ROWS or size_bytes > _DECODED_BYTES) and portion:
            yield portion
            portion, rows, size_bytes = [], header.record_count, header.batch_length
        portion.append(span)
    if portion:
        yield portion


def _to_spark(columns: pa.RecordBatch, topic_partition: TopicPartition, include_headers: bool) -> pa.RecordBatch:
    """Add the columns that are the same in every row and convert the others to the types that Spark requires."""
    count = columns.num_rows
    arrays = [
        columns.column("key"),
        columns.column("value"),
        _repeated(topic_partition.topic.encode(), count),
        arrow_numbers(np.full(count, topic_partition.partition, np.int32)),
        columns.column("offset"),
        in_microseconds(columns, topic_partition),
        columns.column("timestamp_type"),
    ]
    if include_headers:
        arrays.append(columns.column("headers").cast(ARROW_HEADERS))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(include_headers))


def _repeated(text: bytes, count: int) -> pa.Array:
    ends = np.arange(0, len(text) * count + 1, len(text), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)])


class _IdleClient(NamedTuple):
    options: ClientOptions
    client: KafkaClient
    since: float


class _IdleClients:
    """The clients that no task of a process is using."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._idle: list[_IdleClient] = []

    def take(self, options: ClientOptions) -> KafkaClient:
        now = self._runtime.clock.monotonic()
        for each in list(self._idle):
            if now - each.since > _LONGEST_IDLE_SECONDS:
                self._idle.remove(each)
                each.client.close()
        # The one used last: its connections are the most recent, and the others become idle.
        for each in reversed(self._idle):
            if each.options == options:
                self._idle.remove(each)
                return each.client
        return KafkaClient(options, self._runtime)

    def give_back(self, options: ClientOptions, client: KafkaClient) -> None:
        self._idle.append(_IdleClient(options, client, self._runtime.clock.monotonic()))
        while len(self._idle) > _MOST_IDLE:
            self._idle.pop(0).client.close()


@contextmanager
def task_client(process: ProcessState, options: ClientOptions) -> Iterator[KafkaClient]:
    """Provide a client that nothing else uses at the same time; close one that failed or was left in mid-use.

    Clients are kept for the next tasks of the process. A task with its own client opens two connections and sends four
    requests before it fetches anything, which costs more than the fetch of a small range, and a micro-batch has a task
    for each partition.
    """
    idle = process.part(_IdleClients)
    client = idle.take(options)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    idle.give_back(options, client)
