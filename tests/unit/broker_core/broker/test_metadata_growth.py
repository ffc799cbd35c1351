"""What the metadata log gets when leaders change grows with the partitions that change, not with their square.

A new topic costs the same however many there are.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from broker_core.broker.cluster import Cluster
from broker_core.broker.journals import MetadataLog
from broker_core.broker.metadata import ClusterMetadata
from broker_core.simulation.disk import MemoryStorage
from tests.support.direct import direct_cluster
from tests.support.function_calls import count_calls

TOPIC = "t"
FEW = 30
# Indexes of partitions have more digits if there are more partitions.
LINEAR = 2.2


@dataclass
class World:
    """A cluster whose broker 1 leads every partition of a topic, with the sizes of the records written since."""

    partition_count: int
    storage: MemoryStorage = field(default_factory=MemoryStorage)

    def __post_init__(self) -> None:
        self.cluster: Cluster = direct_cluster(self.storage, brokers=3)
        self.controller = self.cluster.controller
        self.address = self.controller.addresses[1]
        topic = self.controller.create_topic(TOPIC, self.partition_count, None, [[1, 2, 3]] * self.partition_count)
        self.places = topic.topic_partitions()

    def stop(self) -> None:
        self.controller.broker_left(1)

    def start(self) -> None:
        self.controller.broker_joined(1, self.address)

    def move(self) -> None:
        for place in self.places:
            self.controller.move_leader(place, 2)

    def lose(self) -> None:
        for place in self.places:
            self.controller.lose_leader(place)

    def elect(self) -> None:
        for place in self.places:
            self.controller.elect(place, 3)

    def reassign(self) -> None:
        for place in self.places:
            self.controller.reassign(place, [3, 1])

    def widen(self) -> None:
        self.controller.add_partitions(TOPIC, 2 * self.partition_count)


STEPS: dict[str, tuple[Callable[[World], None], ...]] = {
    "a broker stops": (World.stop,),
    "a broker starts": (World.stop, World.start),
    "leaders move": (World.move,),
    "leaders are lost": (World.lose,),
    "leaders are elected": (World.lose, World.elect),
    "partitions are reassigned": (World.reassign,),
    "reassignments end with a start": (World.stop, World.reassign, World.start),
    "partitions are added": (World.widen,),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_records_of_changed_partitions_are_linear(steps, monkeypatch):
    def written(partition_count: int) -> tuple[int, int]:
        world = World(partition_count)
        for step in steps[:-1]:
            step(world)
        sizes: list[int] = []
        append = MetadataLog.append

        def appended(log: MetadataLog, key: bytes, value: bytes) -> int:
            sizes.append(len(key) + len(value))
            return append(log, key, value)

        with monkeypatch.context() as patch:
            patch.setattr(MetadataLog, "append", appended)
            patch.setattr(world.cluster.metadata, "_append", world.cluster._metadata_log.append)
            steps[-1](world)
        return len(sizes), sum(sizes)

    (few_records, few_bytes), (many_records, many_bytes) = written(FEW), written(2 * FEW)
    assert 0 < few_records <= many_records <= 2 * few_records
    assert few_bytes < many_bytes < LINEAR * few_bytes


@pytest.mark.parametrize("last", [World.stop, World.start])
def test_partitions_that_move_together_need_one_sync(last, monkeypatch):
    world = World(FEW)
    if last is World.start:
        world.stop()
    log, count = world.cluster._metadata_log, 0
    sync = log.sync

    def counted() -> None:
        nonlocal count
        count += log.unsynced_bytes > 0
        sync()

    monkeypatch.setattr(log, "sync", counted)
    last(world)
    assert count == 1


def test_changed_partitions_are_the_same_after_a_restart():
    world = World(FEW)
    for step in (World.stop, World.reassign, World.start, World.move, World.widen):
        step(world)
    metadata = world.cluster.metadata
    loaded = ClusterMetadata(lambda _key, _value: 0, (1, 2, 3))
    loaded.load(world.cluster._metadata_log.records())
    assert loaded.topics == metadata.topics
    assert {each.replicas for each in loaded.topic(TOPIC).partitions[:FEW]} == {(3, 2)}


def test_new_topic_costs_the_same_with_many_topics():
    controller = direct_cluster(MemoryStorage()).controller

    def calls_to_create(name: str) -> int:
        return count_calls(lambda: controller.create_topic(name, 1, None, None), builtins=True)

    controller.create_topic("first", 1, None, None)
    before = calls_to_create("few-topics")
    for number in range(FEW):
        controller.create_topic(f"topic-{number}", 1, None, None)
    # The varints of the log's offsets become longer.
    assert calls_to_create("many-topics") < before + FEW
