"""The times of records as Spark's timestamps."""

import pyarrow as pa
import pytest

from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.header import BatchHeader
from broker_core.types import TopicPartition
from spark_eos.codec.decode import decode_slabs
from spark_eos.errors import BrokerError
from spark_eos.source.schema import LATEST_MS, in_microseconds

T7 = TopicPartition("t", 7)


def decoded(*times_ms: int) -> pa.RecordBatch:
    data = build_batch([NewRecord(None, b"v", (), each) for each in times_ms], base_offset=40)
    [columns] = decode_slabs(
        data, [(0, BatchHeader.parse(data))], include_headers=False, first_offset=0, end_offset=100
    )
    return columns


@pytest.mark.parametrize("time_ms", [0, -1, -1_500, 1_790_000_000_000, LATEST_MS, -LATEST_MS])
def test_milliseconds_become_microseconds(time_ms: int) -> None:
    assert in_microseconds(decoded(time_ms), T7).cast(pa.int64()).to_pylist() == [time_ms * 1_000]


@pytest.mark.parametrize("time_ms", [1_790_000_000_000_000_000, LATEST_MS + 1, -LATEST_MS - 1, 2**63 - 1, -(2**63)])
def test_a_time_beyond_sparks_timestamp_is_an_error_that_names_the_record(time_ms: int) -> None:
    with pytest.raises(BrokerError, match=rf"offset 41 of t-7 has the time {time_ms},.*from 42 "):
        in_microseconds(decoded(0, time_ms, 6, time_ms), T7)
