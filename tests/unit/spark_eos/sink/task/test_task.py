"""One task's handling of its rows, with a cluster and a producer in memory."""

import contextlib
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from broker_core.records.batch import read_records
from broker_core.records.compression import Compression
from broker_core.records.header import iter_headers
from broker_core.types import TopicPartition
from spark_eos.codec.encoded_batch import EncodedBatch, seal
from spark_eos.errors import AbortableError, DifferentRowsError, OptionError, RecordTooLargeError, TransactionError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.sink.decision import Decision
from spark_eos.sink.messages import AlreadyCommitted, Empty, Place, Prepared
from spark_eos.sink.prepared import WrittenRange
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.rerun_checks import rows_of
from spark_eos.sink.task import writer
from spark_eos.sink.task.batching import gather
from spark_eos.sink.task.identity_pool import IdentityPool, TaskSet
from spark_eos.sink.task.partitioning import DataError
from spark_eos.sink.task.writer import TaskWriter
from tests.support.spark_eos.driving import LogOn
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster


@dataclass
class MemoryTransaction:
    """A producer that keeps values by topic-partition."""

    fail_prepare: bool = False
    identity: OpenTransaction | None = None
    values: dict[TopicPartition, list[bytes | None]] = field(default_factory=dict)
    timestamps: list[int] = field(default_factory=list)
    batches: list[tuple[Compression, int]] = field(default_factory=list)
    expected: set[TopicPartition] = field(default_factory=set)
    aborted: bool = False
    retries: int = 3

    def begin(self, identity: OpenTransaction) -> None:
        self.identity = identity

    def expect(self, topic_partitions: Collection[TopicPartition]) -> None:
        self.expected.update(topic_partitions)

    def send(self, topic_partition: TopicPartition, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            data = seal(batch, producer_id=1, producer_epoch=0, base_sequence=0)
            for position, header in iter_headers(data):
                self.batches.append((header.compression, header.size_bytes))
                for record in read_records(data, position, header):
                    self.values.setdefault(topic_partition, []).append(record.value)
                    self.timestamps.append(record.timestamp_ms)

    def prepare(self) -> tuple[WrittenRange, ...]:
        if self.fail_prepare:
            raise AbortableError("no")
        return tuple(WrittenRange(*place, 0, len(values) - 1, len(values)) for place, values in self.values.items())

    def abort(self) -> None:
        self.aborted = True


PLACE = Place("q", "run2", 4, 1)


def _writer(cluster: MemoryCluster, transaction: MemoryTransaction, topic: str | None = "t") -> TaskWriter:
    return TaskWriter(
        SinkOptions(ClientOptions(("h:1",)), topic=topic, prefix="p", transaction_timeout_ms=60_000),
        PLACE,
        cluster,
        IdentityPool(cluster, "p", "q", "run2", "w"),
        transaction,
        DecisionLog("p", "q", DECISIONS, run="run2"),
    )


def _rows(*values: str, **columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.string()), **columns})


def test_rows_are_prepared_in_order_and_the_transaction_stays_open() -> None:
    cluster, transaction = MemoryCluster(), MemoryTransaction()
    message = _writer(cluster, transaction).write(iter([_rows("a", "b"), _rows(), _rows("c")]))
    assert isinstance(message, Prepared)
    assert transaction.identity is not None and not transaction.aborted
    assert sorted(v for values in transaction.values.values() for v in values if v) == [b"a", b"b", b"c"]
    prepared = message.transaction
    assert (prepared.transactional_id, prepared.split, prepared.record_count) == ("p.q.run2.w.0", 1, 3)
    assert prepared.opened == transaction.identity


def test_the_newest_given_time_of_each_topic_is_reported() -> None:
    at = pa.array([30, 10, 20, 40, 50], pa.timestamp("ms", tz="UTC"))
    topics = pa.array(["a", "a", "b", "b", "a"])
    parts = [_rows(*"vwxy", topic=topics[:4], timestamp=at[:4]), _rows("z", topic=topics[4:], timestamp=at[4:])]
    writer = _writer(MemoryCluster(), MemoryTransaction(), topic=None)
    writer.options = replace(writer.options, buffer_bytes=4)
    assert writer.write(iter(parts)).newest_ms == {"a": 50, "b": 40}
    assert _writer(MemoryCluster(), MemoryTransaction()).write(iter([_rows("a")])).newest_ms == {}


