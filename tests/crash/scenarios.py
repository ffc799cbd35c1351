"""What happens to a cluster of three nodes while queries run and input flows: restarts, losses, pauses, cuts."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from tests.crash.case import Case
from tests.crash.streams import Streams, names_of
from tests.support.apache_cluster import GROUP, NODES, TRANSACTION, ApacheCluster

KILL_EVERY_S = 15
PAUSE_S = 20
ELECT_EVERY_S = 2
DOWN_S = 30
# How long a query that was lured may take to its next decision, if it comes to one at all.
LURED_S = 30
# Where the coordinators' node is killed, and how often in a round.
COMMIT_POINTS = ("driver.taken_over", "driver.before_decide", "driver.decision_flushed", "driver.mid_decide",
                 "driver.after_decide", "driver.after_complete")
# Where a driver has decided and completed a micro-batch, and Spark has not yet written that down.
DECIDED_POINTS = ("driver.after_complete", "driver.after_sweep")


@dataclass
class Scene:
    """What a scenario works with; `length` is 1 in a whole round and less in a short one."""

    cluster: ApacheCluster
    streams: Streams
    chance: random.Random
    length: float = 1
    cuts: int = 5

    def times(self, count: int) -> range:
        """Count to a number, or less far in a short round."""
        return range(max(1, round(count * self.length)))

    def let_pass(self, seconds: float) -> None:
        """Let the queries run for a while."""
        self.streams.let_pass(seconds)

    def any_node(self) -> int:
        """Draw a node."""
        return self.chance.choice(NODES)


def rolling_restart(scene: Scene) -> None:
    """Restart all nodes, one after the other."""
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
    """Send SIGSTOP to a node for 20 s: one that coordinates, as far as there is a choice."""
    for _ in scene.times(2):
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
    points = [*COMMIT_POINTS]
    scene.chance.shuffle(points)
    for number in scene.times(len(points)):
        scene.streams.hold(scene.streams.cases[0], points[number])
        assert scene.streams.is_held(scene.streams.cases[0]), f"no query comes to {points[number]}"
        node = coordinators(scene)[scene.chance.randrange(2)]
        scene.cluster.kill(node)
        scene.streams.release()
        scene.let_pass(scene.chance.uniform(0, 10))
        scene.cluster.start(node)
        scene.streams.wait_for_progress()
        scene.cluster.wait_in_sync()


def two_nodes_down(scene: Scene) -> None:
    """Send SIGKILL to two nodes and start them after 30 s."""
    for _ in scene.times(2):
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
    """Draw what happens next, again and again, while leaders are elected all the time."""
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
            # A cluster that is broken may refuse.
            with suppress(OSError):
                scene.cluster.move_leaders(scene.chance)
            scene.let_pass(ELECT_EVERY_S)
    scene.cluster.repair()


def restart_cut_off(scene: Scene) -> None:
    """Cut the coordinator off from its peers, let a run decide on the new one, and kill and restart the driver.

    The fresh driver has to do with the node that was cut off first, in most rounds: for a while it is the only one that
    takes clients.
    """
    cluster, streams, chance = scene.cluster, scene.streams, scene.chance
    for _ in range(scene.cuts):
        case = chance.choice(streams.cases)
        streams.wait_for_progress()
        _, group = names_of(case)
        former = cluster.wait_for_coordinator(GROUP, group)
        others = [number for number in NODES if number != former]
        cluster.cut(former)
        cluster.wait_for_coordinator(GROUP, group, without=[former])
        streams.wait_for_progress()
        streams.hold(case, chance.choice(DECIDED_POINTS))
        assert streams.is_held(case), "no micro-batch is completed"
        streams.kill_driver()
        case.release()
        is_lured = chance.random() < 0.8
        if is_lured:
            cluster.hide(*others)
        streams.start_driver()
        if is_lured:
            lure(scene, case, others)
        streams.wait_for_progress(2)
        cluster.heal(former)
        cluster.wait_in_sync()


def lure(scene: Scene, case: Case, others: list[int]) -> None:
    """Have only the former coordinator take clients where tasks, then the driver, ask for the newest decision."""
    scene.let_pass(scene.chance.uniform(2, 4))
    scene.streams.hold(case, "driver.taken_over")
    scene.cluster.show(*others)
    if not scene.streams.is_held(case, LURED_S):
        scene.streams.release()
        return
    scene.cluster.hide(*others)
    scene.streams.release()
    scene.let_pass(scene.chance.uniform(1, 3))
    scene.cluster.show(*others)


def coordinators(scene: Scene) -> tuple[int, int]:
    """Name the nodes that coordinate the first query's decisions: their transaction, and the pointer."""
    driver, group = names_of(scene.streams.cases[0])
    return (scene.cluster.wait_for_coordinator(TRANSACTION, driver), scene.cluster.wait_for_coordinator(GROUP, group))


class Scenario(NamedTuple):
    """One scenario; whether it is part of the short round, and of what length there."""

    name: str
    run: Callable[[Scene], None]
    short_length: float | None = None


SCENARIOS = (
    Scenario("rolling restart", rolling_restart),
    Scenario("kill a node every 15 s", kill_nodes, 0.25),
    Scenario("pause a node for 20 s", pause_node),
    Scenario("elect leaders every 2 s", elect_leaders, 0.25),
    Scenario("kill a coordinator in a commit", kill_coordinators, 0.2),
    Scenario("two nodes down for 30 s", two_nodes_down),
    Scenario("kill the driver", kill_driver),
    Scenario("all together", all_together),
    Scenario("cut off, driver restarted", restart_cut_off, 1),
)
