"""A topic and its open transactions, as an independent client sees them."""

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_eos.client.inspection import list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.support.waiting import wait_until

READ_DEADLINE_S = 60
# For readers to go on: one to three seconds if idle, more on a busy machine; transactions would be open for 15 minutes.
READERS_WAIT_S = 120


@dataclass(frozen=True)
class Topic:
    """The topic of one test."""

    address: str
    name: str
    partition_count: int

    def options(self, **more: str) -> dict[str, str]:
        """Return the sink's options for this topic."""
        return {"kafka.bootstrap.servers": self.address, "topic": self.name, **more}

    def values(self) -> list[str]:
        """Return all committed values, sorted; waits until no transaction blocks the last stable offset."""
        return sorted((message.value() or b"").decode() for message in self.messages())

    def messages(self) -> list[Message]:
        """Return all committed messages up to the end of the log."""
        return list(_read(self.address, self.name, self.partition_count))

    def markers(self) -> list[int]:
        """Count the markers of each partition: the offsets that no record has, when all are written."""
        wait_until(self.is_stable, "all markers are written")
        records = Counter(message.partition() for message in self.messages())
        with closing(Consumer({"bootstrap.servers": self.address, "group.id": "none"})) as consumer:
            places = [TopicPartition(self.name, number) for number in range(self.partition_count)]
            ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        return [end - records[number] for number, end in enumerate(ends)]

    def is_stable(self) -> bool:
        """Return whether the last stable offset has reached the end of every partition."""
        settings = {"bootstrap.servers": self.address, "group.id": "none"}
        ends = []
        for isolation in ("read_committed", "read_uncommitted"):
            with closing(Consumer({**settings, "isolation.level": isolation})) as consumer:
                places = [TopicPartition(self.name, number) for number in range(self.partition_count)]
                ends.append([consumer.get_watermark_offsets(place, timeout=30)[1] for place in places])
        return ends[0] == ends[1]


def make_topic(address: str, partition_count: int = 3) -> Topic:
    """Create a topic with a unique name."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partition_count, 1)])[name].result(60)
    return Topic(address, name, partition_count)


def open_transactions(address: str, beginning: str) -> list[str]:
    """Return the open transactions whose id begins with the prefix."""
    with KafkaClient(ClientOptions((address,))) as client:
        listed = list_transactions(client, states=["Ongoing"])
    return [each.transactional_id for each in listed if each.transactional_id.startswith(beginning)]


def _read(address: str, topic: str, partition_count: int) -> Iterator[Message]:
    settings = {
        "bootstrap.servers": address,
        "group.id": f"judge-{uuid.uuid4().hex}",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partition_count)])
        ended: set[int | None] = set()
        while len(ended) < partition_count:
            # A message without a value is false, hence the list.
            [message] = wait_until(
                lambda: [each for each in [consumer.poll(1)] if each is not None],
                f"a message of {topic}",
                deadline_s=READ_DEADLINE_S,
            )
            if message.error():
                ended.add(message.partition())
            else:
                ended.discard(message.partition())
                yield message
