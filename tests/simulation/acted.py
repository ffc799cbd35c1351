"""What is acted upon in a world: a query or job that users, operators and the cluster act on, by a seed."""

import re
from collections.abc import Collection, Iterator
from random import Random
from typing import Any, Final

from tests.simulation.fibers import Fiber
from tests.simulation.world import REST_US, World

# Nothing happens to a query in its last runs.
RUNS, RUNS_WITH_ACTS = 12, 8
# Words that no error has.
NOTHING: Final = "(?!)"


class Acted:
    """A query with its acts; a subclass runs it and judges what came of it."""

    # What distinguishes the queries of a world.
    label = ""

    def __init__(self, world: World, kinds: Collection[str]) -> None:
        self.world = world
        self.random = Random(f"acts/{world.plan.seed}{self.label}")
        self.kinds = kinds
        self.acts: list[str] = []
        self.run_number = 0
        self.error: Exception | None = None
        self.options: dict[str, str] = {
            "kafka.bootstrap.servers": ",".join(f"broker{each}:9092" for each in world.broker_ids),
            "kafka.request.timeout.ms": "2000",
            "kafka.default.api.timeout.ms": "10000",
        }

    def note(self, text: str) -> None:
        """Record an act."""
        self.acts.append(f"{self.world.scheduler.now_us / 1e6:.3f} {text}")
        self.world.scheduler.note(f"act: {text}")

    def happens(self, kind: str, chance: float = 0.3) -> bool:
        """Return whether an act of this kind is due."""
        is_due = kind in self.kinds and self.run_number <= RUNS_WITH_ACTS and self.random.random() < chance
        if is_due:
            self.note(kind)
        return is_due

    def logs_of(self, topic: str) -> Iterator[Any]:
        """Return the logs of a topic, if it exists."""
        cluster = self.world.server.cluster
        found = cluster.metadata.topics.get(topic)
        for place in found.topic_partitions() if found is not None else ():
            yield cluster.logs.get(place, self.world.clock.now_ms())

    def run(self) -> None:
        """Run again and again until it is done, or has stopped too often."""
        raise NotImplementedError

    def reach(self, point: str, _: int | None = None) -> None:
        """Act at a failpoint."""
        raise NotImplementedError

    def note_deletion(self, log: Any, end: int) -> None:
        """Remember what readers saw of a log before an offset: it is about to be deleted."""
        raise NotImplementedError

    def note_kept(self, log: Any) -> None:
        """Take back that what is visible in a log was deleted."""
        raise NotImplementedError

    def note_hanging(self) -> None:
        """Remember that what is open now may hang."""

    def any_topic(self) -> str:
        """Choose a topic that the cluster's acts are for."""
        raise NotImplementedError

    def play_out(self, fibers: Collection[Fiber], limit_us: int, explained: dict[str, str]) -> None:
        """Let fibers end and the world rest, and note what is wrong in the end; see `judge`."""
        world = self.world
        until_us = world.scheduler.now_us + limit_us
        while not all(each.is_done for each in fibers) and world.scheduler.step(until_us):
            pass
        world.problems += [f"{each.name} did not end" for each in fibers if not each.is_done]
        world.scheduler.run(world.scheduler.now_us + 2 * REST_US)
        world.note_failures()
        if not world.problems:
            world.problems += self.judge(explained)

    def unexplained(self, explained: dict[str, str]) -> Iterator[str]:
        """Yield what is wrong with its last error: no act that was done has words of it."""
        if self.error is not None and not any(re.search(explained[kind], str(self.error)) for kind in self.kinds):
            yield f"nothing that was done explains why it stops: {self.error}"

    def judge(self, explained: dict[str, str]) -> Iterator[str]:
        """Yield what is wrong in the end; `explained` has the words of an error that each kind of act explains."""
        raise NotImplementedError
