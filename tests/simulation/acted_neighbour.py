"""A query beside another query or job of the same topics, whose users do nothing to it.

It may have the same prefix and decision topic, run on the same workers, and have a name that begins as the other's.
"""

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.simulation.acted_query import JOB, QUERY, USERS_ACTS, ActedQuery

if TYPE_CHECKING:
    from tests.simulation.world import World

_STREAMS: Final = (QUERY[:-1] + "b", "00000000-0000-4000-8000-000000000000")
_JOBS: Final = (JOB + "2", JOB[:-1], f"{JOB}.run1", f"{QUERY}.nightly", QUERY[:8])
_PREFIXES: Final = ("sim", "sim", "sim", "si", "sim.sim", f"sim.{QUERY}")


class Neighbour(ActedQuery):
    """The other query."""

    label = "near"

    def __init__(self, world: "World", kinds: Collection[str]) -> None:
        super().__init__(world, ())
        self.query, self.job = self.random.choice(_STREAMS), self.random.choice(_JOBS)
        self.options["transactionalIdPrefix"] = self.random.choice(_PREFIXES)
        self.micro_batches += self.mode != "job" and 3
        # What the other's users do explains nothing.
        self.suffered = [kind for kind in kinds if kind not in USERS_ACTS]

    @property
    def run_name(self) -> str:
        number = f"{self.run_number:016x}"
        return number if self.mode == "job" else f"{number[:8]}-{number[8:12]}-4000-8000-{number[4:]}"

    def start(self, other: ActedQuery) -> None:
        """Start it, perhaps on the workers of the other one."""
        if self.random.random() < 0.5:
            self._spark.executors.share(other._spark.executors)
        self.world.fibers.sleep_ms(self.random.choice((1, 1, 500, 3_000)))
        self.run()


class QueryWithNeighbour(ActedQuery):
    """The query that is acted upon, and what runs beside it if that is one of the acts."""

    def __init__(self, world: "World", kinds: Collection[str]) -> None:
        super().__init__(world, kinds)
        self._neighbour = Neighbour(world, kinds) if "neighbour" in kinds else None

    def run(self) -> None:
        """Run the query, and wait for the other one."""
        if self._neighbour is None:
            super().run()
            return
        beside = self.world.fibers.spawn("neighbour", partial(self._neighbour.start, self))
        super().run()
        while not beside.is_done:
            self.world.fibers.sleep_ms(50)

    def judge(self, explained: dict[str, str]) -> Iterator[str]:
        yield from super().judge(explained)
        if self._neighbour is not None:
            beside = self._neighbour
            beside.journal.deleted, beside.kinds = self.journal.deleted, beside.suffered
            yield from (f"beside it: {each}" for each in beside.judge_rows(self.journal.seen, explained))
