"""A client of one partition whose responses to Fetch, OffsetForLeaderEpoch and Metadata are scripted."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.broker_client import BrokerClient
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata
from spark_eos.client.response_decoders import FilteredMetadata, FilteredMetadataRequest
from spark_eos.errors import UnansweredError
from spark_eos.options.source import FetchLimits
from tests.support.clocks import StandingClock, runtime_by

TP = TopicPartition("t", 0)
LIMITS = FetchLimits(max_bytes=1_000, partition_max_bytes=1_000, min_bytes=1, max_wait_ms=1, poll_timeout_ms=1_000)


def batch(first: int, count: int = 1, epoch: int = 4) -> bytes:
    return build_batch([NewRecord(None, b"v", (), 0)] * count, base_offset=first, partition_leader_epoch=epoch)


def answer(data: bytes = b"", error: ErrorCode = ErrorCode.NONE, *, stable: int = 10) -> Any:
    marks = {"high_watermark": 20, "last_stable_offset": stable}
    partition = SimpleNamespace(partition_index=0, records=data, error_code=error, aborted_transactions=[], **marks)
    return SimpleNamespace(error_code=0, responses=[SimpleNamespace(topic="t", partitions=[partition])])


def topic(leader: int = 2, epoch: int = 0, topic_id: UUID | None = None) -> dict[str, TopicMetadata]:
    return {"t": TopicMetadata("t", topic_id, False, 0, {0: PartitionMetadata(0, leader, epoch, 0)})}


class ScriptedClient:
    """A client with scripted fetch responses; None is a lost connection.

    `said` has one broker's metadata for each request; the last one stays. `said_by_all` has that of all brokers.
    """

    def __init__(
        self,
        *script: Any,
        said: Sequence[dict[str, TopicMetadata]] = (),
        said_by_all: Sequence[Any] = (),
        ends: Sequence[Any] = (),
    ) -> None:
        self.script, self.said, self.ends = list(script), list(said) or [topic()], list(ends)
        self.said_by_all = said_by_all
        # The leader, its epoch and the offset of each fetch, and its isolation level.
        self.fetched: list[tuple[int, int, int]] = []
        self.levels: list[IsolationLevel] = []
        # The leader, its epoch and the epoch of each look-up of an epoch's end.
        self.asked: list[tuple[int, int, int]] = []
        self.tries_left = 6
        self.clock = StandingClock()
        self.runtime = runtime_by(self.clock)
        self.transport = SimpleNamespace(
            wait=lambda pending, deadline: None,
            poll=lambda timeout_ms: None,
            cluster=SimpleNamespace(update_metadata=lambda _: None),
        )

    def start(self, node_id: int, request: Any, _deadline: float) -> Any:
        if not request.topics[0].topic_id.int:
            assert request._max_version == 12, "without a topic id the request names the topic"
        assert request._min_version == 4, "before that, it has no isolation level: aborted records would be read"
        partition = request.topics[0].partitions[0]
        self.fetched.append((node_id, partition.current_leader_epoch, partition.fetch_offset))
        self.levels.append(IsolationLevel(request.isolation_level))
        return self.script.pop(0) if self.script else answer()

    def outcome(self, pending: Any, _request: Any, _node_id: int) -> Any:
        if pending is None:
            raise UnansweredError("the connection was lost")
        return pending

    def send(self, node_id: int, request: Any, **_: Any) -> Any:
        """Answer where an epoch ends with an offset, a code and an offset, or an error."""
        partition = request.topics[0].partitions[0]
        self.asked.append((node_id, partition.current_leader_epoch, partition.leader_epoch))
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        code, offset = end if isinstance(end, tuple) else (0, end)
        epoch = -1 if offset < 0 else 4
        partition, other = (
            SimpleNamespace(partition=number, error_code=code, leader_epoch=epoch, end_offset=offset - number)
            for number in (0, 1)
        )
        said = {"u": [other], "t": [other, partition]}
        return SimpleNamespace(topics=[SimpleNamespace(topic=name, partitions=each) for name, each in said.items()])

    def send_all(self, requests: Any, **_: Any) -> list[Any]:
        """Answer ListOffsets: broker 3 has the log [8, 20), the others have [0, 20)."""
        [(node_id, request)] = requests
        first = 8 if node_id == 3 else 0
        offset = first if request.topics[0].partitions[0].timestamp == -2 else 20
        found = SimpleNamespace(partition_index=0, error_code=0, offset=offset, leader_epoch=5)
        return [SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[found])])]

    def deadline(self, timeout_ms: float | None = None) -> float:
        return timeout_ms or 0.0

    def remaining_ms(self, deadline: float) -> float:
        return deadline

    def ask_metadata(self, make: Callable[[], Any], **_: Any) -> FilteredMetadata:
        assert isinstance(make(), FilteredMetadataRequest)
        said: Any = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        self.said_by_all, cluster = self.said_by_all or [said], cast("Any", None)
        return FilteredMetadata(cluster, said)

    def topics_by_broker(self, _topics: Any) -> dict[int, Any]:
        return dict(enumerate(self.said_by_all))

    attempts = BrokerClient.attempts

    def back_off(self, _attempt: int, _deadline: float, **_: Any) -> bool:
        self.tries_left -= 1
        self.clock.seconds += 1
        return self.tries_left >= 0
