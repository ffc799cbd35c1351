"""Faults of a cluster of three nodes while queries run and input arrives: restarts, losses, pauses, cuts."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tests.crash.case import Case
from tests.crash.streams import Streams, names_of
from tests.support.apache_cluster import GROUP, NODES, TRANSACTION, ApacheCluster

KILL_EVERY_S = 15
PAUSE_S = 20
ELECT_EVERY_S = 2
DOWN_S = 30
# How long a query may take from stale brokers to its next decision, if it makes one.
STALE_S = 30
STALE_SHARE = 0.8
# An isolated node keeps writers waiting until their request timeout; by default half a minute, repeatedly.
IMPATIENT = MappingProxyType({"kafka_request_timeout_ms": "8000"})
# Steps of a commit at which faults occur.
COMMIT_POINTS = (
    "driver.taken_over",
    "driver.before_decide",
    "driver.decision_flushed",
    "driver.mid_decide",
    "driver.after_decide",
    "driver.after_complete",
)
# Points after a driver has decided and completed a micro-batch, and before Spark has recorded that.
DECIDED_POINTS = ("driver.after_complete", "driver.after_sweep")


@dataclass
class Scene:
    """What a scenario works with; `length` is 1 in a full round and less in a short one."""

    cluster: ApacheCluster
    streams: Streams
    chance: random.Random
    say: Callable[[str], None]
    length: float = 1
    cuts: int = 5

    def times(self, count: int) -> range:
        """Return a range of this length, shorter in a short round."""
        return range(max(1, round(count * self.length)))

    def points(self, count: int) -> list[str]:
        """Draw steps of a commit, fewer in a short round."""
        return self.chance.sample(COMMIT_POINTS, len(self.times(count)))

    def let_pass(self, seconds: float) -> None:
        """Let the queries run for a while."""
        self.streams.let_pass(seconds)

    def any_node(self) -> int:
        """Draw a node."""
        return self.chance.choice(NODES)


def rolling_restart(scene: Scene) -> None:
    """Restart all nodes, one after another."""
    scene.cluster.restart_in_turn()


def kill_nodes(scene: Scene) -> None:
    """Send SIGKILL to one node every 15 s, and start it again at once."""
    for _ in scene.times(4):
        number = scene.any_node()
        scene.cluster.kill(number)
        scene.cluster.start(number)
        scene.let_pass(KILL_EVERY_S)
    scene.cluster.wait_in_sync()


def pause_node(scene: Scene) -> None:
    """Send SIGSTOP for 20 s to a node that coordinates a decision, while it is made."""
    for point in scene.points(2):
        with held_at(scene, point):
            number = coordinators(scene)[scene.chance.randrange(2)]
            scene.cluster.pause(number)
        scene.let_pass(PAUSE_S)
        scene.cluster.resume(number)
        scene.streams.wait_for_progress()
    scene.cluster.wait_in_sync()


def elect_leaders(scene: Scene) -> None:
    """Elect other leaders for all partitions every 2 s."""
    for _ in scene.times(20):
        scene.cluster.move_leaders(scene.chance)
        scene.let_pass(ELECT_EVERY_S)


def kill_coordinators(scene: Scene) -> None:
    """Send SIGKILL to the node that coordinates the decision, or its pointer, as a micro-batch commits."""
    for point in scene.points(len(COMMIT_POINTS)):
        with held_at(scene, point):
            node = coordinators(scene)[scene.chance.randrange(2)]
            scene.cluster.kill(node)
        scene.let_pass(scene.chance.uniform(0, 10))
        scene.cluster.start(node)
        scene.streams.wait_for_progress()
        scene.cluster.wait_in_sync()


def two_nodes_down(scene: Scene) -> None:
    """Send SIGKILL to two nodes as a micro-batch commits, and start them after 30 s."""
    for point in scene.points(2):
        with held_at(scene, point):
            down = scene.chance.sample(NODES, 2)
            scene.cluster.kill(*down)
        scene.let_pass(DOWN_S)
        scene.cluster.start(*down)
        scene.streams.wait_for_progress()
        scene.cluster.wait_in_sync()


def kill_driver(scene: Scene) -> None:
    """Send SIGKILL to the driver."""
    for _ in scene.times(3):
        scene.streams.wait_for_progress()
        scene.let_pass(scene.chance.uniform(0, 2))
        scene.streams.kill_driver()
        scene.streams.start_driver()
    scene.streams.wait_for_progress()


def all_together(scene: Scene) -> None:
    """Draw one fault after another, while leaders are elected all the time."""
    for _ in scene.times(8):
        number = scene.any_node()
        what = scene.chance.choice(("kill", "pause", "cut", "stop", "kill two", "kill driver"))
        if what == "kill driver":
            scene.streams.kill_driver()
            scene.streams.start_driver()
        elif what in ("kill", "kill two"):
            down = [number] if what == "kill" else scene.chance.sample(NODES, 2)
            scene.cluster.kill(*down)
            scene.let_pass(scene.chance.uniform(0, 10))
            scene.cluster.start(*down)
        elif what == "stop":
            scene.cluster.stop(number)
            scene.cluster.start(number)
        else:
            (scene.cluster.pause if what == "pause" else scene.cluster.cut)(number)
            scene.let_pass(scene.chance.uniform(1, PAUSE_S))
            (scene.cluster.resume if what == "pause" else scene.cluster.heal)(number)
        for _ in range(scene.chance.randrange(4)):
            # A broken cluster may refuse.
            with suppress(OSError):
                scene.cluster.move_leaders(scene.chance)
            scene.let_pass(ELECT_EVERY_S)
    scene.cluster.repair()


def restart_cut_off(scene: Scene) -> None:
    """Cut the coordinator off from its peers, let a run decide on the new one, and kill and restart the driver.

    In most rounds the first driver does not reach the isolated node, and for a while that node is the only one that the
    second driver reaches.
    """
    cluster, streams, chance = scene.cluster, scene.streams, scene.chance
    for number in range(scene.cuts):
        case = chance.choice(streams.cases)
        streams.wait_for_progress()
        _, group = names_of(case)
        former = cluster.wait_for_coordinator(GROUP, group)
        is_misled = chance.random() < STALE_SHARE
        if is_misled:
            # A coordinator that waits for its peers to commit an offset does not answer OffsetFetch for that partition.
            cluster.hide(former)
        cluster.cut(former)
        scene.say(f"cut {number + 1}: node {former}")
        cluster.wait_for_coordinator(GROUP, group, without=[former])
        streams.wait_for_progress()
        streams.hold(case, chance.choice(DECIDED_POINTS))
        assert streams.is_held(case), "no micro-batch is completed"
        streams.kill_driver()
        case.release()
        scene.say(f"{case.prefix} is held after its decision")
        cluster.show(former)
        if is_misled:
            start_driver_with_stale_brokers(scene, case, [number for number in NODES if number != former])
        else:
            streams.start_driver()
        scene.say("the fresh driver runs" + (", with stale brokers" if is_misled else ""))
        streams.wait_for_progress(2)
        scene.say("progress")
        cluster.heal(former)
        cluster.wait_in_sync()


def start_driver_with_stale_brokers(scene: Scene, case: Case, others: list[int]) -> None:
    """Start a driver, and hide all nodes but the former coordinator when tasks request the newest decision.

    If the query gets that far, the same happens when the driver requests it: the responses are outdated.
    """
    scene.streams.start_driver((case, "task.begin"))
    for point in ("task.begin", "driver.taken_over"):
        if point != "task.begin":
            scene.streams.hold(case, point)
        is_there = scene.streams.is_held(case, STALE_S)
        if is_there:
            # The other tasks reach the same point.
            scene.let_pass(1)
            scene.cluster.hide(*others)
        scene.streams.release()
        if is_there:
            scene.let_pass(scene.chance.uniform(1, 3))
            scene.cluster.show(*others)
        scene.say(f"  {case.prefix} {'asks' if is_there else 'does not ask'} the former coordinator at {point}")


@contextmanager
def held_at(scene: Scene, point: str) -> Iterator[None]:
    """Hold the first query at a step of a commit until the block ends."""
    case = scene.streams.cases[0]
    scene.streams.hold(case, point)
    assert scene.streams.is_held(case), f"{case.prefix} does not reach {point}"
    yield
    scene.streams.release()


def coordinators(scene: Scene) -> tuple[int, int]:
    """Return the nodes that coordinate the first query's decisions: their transaction, and the pointer."""
    driver, group = names_of(scene.streams.cases[0])
    return (scene.cluster.wait_for_coordinator(TRANSACTION, driver), scene.cluster.wait_for_coordinator(GROUP, group))


class Scenario(NamedTuple):
    """One scenario, its length in the short round, if it is part of that, and options of its queries."""

    name: str
    run: Callable[[Scene], None]
    short_length: float | None = None
    options: Mapping[str, str] = MappingProxyType({})


SCENARIOS = (
    Scenario("rolling restart", rolling_restart),
    Scenario("kill a node every 15 s", kill_nodes),
    Scenario("pause a node for 20 s", pause_node),
    Scenario("elect leaders every 2 s", elect_leaders, 0.25),
    Scenario("kill a coordinator in a commit", kill_coordinators, 0.2),
    Scenario("two nodes down for 30 s", two_nodes_down),
    Scenario("kill the driver", kill_driver),
    Scenario("all together", all_together),
    Scenario("cut off, driver restarted", restart_cut_off, 1, IMPATIENT),
)