@pytest.mark.parametrize("batches", [[], [_rows()]])
def test_empty_task_begins_no_transaction(batches: list[pa.RecordBatch]) -> None:
    cluster, transaction = MemoryCluster(), MemoryTransaction()
    assert _writer(cluster, transaction).write(iter(batches)) == Empty(Place("q", "run2", 4, 1))
    assert cluster.ids == {} and transaction.identity is None


def test_failing_task_aborts_its_transaction() -> None:
    transaction = MemoryTransaction(fail_prepare=True)
    with pytest.raises(AbortableError):
        _writer(MemoryCluster(), transaction).write(iter([_rows("a")]))
    assert transaction.aborted


def test_invalid_first_row_begins_no_transaction_and_a_later_one_aborts() -> None:
    topics = pa.array(["t"]), pa.array([None], pa.string())
    for order, begun in ((topics, True), (topics[::-1], False)):
        cluster, transaction = MemoryCluster(), MemoryTransaction()
        writer = _writer(cluster, transaction, topic=None)
        writer.options = replace(writer.options, max_request_bytes=10_000_000)
        wide = "x" * 9_000_000
        with pytest.raises(DataError):
            writer.write(iter([_rows(wide, topic=order[0]), _rows(wide, topic=order[1])]))
        assert (transaction.identity is not None, transaction.aborted) == (begun, begun)


@pytest.mark.parametrize("name", [b"", b" ", b"a b", b"..", b"x" * 250, b"no \xff text"])
def test_value_of_the_topic_column_that_is_no_name_is_refused(name: bytes) -> None:
    cluster, transaction = MemoryCluster(), MemoryTransaction()
    shown = name.decode(errors="replace")
    with pytest.raises(DataError, match=rf"column 'topic' has the value {shown!r}, which cannot be.*filter the rows"):
        _writer(cluster, transaction, topic=None).write(
            iter([_rows("a", "b", topic=pa.array([b"t", name]).view(pa.string()))])
        )
    assert not cluster.calls or "topics" not in " ".join(cluster.calls)


@pytest.mark.parametrize("in_column", [True, False])
def test_rows_for_the_decision_topic_are_refused(in_column: bool) -> None:
    """It is compacted, so rows with equal keys would vanish one after the other."""
    writer = _writer(MemoryCluster(), MemoryTransaction(), topic=None if in_column else DECISIONS)
    rows = _rows("a", topic=pa.array([DECISIONS])) if in_column else _rows("a")
    with pytest.raises(DataError, match=f"rows for '{DECISIONS}', where this sink writes its decisions"):
        writer.write(iter([rows]))


# The Java client's estimate for a value alone: 61 of a batch, 21 of a record, 1 of the key, 2 of the length, 1 of the
# number of headers.
@pytest.mark.parametrize(("spare", "is_refused"), [(0, False), (1, True)])
def test_record_above_max_request_size_is_refused_as_by_the_java_client(spare: int, is_refused: bool) -> None:
    transaction = MemoryTransaction()
    writer = _writer(MemoryCluster(), transaction)
    writer.options = replace(writer.options, max_request_bytes=2_000, compression=Compression.GZIP)
    rows = _rows("a", "x" * (2_000 - 61 - 21 - 1 - 2 - 1 + spare))
    if not is_refused:
        assert isinstance(writer.write(iter([rows])), Prepared)
        return
    with pytest.raises(RecordTooLargeError, match="record is 2001 bytes.*larger than 2000, the value of kafka.max.req"):
        writer.write(iter([rows]))
    assert transaction.aborted


def test_timestamps_use_milliseconds_and_nulls_become_now() -> None:
    cluster, transaction = MemoryCluster(), MemoryTransaction()
    # The source reads a record without a time, which Kafka stores as -1 ms, as the last millisecond of 1969.
    column = pa.array([1_234_567, None, -1_000], pa.timestamp("us", tz="UTC"))
    _writer(cluster, transaction).write(iter([_rows("a", "b", "c", timestamp=column)]))
    assert transaction.timestamps == [1_234, cluster.now_ms, -1]


