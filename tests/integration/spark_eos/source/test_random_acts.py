"""Streams over clusters that change at random moments: no record is lost, repeated or read in another order.

Leaders move, brokers are cut off and answer from what they knew, requests fail, transactions stay open, partitions are
added, topics are deleted and created again, and the query is restarted, with other limits, or stopped between the plan
of a micro-batch and its end.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core import Disconnect, EmbeddedBroker, Error
from tests.support.spark_eos.source_data import add_partitions, delete_records
from tests.support.spark_eos.source_query import Query, Row

BROKERS = (1, 2, 3)
FAST = {
    "kafka.metadata.max.age.ms": "0",
    "kafka.retry.backoff.ms": "20",
    "kafka.default.api.timeout.ms": "8000",
    "kafkaConsumer.pollTimeoutMs": "8000",
    "startingOffsets": "earliest",
    "kafka.client.id": "query",
}
ACTS_OF_CLUSTERS = ("move", "fault", "cut_off", "rejoin", "send", "commit", "abort", "hold", "release", "add_partition")
ACTS_OF_LOSS = ("delete_records", "create_again")
ACTS_OF_QUERIES = ("trigger", "trigger", "interrupted", "crashed", "restarted", "available_now")


class World:
    """Three brokers, a query, and the rows that it has read; each value names the life of its topic and its number."""

    def __init__(self, kafka: EmbeddedBroker, seed: int, *, loses: bool) -> None:
        self.kafka, self.random = kafka, random.Random(seed)
        self.partitions = {"a": 2, "b": 1}
        self.lives: Counter[str] = Counter()
        self.sent = 0
        self.outage: Any = None
        self.held: list[str] = []
        self.acts = ACTS_OF_CLUSTERS + (ACTS_OF_LOSS if loses else ())
        subscription = self.random.choice([{"subscribe": "a,b"}, {"subscribePattern": "^[ab]$"}])
        fail = {"failOnDataLoss": "false" if loses else "true"}
        self.query = Query(kafka.bootstrap_servers, **FAST, **subscription, **self.limits(), **fail)
        self.rows: list[Row] = []

    def act(self, name: str) -> None:
        getattr(self, name)(*self.place())

    def limits(self) -> dict[str, str]:
        names = ("maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition")
        return {name: str(self.random.randint(1, 6)) for name in names if self.random.random() < 0.5}

    def place(self) -> tuple[str, int]:
        topic = self.random.choice("ab")
        return topic, self.random.randrange(self.partitions[topic])

    def values(self, topic: str) -> Iterator[str]:
        for _ in range(self.random.randint(1, 4)):
            self.sent += 1
            yield f"{self.lives[topic]}.{self.sent}"

    def send(self, topic: str, partition: int) -> None:
        self.kafka.produce(topic, list(self.values(topic)), partition=partition)

    def commit(self, topic: str, partition: int) -> None:
        self.kafka.produce(topic, list(self.values(topic)), partition=partition, transactional="writer")

    def abort(self, topic: str, partition: int) -> None:
        self.kafka.produce(topic, list(self.values(topic)), partition=partition, transactional="writer", end="abort")

    def hold(self, topic: str, partition: int) -> None:
        """Leave a transaction open: the last stable offset stands still."""
        self.held.append(f"holder-{self.sent}")
        values = list(self.values(topic))
        self.kafka.produce(topic, values, partition=partition, transactional=self.held[-1], end="open")

    def release(self, *_: object) -> None:
        while self.held:
            self.kafka.end_transaction(self.held.pop(), commit=self.random.random() < 0.7)

    def add_partition(self, topic: str, _partition: int) -> None:
        if self.partitions[topic] < 4 and self.outage is None:
            self.partitions[topic] += 1
            add_partitions(self.kafka.bootstrap_servers, topic, self.partitions[topic])

    def move(self, topic: str, partition: int) -> None:
        away = None if self.outage is None else self.outage[0]
        self.kafka.move_leader((topic, partition), self.random.choice([each for each in BROKERS if each != away]))

    def fault(self, topic: str, _partition: int) -> None:
        api = self.random.choice(["Metadata", "ListOffsets", "Fetch", "OffsetForLeaderEpoch"])
        code = "LEADER_NOT_AVAILABLE" if api == "Metadata" else "NOT_LEADER_OR_FOLLOWER"
        action = self.random.choice([Disconnect(), Error("UNKNOWN_TOPIC_OR_PARTITION"), Error(code)])
        times = self.random.randint(1, 3)
        self.kafka.fault(api=api, action=action, topic=topic, times=times, client_id="query")

    def cut_off(self, *_: object) -> None:
        if self.outage is None:
            broker = self.random.choice(BROKERS)
            self.outage = broker, self.kafka.stale_broker(broker)

    def rejoin(self, *_: object) -> None:
        if self.outage is not None:
            self.outage[1].end()
            self.outage = None

    def delete_records(self, topic: str, partition: int) -> None:
        if self.outage is None:
            end = self.kafka.partition(topic, partition).high_watermark
            delete_records(self.kafka.bootstrap_servers, topic, self.random.randint(0, end), partition)

    def create_again(self, topic: str, partition: int) -> None:
        # A broker that is cut off has the old topic for as long as it is, and a task waits for that.
        self.rejoin()
        self.release()
        self.kafka.delete_topic(topic)
        self.lives[topic] += 1
        self.partitions[topic] = self.random.randint(partition + 1, 4)
        self.kafka.create_topic(topic, self.partitions[topic])
        self.send(topic, partition)

    def trigger(self, *_: object) -> None:
        self.rows += self.query.trigger()

    def interrupted(self, *_: object) -> None:
        """Let the cluster change between the plan of a micro-batch and its read."""
        end = self.query.end()
        if end != self.query.position:
            planned = self.query.reader.partitions(self.query.position, end)
            self.act(self.random.choice(self.acts))
            self.rows += self.query.read(planned)
            self.query.position = end

    def crashed(self, *_: object) -> None:
        """Run a micro-batch again after the one before has not been committed."""
        end = self.query.end()
        if end != self.query.position:
            self.query = self.query.restarted()
            self.rows += self.query.run_to(end)

    def restarted(self, *_: object) -> None:
        # Options that are left out keep their values.
        self.query = self.query.restarted(**self.limits())

    def available_now(self, *place: Any) -> None:
        self.query = self.query.restarted()
        self.query.reader.prepareForTriggerAvailableNow()
        self.send(*place)
        self.read_on()
        self.query = self.query.restarted()

    def read_on(self) -> None:
        """Run micro-batches until there is nothing to read; one of aborted records only has no rows."""
        position = None
        while position != self.query.position:
            position = self.query.position
            self.trigger()


@pytest.mark.parametrize("loses", [False, True], ids=["nothing is deleted", "records and topics are deleted"])
@pytest.mark.parametrize("seed", [0, 1, 2, 36])
def test_each_committed_record_is_read_once_and_in_order(seed: int, loses: bool) -> None:
    with EmbeddedBroker(brokers=len(BROKERS), topics={"a": 2, "b": 1}) as kafka:
        world = World(kafka, seed, loses=loses)
        try:
            for _ in range(40):
                world.act(world.random.choice([*ACTS_OF_QUERIES, *world.acts]))
            world.rejoin()
            world.release()
            world.read_on()
        finally:
            world.query.reader.stop()
        offsets = defaultdict(list)
        for topic, partition, offset, value in world.rows:
            offsets[topic, partition, (value or "").partition(".")[0]].append(offset)
        for each in offsets.values():
            assert each == sorted(set(each)), "a record was repeated, or read too late"
        there = {
            (topic, each.partition, each.offset, (each.value or b"").decode())
            for topic in world.partitions
            for each in kafka.records(topic, isolation="read_committed")
        }
        assert there <= set(world.rows), "a record was lost"
        assert loses or there == set(world.rows)
