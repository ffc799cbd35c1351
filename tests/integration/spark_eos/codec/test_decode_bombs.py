"""The source reports a decompression bomb once and at a bounded cost."""

from typing import Any, Final

import pytest

from broker_core import EmbeddedBroker
from broker_core.log.producer_state import AppendOrigin
from broker_core.records.compression import Compression
from broker_core.types import TopicPartition
from spark_eos.errors import BrokerError
from spark_eos.options.source import batch_options
from spark_eos.source.offsets import OffsetRange
from spark_eos.source.range_reader import read_range
from tests.support.spark_eos.decode_bombs import CODECS, MIB, TINY, bomb, cost

SOURCE_BOMBS: Final = {
    "surplus": (TINY, 1),
    "zeros": (b"", 1),
    "huge-record": (b"\xfe\xff\xff\xff\x0f", 1),
    "more-records": (TINY, 2**31 - 1),
}


@pytest.mark.parametrize("codec", CODECS)
def test_source_reports_a_decompression_bomb_once(codec: Compression, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker() as kafka:
        for name, (first, count) in SOURCE_BOMBS.items():
            kafka.create_topic(name, config={"max.message.bytes": str(8 * MIB)})
            at, data = TopicPartition(name, 0), bytearray(bomb(codec, first, 64, count))
            end = kafka._call(lambda cluster, at=at, data=data: _append(cluster, at, data))
            piece = OffsetRange(name, 0, 0, end)
            options = batch_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name})
            fetches = len(kafka.requests(api="Fetch"))
            found = cost(lambda piece=piece, options=options: _refusal(piece, options))
            assert found.outcome.startswith(f"A record batch of {at} between offsets 0 and {end} cannot be read: ")
            assert "Read it with another client" in found.outcome
            assert len(kafka.requests(api="Fetch")) == fetches + 1
            assert found.seconds < 6
            assert found.mib < 500
    # Clients of earlier tests in this process may log when their idle connections are due.
    assert [each.getMessage() for each in caplog.records if not each.name.startswith("kafka.")] == []


def _append(cluster: Any, at: TopicPartition, data: bytearray) -> int:
    """Append a batch to the log without a produce request, which would be refused; return the log end offset."""
    log = cluster.logs.get(at, cluster.now_ms)
    log.append_as_leader(data, now_ms=cluster.now_ms, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    cluster.logs.appended(at)
    return int(log.log_end_offset)


def _refusal(piece: OffsetRange, options: Any) -> str:
    with pytest.raises(BrokerError) as refused:
        list(read_range(piece, options))
    return str(refused.value)