@pytest.mark.parametrize(
    ("at_us", "text"), [(-1_001, "1969-12-31 23:59:59"), (-62_135_596_800_000_000, "1-01-01 00:00:00")]
)
def test_timestamp_before_1970_is_refused_as_by_the_java_client(at_us: int, text: str) -> None:
    cluster, transaction = MemoryCluster(), MemoryTransaction()
    column = pa.array([5_000, at_us, None], pa.timestamp("us", tz="UTC"))
    with pytest.raises(DataError, match=f"column 'timestamp' has the value {text} UTC, which is before 1970.*null"):
        _writer(cluster, transaction).write(iter([_rows("a", "b", "c", timestamp=column)]))
    assert transaction.identity is None


def test_batch_size_codec_and_level_come_from_the_options() -> None:
    text = "".join(chr(97 + (number * number) % 26) for number in range(3_000))
    sizes: dict[int | None, int] = {}
    for level in (1, 9):
        transaction = MemoryTransaction()
        writer = _writer(MemoryCluster(), transaction)
        writer.options = replace(
            writer.options, batch_bytes=4_000, compression=Compression.GZIP, compression_level=level
        )
        writer.write(iter([_rows(*[text] * 4)]))
        assert [codec for codec, _ in transaction.batches] == [Compression.GZIP] * 4, "one row in each batch"
        sizes[level] = sum(size_bytes for _, size_bytes in transaction.batches)
    assert sizes[9] < sizes[1] < 4 * len(text)


def test_rows_are_placed_by_the_count_that_the_driver_took_for_all_tasks() -> None:
    """The topic has grown since the driver planned the micro-batch; only a row that names a new partition uses it."""
    cluster, transaction = MemoryCluster(partitions=7), MemoryTransaction()
    writer = _writer(cluster, transaction)
    writer.options = replace(writer.options, partition_count=2)
    keys = pa.array([b"%d" % number for number in range(50)], pa.binary())
    writer.write(iter([_rows(*"v" * 50, key=keys)]))
    assert {place.partition for place in transaction.values} == {0, 1}
    assert [call for call in cluster.calls if call.startswith("topics")] == []
    named = pa.array([5] + [None] * 49, pa.int32())
    writer.write(iter([_rows(*"v" * 50, key=keys, partition=named)]))
    assert {place.partition for place in transaction.values} == {0, 1, 5}
    with pytest.raises(DataError, match="the value 7 for topic 't', which has 7 partitions"):
        writer.write(iter([_rows("v", partition=pa.array([7], pa.int32()))]))


def _decide(cluster: MemoryCluster, micro_batch: int, lost: Sequence[int] = (), write: str = "") -> None:
    transactions = tuple(cluster.prepare(f"p.q.run1.w{split}.0", split) for split in (0, 1))
    log = LogOn(cluster, "p", "q", DECISIONS)
    log.decide(Decision("p", "q", "run1", micro_batch, 1, 2, 0, transactions, write=write), log.take_over())
    for split in lost:
        cluster.time_out(f"p.q.run1.w{split}.0")


class _Untouchable(Iterator[pa.RecordBatch]):
    def __next__(self) -> pa.RecordBatch:
        raise AssertionError("the input was read")


def test_decided_micro_batch_is_completed_and_its_rows_are_read_without_writing() -> None:
    cluster, transaction = MemoryCluster(), MemoryTransaction()
    _decide(cluster, 4)
    message = _writer(cluster, transaction).write(iter([_rows("a", "b"), _rows("c")]))
    [rows] = rows_of(message)
    assert isinstance(message, AlreadyCommitted) and (rows.topic, rows.record_count) == ("t", 3)
    assert transaction.identity is None
    [written] = rows_of(_writer(MemoryCluster(), MemoryTransaction()).write(iter([_rows("c"), _rows("b", "a")])))
    assert written == rows


def test_task_of_a_rolled_back_checkpoint_stops_without_dropping_rows(cluster: MemoryCluster) -> None:
    _decide(cluster, 5)
    with pytest.raises(TransactionError, match=r"micro-batch 4 .* micro-batch 5 is already decided, by run run1"):
        _writer(cluster, MemoryTransaction()).write(iter([_rows("a")]))


