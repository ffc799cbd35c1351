"""Snapshots and restores in any order, between random changes, crashes and restarts, in memory and on disk.

The model is what the cluster showed when the snapshot was taken, and a copy of the snapshot's bytes.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import EmbeddedBroker, KafkaError, Snapshot
from broker_core.broker.cluster import Cluster
from broker_core.broker.metadata import ClusterMetadata
from broker_core.coordinator.groups.offsets.store import OffsetCommit, OffsetToCommit
from broker_core.security.acls import stored_acl
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from tests.support.examples import examples

# Nothing here needs a port.
pytestmark = pytest.mark.kafka(listeners={})

TOPICS = ["plain", "compacted", "other"]
PARTITIONS = 2
IDS = ["one", "two"]

# How often each step is drawn.
KINDS = {
    "produce": 6,
    "begin": 4,
    "end": 3,
    "commit_offset": 2,
    "trim": 1,
    "compact": 2,
    "roll": 2,
    "move": 1,
    "create": 2,
    "delete": 1,
    "allow": 1,
    "crash": 1,
    "restart": 1,
    "snapshot": 4,
    "restore": 4,
}
STEPS = st.lists(
    st.tuples(st.sampled_from([kind for kind, share in KINDS.items() for _ in range(share)]), st.integers(0, 11)),
    # Not fewer: what goes wrong takes some records, a snapshot, a restore and changes after it.
    min_size=20,
    max_size=40,
)


def _metadata(metadata: ClusterMetadata) -> dict[str, Any]:
    """Return all that is replayed, apart from numbers that count replays."""
    found = {
        "topics": metadata.topics,
        "names": metadata.names,
        "cluster id": metadata.cluster_id,
        "features": (metadata.features, metadata.features_epoch),
        "acls": set(metadata.acls),
        "users": metadata.scram,
        "settings": metadata.stored.configs,
        "of features": {kind: found for kind, found in metadata.states.items() if found},
        "producer ids": metadata._next_producer_id,
    }
    return deepcopy(found)


def _shown(cluster: Cluster) -> dict[str, Any]:
    """Return what a restore returns to."""
    shown = _metadata(cluster.metadata)
    shown["topics"] = {name: (each.topic_id, each.config) for name, each in shown["topics"].items()}
    # Blocks of producer ids are allocated at each start.
    del shown["producer ids"]
    for topic in list(cluster.metadata.topics.values()):
        for place in topic.topic_partitions():
            if not cluster.logs.is_untouched(place):
                log = cluster.logs.get(place, cluster.now_ms)
                # An empty log need not have files.
                if not log.log_end_offset:
                    continue
                marks = (log.log_start_offset, log.last_stable_offset, log.log_end_offset)
                opened = [(each.producer_id, each.first_offset) for each in log.producer_state.open_transactions]
                shown[f"log {place}"] = (marks, opened, log.aborted_transactions(), list(log.read_journal()))
    return shown


def _leader_epochs(cluster: Cluster) -> dict[tuple[Any, int], int]:
    return {
        (topic.topic_id, index): partition.leader_epoch
        for topic in cluster.metadata.topics.values()
        for index, partition in enumerate(topic.partitions)
    }


def _log(cluster: Cluster, place: TopicPartition) -> Any:
    return cluster.logs.get(place, cluster.now_ms)


def _roll(cluster: Cluster, place: TopicPartition) -> None:
    log = _log(cluster, place)
    if log.segments.active.size_bytes:
        log.roll()


def _commit_offset(cluster: Cluster, place: TopicPartition) -> None:
    cluster.controller.ensure_topic(CONSUMER_OFFSETS_TOPIC)
    journal = cluster.controller.coordinator_partition_of(CONSUMER_OFFSETS_TOPIC, "g")
    groups = cluster.brokers[cluster.metadata.leadership(journal).leader].groups
    offset = OffsetToCommit(_log(cluster, place).log_end_offset)
    groups.commit_offsets(OffsetCommit("g", {place: offset}), cluster.now_ms)


def _move(cluster: Cluster, place: TopicPartition) -> None:
    brokers, old = list(cluster.brokers), cluster.metadata.leadership(place).leader
    cluster.controller.move_leader(place, brokers[(brokers.index(old) + 1) % len(brokers)])


_LOG_STEPS: dict[str, Callable[[Cluster, TopicPartition], Any]] = {
    "trim": lambda cluster, place: _log(cluster, place).delete_records_before(-1),
    "compact": lambda cluster, place: _log(cluster, place).compact(cluster.now_ms),
    "roll": _roll,
    "commit_offset": _commit_offset,
    "move": _move,
}


class World:
    """A cluster, its snapshots, and what they were."""

    def __init__(self, kafka: EmbeddedBroker) -> None:
        self.kafka = kafka
        self.taken: list[tuple[Snapshot, dict[str, bytes], dict[str, Any]]] = []

    def take(self, number: int, kind: str, draw: int) -> None:
        """Take one step; one that the broker refuses changes nothing."""
        topic, partition, name = TOPICS[draw % 3], draw % PARTITIONS, IDS[draw // 6]
        with suppress(KafkaError, KeyError):
            match kind:
                case "produce":
                    self.kafka.produce(topic, [("key", str(number))], partition=partition)
                case "begin":
                    self.kafka.produce(
                        topic, [("key", str(number))], partition=partition, transactional=name, end="open"
                    )
                case "end":
                    self.kafka.end_transaction(name, commit=draw % 2 == 0)
                case "create":
                    self.create(topic)
                case "delete":
                    self.kafka.delete_topic(topic)
                case "allow":
                    acl = stored_acl(2, 3, topic, "User:a", "*", 3, 3)
                    self.act(lambda cluster: cluster.metadata.create_acl(acl))
                case "snapshot" | "crash" | "restart":
                    getattr(self, kind)()
                case "restore":
                    self.restore(draw)
                case _:
                    place = TopicPartition(topic, partition)
                    self.act(lambda cluster: _LOG_STEPS[kind](cluster, place))

    def shown(self) -> dict[str, Any]:
        """Return what a restore returns to, with the views of the coordinators."""
        return {
            **self.kafka._call(_shown),
            "transactions": [replace(each, coordinator=0) for each in self.kafka.transactions()],
            "offsets": self.kafka.group("g").committed,
        }

    def check(self, expected: dict[str, Any]) -> None:
        """Check that the cluster shows what it showed before."""
        shown = self.shown()
        assert [
            (name, shown.get(name), expected.get(name))
            for name in shown.keys() | expected.keys()
            if shown.get(name) != expected.get(name)
        ] == []

    def snapshot(self) -> None:
        expected = self.shown()
        snapshot = self.kafka.snapshot()
        self.check(expected)
        self.taken.append((snapshot, dict(snapshot._files.files()), expected))

    def restore(self, which: int) -> None:
        if not self.taken:
            return
        snapshot, _, expected = self.taken[-1 - which % len(self.taken)]
        epochs = self.kafka._call(_leader_epochs)
        self.kafka.restore(snapshot)
        self.check(expected)
        after = self.kafka._call(_leader_epochs)
        assert all(after[place] > epochs[place] for place in after.keys() & epochs.keys())
        self.check_files()

    def crash(self) -> None:
        before = self.shown()
        self.kafka.crash()
        self.kafka.restart()
        self.check(before)

    def restart(self) -> None:
        before = self.shown()
        self.kafka.restart()
        self.check(before)

    def check_files(self) -> None:
        """Check that no snapshot has changed, and that the metadata is what a start would replay."""
        for snapshot, files, _ in self.taken:
            assert dict(snapshot._files.files()) == files

        def replayed(cluster: Cluster) -> tuple[Any, Any]:
            copy = ClusterMetadata(lambda _key, _value: 0, ())
            copy.load(cluster._metadata_log.records())
            return _metadata(copy), _metadata(cluster.metadata)

        found, live = self.kafka._call(replayed)
        assert found == live

    def act(self, step: Callable[[Cluster], Any]) -> None:
        """Do something as a request does it, so that it is durable afterwards."""

        def do(cluster: Cluster) -> None:
            step(cluster)
            cluster.settle(cluster.now_ms)

        self.kafka._call(do)

    def create(self, topic: str) -> None:
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"} if topic == "compacted" else {}
        self.kafka.create_topic(topic, PARTITIONS, settings)


def _run(steps: list[tuple[str, int]], **settings: Any) -> None:
    with EmbeddedBroker(
        listeners={},
        config={
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
        },
        **settings,
    ) as kafka:
        world = World(kafka)
        for topic in TOPICS[:2]:
            world.create(topic)
        for number, step in enumerate(steps):
            world.take(number, *step)
        for which in range(len(world.taken)):
            world.restore(which)
            world.crash()
        world.check_files()


@pytest.mark.parametrize("brokers", [1, 3])
@given(STEPS)
@examples(40)
def test_restores_in_memory(brokers: int, steps: list[tuple[str, int]]) -> None:
    _run(steps, brokers=brokers)


@pytest.mark.parametrize("brokers", [1, 3])
@given(STEPS)
@examples(30)
def test_restores_on_disk(brokers: int, steps: list[tuple[str, int]]) -> None:
    # No power is lost here, and hundreds of syncs take most of the time.
    with (
        tempfile.TemporaryDirectory() as folder,
        patch("broker_core.server.disk._sync_descriptor", lambda _: None),
        patch("os.fsync", lambda _: None),
    ):
        _run(steps, brokers=brokers, data_dir=folder)
