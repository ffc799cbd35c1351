"""Random interleavings of transactions over several partitions, read by the source and by brute force.

Brute force reads the whole log and looks, for each record, for the next marker of its producer.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from broker_core import EmbeddedBroker
from broker_core.records.control import ControlType, control_type_of
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.options.source import batch_options
from spark_eos.source.planner import Planner
from spark_eos.source.range_reader import read_range
from tests.support.examples import examples
from tests.support.spark_eos.source_data import DEADLINE_SECONDS, transactional_producer

PARTITIONS = 2
TRANSACTIONAL = 2
PLAIN = TRANSACTIONAL

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, PLAIN), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, TRANSACTIONAL - 1)),
    ),
    min_size=15,
    max_size=40,
)
Found = dict[int, list[tuple[int, bytes]]]


class World:
    """A broker, producers that are shared by all examples, and which of them have a transaction open."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        address = broker.bootstrap_servers
        self.producers = [transactional_producer(address) for _ in range(TRANSACTIONAL)]
        self.producers.append(Producer({"bootstrap.servers": address, "linger.ms": 0}))
        self.opened: set[int] = set()

    def take(self, step: Any, topic: str, number: int) -> None:
        kind, who = step[:2]
        if kind != "send":
            self.end(who, commit=kind == "commit")
            return
        if who != PLAIN and who not in self.opened:
            self.producers[who].begin_transaction()
            self.opened.add(who)
        for each in range(step[3]):
            self.producers[who].produce(topic, f"{number}.{each}", partition=step[2])
        assert self.producers[who].flush(DEADLINE_SECONDS) == 0

    def end(self, who: int, *, commit: bool) -> None:
        if who in self.opened:
            self.opened.remove(who)
            finish = self.producers[who].commit_transaction if commit else self.producers[who].abort_transaction
            finish(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with EmbeddedBroker() as broker:
        world = World(broker)
        yield world
        # Otherwise librdkafka logs errors about a broker that has stopped.
        world.producers.clear()


def by_brute_force(broker: EmbeddedBroker, topic: str) -> tuple[Found, Found]:
    """Return what read_committed and read_uncommitted readers must see."""
    committed: Found = {}
    uncommitted: Found = {}
    for partition in range(PARTITIONS):
        where = TopicPartition(topic, partition)
        journal = broker._call(lambda cluster, tp=where: list(cluster.logs.get(tp, cluster.now_ms).read_journal()))
        data = [(offset, header, record.value) for offset, header, record in journal if not header.is_control]
        markers = [
            (offset, header.producer_id, control_type_of(record.key))
            for offset, header, record in journal
            if header.is_control
        ]

        def fate(offset: int, producer_id: int, markers: Any = markers) -> ControlType | None:
            return next((kind for at, who, kind in markers if at > offset and who == producer_id), None)

        undecided = [
            offset for offset, header, _ in data if header.is_transactional and fate(offset, header.producer_id) is None
        ]
        stable = min(undecided, default=2**63)
        uncommitted[partition] = [(offset, value) for offset, _, value in data]
        committed[partition] = [
            (offset, value)
            for offset, header, value in data
            if offset < stable
            and (not header.is_transactional or fate(offset, header.producer_id) is ControlType.COMMIT)
        ]
    return committed, uncommitted


def by_the_source(broker: EmbeddedBroker, topic: str, **options: str) -> Found:
    chosen = batch_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic} | options)
    found: Found = {partition: [] for partition in range(PARTITIONS)}
    with KafkaClient(chosen.client) as client:
        planner = Planner(OffsetLookup(client), chosen)
        pieces = planner.plan(planner.starting_offsets(), planner.ending_offsets())
    for piece in pieces:
        for columns in read_range(piece, chosen):
            offsets, values = columns.column("offset").to_pylist(), columns.column("value").to_pylist()
            found[piece.partition] += zip(offsets, values, strict=True)
    return found


@given(
    steps=STEPS,
    open_at_the_end=st.sets(st.integers(0, TRANSACTIONAL - 1)),
    cut=st.sampled_from([None, None, 1, 7]),
    fetched_bytes=st.sampled_from([1_000_000, 150, 1]),
)
@examples(40)
def test_source_matches_a_brute_force_model(
    world: World, steps: list[Any], open_at_the_end: set[int], cut: int | None, fetched_bytes: int
) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    world.broker.create_topic(topic, PARTITIONS)
    try:
        for number, step in enumerate(steps):
            world.take(step, topic, number)
        for who in sorted(world.opened - open_at_the_end):
            world.end(who, commit=who % 2 == 0)
        committed, uncommitted = by_brute_force(world.broker, topic)
        options = {"kafka.max.partition.fetch.bytes": str(fetched_bytes)}
        if cut is not None:
            options["maxRecordsPerPartition"] = str(cut)
        assert by_the_source(world.broker, topic, **options) == committed
        assert by_the_source(world.broker, topic, **options, **{"isolation.level": "read_uncommitted"}) == uncommitted
    finally:
        for who in range(TRANSACTIONAL):
            world.end(who, commit=False)
