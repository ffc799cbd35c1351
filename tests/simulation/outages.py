"""Coordinators and leaders that are offline for seconds to tens of seconds, and brokers cut off from the others.

Outages have a source of randomness of their own, so they do not change worlds without outages. A restart of the cluster
ends them early, because it elects leaders.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker_core.broker.cluster import Cluster
from broker_core.coordinator.transactions.records import TransactionImage
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    TransactionState,
)
from tests.simulation.sink import PREFIX, QUERY
from tests.support.simulated.faults import FaultKind
from tests.support.simulated.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

_DURATIONS_MS = (1_500, 5_000, 15_000, 40_000)
_STALE_MS = (3_000, 8_000, 15_000)
_LONGEST_PAUSE_MS = 4_000
_USERS = "users"
_DRIVER = f"{PREFIX}.{QUERY}.driver"
_DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_LOOK_MS = 5
_OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
# The topics whose partitions lose their leader, with weights.
_KINDS = {TRANSACTION_STATE_TOPIC: 4, CONSUMER_OFFSETS_TOPIC: 3, _USERS: 2}
_SHARE_KINDS = {SHARE_GROUP_STATE_TOPIC: 4, CONSUMER_OFFSETS_TOPIC: 2, _USERS: 2}


class Outages:
    """The outages of a world, until it is calm."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = world.random_of("outages")
        self._owners: dict[TopicPartition, int] = {}
        # The brokers that are cut off from the others.
        self.cut_off: set[int] = set()

    def begin(self) -> None:
        """Schedule the outages; they overlap at times."""
        if self._world.plan.outages_ms:
            for _ in range(self._random.choice((1, 1, 2))):
                self._later(self._random.randint(0, _LONGEST_PAUSE_MS), self._begin_one)

    def end(self) -> None:
        """End all outages."""
        for topic_partition in list(self._owners):
            self._give_back(topic_partition)
        for broker_id in sorted(self.cut_off):
            self._rejoin(broker_id)

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._world.scheduler.after(delay_ms * US_PER_MS, action)

    def _begin_one(self) -> None:
        if self._world.is_calm:
            return
        if self._world.plan.has_stale_brokers and self._random.random() < 0.8:
            duration_ms = self._random.choice(_STALE_MS)
            self._cut(duration_ms)
        else:
            duration_ms = self._random.choice(_DURATIONS_MS)
            kinds = _SHARE_KINDS if self._world.plan.share_groups else _KINDS
            kind = self._random.choices(list(kinds), list(kinds.values()))[0]
            self._world.server.act(lambda cluster: self._take_one_away(cluster, kind, duration_ms))
        self._later(duration_ms + self._random.randint(0, _LONGEST_PAUSE_MS), self._begin_one)

    def _take_one_away(self, cluster: Cluster, kind: str, duration_ms: int) -> None:
        names = sorted(set(cluster.metadata.topics) - INTERNAL_TOPICS) if kind == _USERS else [kind]
        found = [each for name in names for each in cluster.metadata.topics[name].topic_partitions()]
        self.take_away(cluster, self._random.choice(found), duration_ms)

    def take_away(self, cluster: Cluster, chosen: TopicPartition, duration_ms: int) -> None:
        """Let a partition have no leader for some time, if it has one."""
        owner = cluster.controller.leader_of(chosen)
        if owner is None:
            return
        self._world.nemesis(f"{chosen} has no leader for {duration_ms} ms")
        is_internal = chosen.topic in INTERNAL_TOPICS
        self._world.faults.record(FaultKind.COORDINATOR_AWAY if is_internal else FaultKind.LEADER_AWAY)
        self._owners[chosen] = owner.broker_id
        cluster.controller.lose_leader(chosen)
        self._later(duration_ms, partial(self._give_back, chosen))

    def _give_back(self, topic_partition: TopicPartition) -> None:
        owner = self._owners.pop(topic_partition, None)
        if owner is None:
            return

        def elect(cluster: Cluster) -> None:
            if topic_partition.topic in cluster.metadata.topics:
                cluster.controller.elect(topic_partition, owner)

        self._world.server.act(elect)

    def _cut(self, duration_ms: int) -> None:
        """Cut a broker off, mostly the group coordinator, and kill the query's driver meanwhile.

        A driver that takes over is the one that may trust the broker's responses.
        """
        if not self.cut_off and self._world.server.is_running:
            broker_id = self._random.choice(self._world.broker_ids)
            coordinator = self._world.server.cluster.controller.leader_of(_OFFSETS)
            if coordinator is not None and self._random.random() < 0.7:
                broker_id = coordinator.broker_id
            self._world.nemesis(f"broker {broker_id} is cut off from the others for {duration_ms} ms")
            self.cut_off.add(broker_id)
            self._world.server.cut_off(broker_id)
            self._later(duration_ms, partial(self._rejoin, broker_id))
            if self._random.random() < 0.3:
                self._later(self._random.randint(0, duration_ms), self._kill_driver)
            else:
                self._kill_after_decision(self._driver_state())

    def _driver_state(self) -> TransactionImage | None:
        """Return the state of the id with which the query's driver decides."""
        if not self._world.server.is_running:
            return None
        cluster = self._world.server.cluster
        coordinator = cluster.controller.leader_of(
            cluster.controller.coordinator_partition_of(TRANSACTION_STATE_TOPIC, _DRIVER)
        )
        return None if coordinator is None else coordinator.transactions.images().get(_DRIVER)

    def _kill_after_decision(self, before: TransactionImage | None) -> None:
        """Poll while the broker is cut off; kill the driver soon after a micro-batch has been decided."""
        state = self._driver_state()
        if state is not None and state != before and state.state in _DECIDED:
            self._later(self._random.randint(0, 40), self._kill_driver)
        elif self.cut_off:
            self._later(_LOOK_MS, lambda: self._kill_after_decision(before))

    def _kill_driver(self) -> None:
        drivers = [
            each
            for each in self._world.fibers.all
            if each.host.startswith("sink") and "/" not in each.name and not each.is_done
        ]
        if drivers and not self._world.is_calm:
            self._world.actors["nemesis"].kill_client(self._random.choice(drivers), self._random.randint(0, 1_000))

    def _rejoin(self, broker_id: int) -> None:
        if broker_id in self.cut_off:
            self.cut_off.discard(broker_id)
            self._world.server.rejoin(broker_id)
