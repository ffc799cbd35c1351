"""Topics and records for the client's tests, an independent reader (confluent-kafka), and a fake leader."""

import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ConsumerPartition

from broker_core.records.header import BatchHeader
from broker_core.types import TopicPartition
from spark_eos.client.broker_client import BrokerClient
from spark_eos.client.kafka_client import BatchLimits, KafkaClient
from spark_eos.client.metadata import FinalizedFeatures, PartitionMetadata, RecentTopics, TopicMetadata
from spark_eos.client.topics import create_topic
from spark_eos.codec.encode import encode_batches
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import REAL

DEADLINE_S = 60


def unique(name: str) -> str:
    """Return a name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


def make_topic(client: KafkaClient, partitions: int = 1, **config: str) -> str:
    """Create a topic with the default replicas and wait for its leaders; `a_b=c` stands for the setting `a.b=c`."""
    name = unique("topic")
    settings = {key.replace("_", "."): value for key, value in config.items()}
    assert create_topic(client, name, partition_count=partitions, config=settings)
    client.require_topics([name])
    return name


def encoded(values: Iterable[str], *, max_batch_bytes: int = 1_000_000) -> list[EncodedBatch]:
    """Encode values without keys."""
    return list(
        encode_batches(
            key=None,
            value=pa.array(list(values)),
            headers=None,
            timestamp_ms=int(time.time() * 1000),
            max_batch_bytes=max_batch_bytes,
        )
    )


def read_values(address: str, topic: str, *, isolation: str = "read_committed") -> list[list[str]]:
    """Return what an independent client reads, by partition, up to the given ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": unique("judge"),
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)
        # All at once: another assignment would first wait for the end of an empty fetch.
        consumer.assign([ConsumerPartition(topic, partition, 0) for partition in partitions])
        values: dict[int, list[str]] = {partition: [] for partition in partitions}
        left, end = set(partitions), time.monotonic() + DEADLINE_S
        while left:
            assert time.monotonic() < end, f"no end of {topic}-{left} within {DEADLINE_S} s"
            message = consumer.poll(1.0)
            if message is None or message.partition() not in left:
                continue
            partition = cast("int", message.partition())
            error = message.error()
            if error is None:
                values[partition].append(cast("bytes", message.value()).decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                left.remove(partition)
        return list(values.values())
    finally:
        consumer.close()


class Done:
    """A completed request."""

    def __init__(self, value: Any = None, exception: BaseException | None = None) -> None:
        self.is_done = True
        self.value = value
        self.exception = exception


class SentProduce(SimpleNamespace):
    """One fake ProduceRequest: `batches` by topic-partition, `versions`, `leader`, and `log_ends`."""


Script = Callable[[SentProduce], Any]


class FakeTransport:
    """A network in which every request is complete, and real time passes only in `pause`."""

    def __init__(self) -> None:
        self.waited = 0

    def poll(self, timeout_ms: float) -> None:
        """Do nothing."""

    def wait(self, pending: Collection[Any], deadline: float) -> None:
        """Do nothing."""

    def wait_any(self, pending: Collection[Any], until: float) -> None:
        """Do nothing."""

    def pause(self, seconds: float) -> None:
        """Let real time pass: back-offs are compared with the clock."""
        self.waited += 1
        time.sleep(max(0.0, seconds))


class FakeClient:
    """A client with a script: each entry takes a produce request and returns a response or raises."""

    def __init__(self, topic: str, partitions: int, script: Iterable[Script], **options: Any) -> None:
        self.options = ClientOptions(("fake:1",), **{"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, **options})
        self.runtime = REAL
        self.transport = FakeTransport()
        self.batch_limits = BatchLimits(REAL.clock)
        self.recent = RecentTopics()
        self.features = FinalizedFeatures(REAL.clock)
        self.script = deque(script)
        self.sent: list[SentProduce] = []
        self.log_ends: dict[TopicPartition, int] = {}
        self.asked_for_metadata = 0
        self.leaders = dict.fromkeys(range(partitions), 1)
        self._topic = topic
        self._topic_id = uuid.uuid4()

    def deadline(self, timeout_ms: float | None = None) -> float:
        """Return a long deadline."""
        return time.monotonic() + DEADLINE_S

    def remaining_ms(self, deadline: float) -> float:
        """Return the time until a deadline."""
        return (deadline - time.monotonic()) * 1000

    attempts = BrokerClient.attempts

    def back_off(self, attempt: int, deadline: float, **_: Any) -> bool:
        """Wait once."""
        return attempt < 1

    def require_topics(self, topics: Collection[str], **_: Any) -> dict[str, TopicMetadata]:
        """Return the only topic."""
        return {
            self._topic: TopicMetadata(
                self._topic,
                self._topic_id,
                False,
                0,
                {each: PartitionMetadata(each, leader, 0, 0) for each, leader in self.leaders.items()},
            )
        }

    def metadata(self, topics: Collection[str], **_: Any) -> dict[str, TopicMetadata]:
        """Count the metadata requests."""
        self.asked_for_metadata += 1
        return self.require_topics(topics)

    def start(self, leader: int, request: Any, deadline: float) -> Done:
        """Record a request and answer it at once from the script."""
        sent = SentProduce(
            leader=leader,
            log_ends=self.log_ends,
            versions=(request._min_version, request._max_version),
            batches={
                TopicPartition(topic.name, each.index): bytes(each.records)
                for topic in request.topic_data
                for each in topic.partition_data
            },
        )
        self.sent.append(sent)
        try:
            return Done(self.script.popleft()(sent))
        except Exception as error:
            return Done(exception=error)

    def outcome(self, pending: Done, request: Any, node_id: int) -> Any:
        """Return or raise the scripted result."""
        if pending.exception is not None:
            raise pending.exception
        return pending.value


def produced(sent: SentProduce, codes: dict[int, int] | int = 0, base_offset: int | None = None) -> Any:
    """Answer a fake request: one error code for all partitions, or one for each.

    Without `base_offset`, each log begins at offset 0 and grows. With it, every partition answers this offset.
    """
    topic = next(iter(sent.batches)).topic
    offsets = dict.fromkeys(sent.batches, base_offset or 0)
    for place, data in sent.batches.items() if base_offset is None else ():
        offsets[place] = sent.log_ends.get(place, 0)
        if codes == 0 or (not isinstance(codes, int) and codes.get(place.partition, 0) == 0):
            sent.log_ends[place] = offsets[place] + BatchHeader.parse(data, 0).record_count
    return SimpleNamespace(
        responses=[
            SimpleNamespace(
                name=topic,
                topic_id=None,
                partition_responses=[
                    SimpleNamespace(
                        index=each.partition,
                        error_code=codes if isinstance(codes, int) else codes.get(each.partition, 0),
                        base_offset=offsets[each],
                        record_errors=[],
                        error_message=None,
                    )
                    for each in sent.batches
                ],
            )
        ]
    )
