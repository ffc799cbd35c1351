"""The faults that a world's seed has planned."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_core.broker.cluster import Cluster
from broker_core.types import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, TopicPartition
from broker_core.wire import messages as m
from tests.support.simulated.faults import FaultKind
from tests.support.simulated.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.fibers import Fiber
    from tests.simulation.world import World

# The part of the worlds in which a sync of the disk fails.
_FAILED_SYNC = 0.15


class Nemesis:
    """Inject faults at intervals until the calm phase."""

    name = "nemesis"

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = world.random_of("nemesis")
        self._successors = 0
        # Each with its weight in the draws.
        self._faults: dict[Callable[[], None], int] = {
            self._kill: 2,
            self._lose_power: 2,
            self._lose_power_writing: 3,
            self._lose_power_ending: 3,
            self._pause_cluster: 1,
            self._move_leader: 3,
            self._move_coordinator: 3,
            self._take_broker_down: 2,
            self._jump: 1,
            self._cut: 3,
            self._pause_client: 3,
            self._fill_disk: 1,
            self._reset_links: 2,
            self._kill_client: 2,
            self._make_zombie: 3,
            self._jump_client: 1,
        }
        if world.plan.is_undisturbed:
            self._faults = {fault: often for fault, often in self._faults.items() if fault not in self._disturbing()}
        # Some worlds have all kinds of faults, others only a few, so that those occur often enough to meet.
        if self._random.random() < 0.5:
            kept = set(self._random.sample(range(len(self._faults)), 4))
            self._faults = {fault: often for at, (fault, often) in enumerate(self._faults.items()) if at in kept}

    def _disturbing(self) -> set[Callable[[], None]]:
        """Return the faults that may make a coordinator load its state again."""
        return {
            self._kill,
            self._lose_power,
            self._lose_power_writing,
            self._lose_power_ending,
            self._move_leader,
            self._move_coordinator,
            self._take_broker_down,
            self._fill_disk,
        }

    def run(self) -> None:
        """Inject faults until the calm."""
        world = self._world
        self._plan_failed_sync()
        world.network.conditions = world.plan.conditions
        faults = list(self._faults)
        longest_ms = self._random.choice((400, 1_200, 3_000))
        while True:
            world.fibers.sleep_ms(self._random.randint(100, longest_ms))
            if world.is_calm or world.scheduler.now_us >= world.plan.trouble_ms * US_PER_MS:
                return
            self._random.choices(faults, list(self._faults.values()))[0]()

    def _later(self, low_ms: int, high_ms: int, action: Callable[[], None]) -> None:
        self._world.scheduler.after(self._random.randint(low_ms, high_ms) * US_PER_MS, action)

    # The cluster

    def _kill(self) -> None:
        self._world.nemesis("kill the cluster")
        self._world.server.kill(power=False)

    def _lose_power(self) -> None:
        self._world.nemesis("power loss")
        self._world.server.kill(power=True)

    def _lose_power_writing(self) -> None:
        operations = self._random.choice((0, 1, 2, 3, 5, 8, 13, 21))
        self._world.nemesis(f"power loss after {operations} more operations of the disk")
        self._world.disk.fuse = operations

    def _lose_power_ending(self) -> None:
        operations = self._random.randint(0, 9)
        name, ending = ("EndTxn", m.EndTxnRequest)
        if self._world.plan.share_groups:
            name, ending = ("ShareAcknowledge", m.ShareAcknowledgeRequest)
        self._world.nemesis(f"power loss {operations} operations of the disk after the next {name}")
        self._world.server.lose_power_at(ending.API_KEY, operations)

    def _pause_cluster(self) -> None:
        duration_ms = self._random.choice((300, 1_500, 6_000))
        self._world.nemesis(f"cluster paused for {duration_ms} ms")
        self._world.server.pause(duration_ms * US_PER_MS)

    def _jump(self) -> None:
        by_ms = self._random.choice((500, 5_000, 20_000))
        self._world.nemesis(f"clock ahead by {by_ms} ms")
        self._world.server.jump(by_ms)

    def _fill_disk(self) -> None:
        self._world.nemesis("disk full")
        self._world.disk.is_full = True
        self._later(100, 3_000, self._empty_disk)

    def _empty_disk(self) -> None:
        self._world.disk.is_full = False

    def _plan_failed_sync(self) -> None:
        """Make a sync fail in some worlds; drawn apart, so that the others stay as they are."""
        world, random = self._world, self._world.random_of("failed sync")
        if world.plan.is_undisturbed or not world.plan.trouble_ms or random.random() >= _FAILED_SYNC:
            return

        def fail() -> None:
            if not world.is_calm:
                world.disk.syncs_until_failure = random.choice((0, 1, 2, 3, 5, 8, 13, 21))
                world.nemesis(f"a sync fails after {world.disk.syncs_until_failure} more")

        world.scheduler.after(random.randint(0, world.plan.trouble_ms) * US_PER_MS, fail)

    # Brokers and leaders

    def _any_broker(self) -> int:
        # An isolated broker cannot become a leader; one that clients do not reach can.
        there = [broker_id for broker_id in self._world.broker_ids if broker_id not in self._world.outages.cut_off]
        up = [broker_id for broker_id in there if broker_id not in self._world.server.down]
        return self._random.choice(up or there)

    def _move(self, internal: bool) -> None:
        def move(cluster: Cluster) -> None:
            names = (
                sorted(INTERNAL_TOPICS & set(cluster.metadata.topics))
                if internal
                else sorted(set(cluster.metadata.topics) - INTERNAL_TOPICS)
            )
            found = [each for name in names for each in cluster.metadata.topics[name].topic_partitions()]
            chosen = self._random.choice(found)
            broker_id = self._any_broker()
            self._world.nemesis(f"{chosen} moves to broker {broker_id}")
            cluster.controller.move_leader(chosen, broker_id)
            self._world.faults.record(FaultKind.COORDINATOR_MOVED if internal else FaultKind.LEADER_MOVED)

        self._world.server.act(move)

    def _move_leader(self) -> None:
        self._move(False)

    def _move_coordinator(self) -> None:
        self._move(True)

    def _take_broker_down(self) -> None:
        world = self._world
        if len(world.broker_ids) - len(world.server.down) < 2:
            return
        broker_id = self._any_broker()
        world.nemesis(f"broker {broker_id} down")
        world.server.take_down(broker_id)
        self._later(0, 2_000, lambda: world.server.act(lambda cluster: self._lead_elsewhere(cluster, broker_id)))
        self._later(500, 6_000, lambda: world.server.bring_up(broker_id))

    def _lead_elsewhere(self, cluster: Cluster, broker_id: int) -> None:
        for name in sorted(cluster.metadata.topics):
            for partition, leadership in enumerate(cluster.metadata.topics[name].partitions):
                if leadership.leader == broker_id and broker_id in self._world.server.down:
                    cluster.controller.move_leader(TopicPartition(name, partition), self._any_broker())
                    internal = name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)
                    self._world.faults.record(FaultKind.COORDINATOR_MOVED if internal else FaultKind.LEADER_MOVED)

    # Clients and their links

    def _any_client(self) -> "Fiber | None":
        found = [fiber for fiber in self._world.fibers.all if not fiber.is_done and fiber.name != self.name]
        return self._random.choice(found) if found else None

    def _cut(self) -> None:
        world, fiber = self._world, self._any_client()
        if fiber is None:
            return
        world.nemesis(f"{fiber.host} is cut off")
        world.faults.record(FaultKind.PARTITIONED)
        world.network.cut(fiber.host)
        self._later(300, 5_000, lambda: world.network.heal(fiber.host))

    def _jump_client(self) -> None:
        world, fiber = self._world, self._any_client()
        if fiber is not None:
            by_ms = self._random.choice((-5_000, -500, 500, 5_000, 60_000))
            world.nemesis(f"the clock of {fiber.host} jumps by {by_ms} ms")
            world.faults.record(FaultKind.CLIENT_CLOCK)
            world.set_clock_of(fiber.host, by_ms)

    def _pause_client(self) -> None:
        world, fiber = self._world, self._any_client()
        if fiber is None:
            return
        world.nemesis(f"{fiber.name} is paused")
        world.faults.record(FaultKind.CLIENT_PAUSED)
        fiber.pause()
        self._later(300, 10_000, fiber.go_on)

    def _replace(self, fiber: "Fiber", begins_after_ms: int) -> bool:
        """Start another process with the same transactional id; return whether the client can be replaced."""
        self._successors += 1
        successor = getattr(self._world.actors.get(fiber.name), "successor", None)
        if successor is not None:
            self._world.start_actor(successor(f"{fiber.name}s{self._successors}", begins_after_ms))
        return successor is not None

    def _kill_client(self) -> None:
        fiber = self._any_client()
        if fiber is not None:
            self.kill_client(fiber, self._random.randint(0, 3_000))

    def kill_client(self, fiber: "Fiber", begins_after_ms: int) -> None:
        """Kill a client that another process can replace."""
        if self._replace(fiber, begins_after_ms):
            self._world.nemesis(f"{fiber.name} is killed")
            self._world.faults.record(FaultKind.CLIENT_KILLED)
            fiber.kill()

    def _make_zombie(self) -> None:
        world, fiber = self._world, self._any_client()
        if fiber is not None and self._replace(fiber, self._random.randint(0, 1_000)):
            world.nemesis(f"{fiber.name} is paused, and will wake up as a zombie")
            world.faults.record(FaultKind.ZOMBIE)
            fiber.pause()
            self._later(500, 12_000, fiber.go_on)

    def _reset_links(self) -> None:
        self._world.nemesis("all connections reset")
        self._world.network.reset()