def test_skipped_job_is_logged_as_a_warning_with_the_older_run(caplog: pytest.LogCaptureFixture) -> None:
    cluster = MemoryCluster()
    _decide(cluster, 4)
    writer = _writer(cluster, MemoryTransaction())
    writer.options = replace(writer.options, job_id="q")
    with caplog.at_level(logging.WARNING):
        writer.write(iter([]))
    assert "decided by run run1 at 1970-01-01 00:00:00 UTC" in caplog.text


@pytest.mark.parametrize("job_id", ["q", None])
def test_decided_name_with_another_topic_is_refused_before_reading_rows(job_id: str | None) -> None:
    cluster = MemoryCluster()
    _decide(cluster, 4)
    writer = _writer(cluster, MemoryTransaction(), topic="another")
    writer.options = replace(writer.options, job_id=job_id)
    with pytest.raises(DifferentRowsError, match=r"already written, to topic 't'; now .* to topic 'another'"):
        writer.write(_Untouchable())


@pytest.mark.parametrize(
    ("run", "write", "decided", "is_refused"),
    [
        ("run1", "second", "first", True),
        ("run1", "first", "first", False),
        ("run2", "second", "first", False),
        ("run1", "", "first", False),
        ("run1", "second", "", False),
    ],
)
def test_second_write_under_one_name_in_one_run_is_refused(
    run: str, write: str, decided: str, is_refused: bool
) -> None:
    cluster = MemoryCluster()
    _decide(cluster, 4, write=decided)
    writer = _writer(cluster, MemoryTransaction())
    writer.place = Place("q", run, 4, 1, write)
    if is_refused:
        with pytest.raises(OptionError, match=r"already written under the name .*option\(\"writeName\""):
            writer.write(_Untouchable())
    else:
        assert isinstance(writer.write(iter([_rows("a")])), AlreadyCommitted)


@pytest.mark.parametrize("decided", [3, 4], ids=["the micro-batch before", "this micro-batch, all of it lost"])
def test_decision_without_rows_of_this_micro_batch_lets_the_task_write(cluster: MemoryCluster, decided: int) -> None:
    _decide(cluster, decided, lost=(0, 1))
    assert isinstance(_writer(cluster, MemoryTransaction()).write(iter([_rows("a")])), Prepared)


def test_chunks_are_joined_and_cut_to_size_without_loss() -> None:
    small = [_rows(str(n), junk=pa.array([n])) for n in range(100)]
    chunks = list(gather(iter(small), 50))
    assert [v for chunk in chunks for v in chunk.column("value").to_pylist()] == [str(n) for n in range(100)]
    assert 3 < len(chunks) < 50 and chunks[0].schema.names == ["value"]
    cut = list(gather(iter([_rows(*("x" * 1000 for _ in range(100)))]), 10_000))
    assert len(cut) >= 10 and sum(chunk.num_rows for chunk in cut) == 100


def test_keyless_rows_do_not_wait_for_a_partition_without_a_leader() -> None:
    cluster, transaction = MemoryCluster(), MemoryTransaction()
    cluster.leaderless = {0, 1, 3}
    writer = _writer(cluster, transaction)
    writer.options = replace(writer.options, batch_bytes=1_000)
    writer.write(iter([_rows(*map(str, range(5_000)))]))
    assert set(transaction.values) == {TopicPartition("t", 2)}


def test_only_flushed_records_count_as_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, TaskSet]] = []
    monkeypatch.setattr(IdentityPool, "note_prepared", lambda _, name, ranges, stage: noted.append((name, stage)))
    for fails in (True, False):
        writer = _writer(MemoryCluster(), MemoryTransaction(fail_prepare=fails))
        writer.task_set = TaskSet(3, 0, None)
        with pytest.raises(AbortableError) if fails else contextlib.nullcontext():
            writer.write(iter([_rows("a")]))
        assert noted == ([] if fails else [("p.q.run2.w.0", TaskSet(3, 0, None))])


def test_task_that_takes_long_logs_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster
) -> None:
    monkeypatch.setattr(writer, "CHUNK_BYTES", 1)

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(8):
            cluster.pass_time(20_000)
            yield pa.record_batch({"value": pa.array([b"row"], pa.binary())})

    with caplog.at_level(logging.INFO):
        _writer(cluster, MemoryTransaction()).write(rows())
    assert re.findall(r"task .*: (\d+) records? so far, in (\d+) s", caplog.text) == [
        ("3", "40"),
        ("5", "80"),
        ("7", "120"),
    ]
