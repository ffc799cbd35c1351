"""confluent-kafka, the independent client, with settings and deadlines for tests."""

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, OffsetSpec

from tests.support.waiting import wait_until

DEADLINE_S = 60
# Many tests cause fencing; the client would log it as an emergency.
LOG_NOTHING = 0
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
ISOLATIONS = (READ_UNCOMMITTED, READ_COMMITTED)


class Kafka(Protocol):
    """A broker of either kind, as its clients see it."""

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses for clients."""


def unique(name: str) -> str:
    """Return a name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


def admin(kafka: Kafka) -> AdminClient:
    """Return an admin client."""
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": LOG_NOTHING})


def metadata_of(address: str) -> ClusterMetadata:
    """Return the brokers and topics of the cluster at an address."""
    return AdminClient({"bootstrap.servers": address, "log_level": LOG_NOTHING}).list_topics(timeout=DEADLINE_S)


def make_topic(kafka: Kafka, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Create a topic for one test and return its name once all its leaders are known."""
    name = unique("topic")
    client = admin(kafka)
    created = client.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])
    created[name].result(DEADLINE_S)

    def has_leaders() -> bool:
        topic = client.list_topics(name, timeout=DEADLINE_S).topics[name]
        return len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values())

    wait_until(has_leaders, f"leaders of {name}")
    return name


def make_producer(kafka: Kafka, **settings: Any) -> Producer:
    """Return a producer; `a_b=c` stands for the setting `a.b=c`."""
    common = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5, "log_level": LOG_NOTHING}
    return Producer(common | _dotted(settings))


def make_transactional_producer(kafka: Kafka, transactional_id: str, **settings: Any) -> Producer:
    """Return a producer that has called InitProducerId."""
    producer = make_producer(kafka, transactional_id=transactional_id, **settings)
    producer.init_transactions(DEADLINE_S)
    return producer


def make_consumer(
    kafka: Kafka, *, isolation: str = READ_COMMITTED, group: str | None = None, **settings: Any
) -> Consumer:
    """Return a consumer that starts at the beginning and reports the end of a partition."""
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group or unique("group"),
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "log_level": LOG_NOTHING,
        }
        | _dotted(settings)
    )


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def send(producer: Producer, topic: str, values: Iterable[bytes], *, partition: int = 0) -> None:
    """Produce the values to one partition and wait until the broker has acknowledged them."""
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def read_to_end(kafka: Kafka, topic: str, *, isolation: str = READ_COMMITTED, partitions: int = 1) -> list[Message]:
    """Read the topic from its start to the end at this isolation level."""
    consumer = make_consumer(kafka, isolation=isolation)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        messages: list[Message] = []
        at_end: set[int] = set()
        deadline = time.monotonic() + DEADLINE_S
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"end of {topic} not reached; read {len(messages)} messages"
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(cast(int, message.partition()))
            else:
                raise AssertionError(f"consuming {topic}: {error}")
        return messages
    finally:
        consumer.close()


def values_to_end(kafka: Kafka, topic: str, *, isolation: str = READ_COMMITTED, partitions: int = 1) -> list[bytes]:
    """Return the values that `read_to_end` reads."""
    return [
        cast(bytes, message.value())
        for message in read_to_end(kafka, topic, isolation=isolation, partitions=partitions)
    ]


def values_soon(kafka: Kafka, topic: str, expected: list[bytes], *, isolation: str = READ_COMMITTED) -> None:
    """Wait until exactly these values are visible; markers are written after the commit's response."""
    seen: list[bytes] = []

    def are_visible() -> bool:
        seen[:] = values_to_end(kafka, topic, isolation=isolation)
        return seen == expected

    try:
        wait_until(are_visible, f"{topic} holds {len(expected)} values", deadline_s=30)
    except AssertionError:
        assert seen == expected


def find_offset(
    kafka: Kafka, topic: str, spec: OffsetSpec, *, isolation: str = READ_UNCOMMITTED, partition: int = 0
) -> tuple[int, int]:
    """Return offset and timestamp from a ListOffsets response."""
    level = IsolationLevel.READ_COMMITTED if isolation == READ_COMMITTED else IsolationLevel.READ_UNCOMMITTED
    where = TopicPartition(topic, partition)
    # Keep a reference to the client: responses never arrive once it has been garbage-collected.
    client = admin(kafka)
    answers = client.list_offsets({where: spec}, isolation_level=level, request_timeout=DEADLINE_S)
    answer = answers[where].result(DEADLINE_S)
    return answer.offset, answer.timestamp


def end_offset(kafka: Kafka, topic: str, *, isolation: str, partition: int = 0) -> int:
    """Return the partition's end: the last stable offset or the high watermark."""
    return find_offset(kafka, topic, OffsetSpec.latest(), isolation=isolation, partition=partition)[0]


def wait_for_end_offset(kafka: Kafka, topic: str, offset: int, *, isolation: str = READ_COMMITTED) -> None:
    """Wait until the partition's end has this value."""
    what = f"{isolation} end of {topic} at {offset}"
    wait_until(lambda: end_offset(kafka, topic, isolation=isolation) == offset, what)


def make_member(kafka: Kafka, group: str, *, protocol: str = "classic", **settings: Any) -> Consumer:
    """Return a consumer that has yet to join a group with one of the two protocols, with short intervals."""
    quick: dict[str, dict[str, Any]] = {
        "classic": {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500},
        "consumer": {"group_protocol": "consumer", "topic_metadata_refresh_interval_ms": 200},
    }
    return make_consumer(kafka, group=group, enable_partition_eof=False, **quick[protocol] | settings)


def read_values(consumer: Consumer, count: int) -> list[bytes]:
    """Poll until this many records have arrived, and return their values."""
    values: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(cast(bytes, message.value()))
        return len(values) >= count

    wait_until(has_all, f"{count} records", pause_s=0)
    return values


def committed_offset(kafka: Kafka, group: str, topic: str, partition: int = 0) -> int:
    """Return the group's committed offset, or a negative number if there is none; waits for open transactions."""
    consumer = make_consumer(kafka, group=group)
    try:
        (answer,) = consumer.committed([TopicPartition(topic, partition)], timeout=DEADLINE_S)
        assert answer.error is None, answer.error
        return answer.offset
    finally:
        consumer.close()
