"""Run scenarios on three nodes of Apache Kafka, and count what readers see and what stopped the queries."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.drivers import Driver, DriverPool
from tests.crash.scenarios import SCENARIOS, Scenario, Scene
from tests.crash.streams import Stop, Streams
from tests.crash.world import NO_ANSWER, World
from tests.support.apache_cluster import REPLICAS, ApacheCluster, apache_cluster
from tests.support.broker_processes import APACHE_SETTINGS
from tests.support.spark_eos.brokers import LATEST_TRANSACTION_VERSION, finalize

KIND = "apache3"
# The prefix of failures that readers do not notice.
STOPPED = "a query stopped:"
QUERIES = 2
TRANSACTION_TIMEOUT = "300s"
# Several partitions of each internal topic, so that each node leads some.
PARTITION_COUNTS = {"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "6"}


@dataclass(frozen=True)
class Place:
    """The address of the cluster for queries, or for the judge."""

    address: str


@dataclass
class Outcome:
    """The result of one scenario: no query may stop, since all outages are shorter than the queries' deadlines."""

    scenario: str
    rows: int = 0
    seconds: float = 0
    stops: list[Stop] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ended_hanging: int = 0

    @property
    def failures(self) -> list[str]:
        """Return what was wrong."""
        return [f"{self.scenario}: {text}" for text in (*self.wrong, *(f"{STOPPED} {stop}" for stop in self.stops))]


class ClusterRounds:
    """Scenarios in one driver after another, with so many `cuts` in each round; `names` selects among them."""

    def __init__(
        self,
        pool: DriverPool,
        chance: random.Random,
        say: Callable[[str], None],
        *,
        cuts: int,
        names: Sequence[str] = (),
        is_short: bool = False,
    ) -> None:
        self._pool = pool
        self._chance = chance
        self._say = say
        self._cuts = cuts
        self._is_short = is_short
        self._scenarios = [
            each
            for each in SCENARIOS
            if not names or any(name in each.name for name in names)
            if each.short_length is not None or not is_short
        ]
        self._driver: Driver | None = None
        self.outcomes: list[Outcome] = []

    def total(self) -> int:
        """Count the runs of a scenario."""
        return len(self.outcomes)

    @property
    def ended_hanging(self) -> int:
        """Count the transactions that Apache Kafka left hanging."""
        return sum(each.ended_hanging for each in self.outcomes)

    def table(self) -> str:
        """Return the totals of all rounds, scenario by scenario."""
        lines = [f"{'':30} | rounds |    rows | stops | wrong | seconds"]
        for scenario in SCENARIOS:
            those = [each for each in self.outcomes if each.scenario == scenario.name]
            if those:
                lines.append(
                    f"{scenario.name:30} | {len(those):6} | {sum(each.rows for each in those):7} | "
                    f"{sum(len(each.stops) for each in those):5} | {sum(len(each.wrong) for each in those):5} | "
                    f"{sum(each.seconds for each in those):7.0f}"
                )
        return "\n".join(lines)

    def run(self, _kind: str, folder: Path, transaction_version: int) -> list[str]:
        """Run each scenario once on a fresh cluster, and return what went wrong."""
        failures = []
        with running_cluster(folder, transaction_version) as cluster:
            for scenario in self._scenarios:
                outcome = self._run(scenario, cluster, folder)
                self._say(f"  {line(outcome)}")
                self.outcomes.append(outcome)
                failures += outcome.failures
        return failures

    def _run(self, scenario: Scenario, cluster: ApacheCluster, folder: Path) -> Outcome:
        outcome, began = Outcome(scenario.name), time.monotonic()
        here = World(
            Place(cluster.nodes[1].address),
            Place(cluster.bootstrap_servers),
            folder,
            forgets_markers=True,
            replicas=REPLICAS,
        )
        here.was_killed = True
        cases = here.new_cases(QUERIES, 0, transactionTimeout=TRANSACTION_TIMEOUT, **scenario.options)
        for case in cases:
            case.endless = True
        streams = Streams(self._pool, self._driver or self._pool.take(), cases, self._say)
        try:
            self._break(scenario, cluster, streams)
            streams.finish(here.end_left_hanging_periodically)
            outcome.wrong = here.judge(cases)
        except (AssertionError, *NO_ANSWER) as failure:
            # The other scenarios continue.
            outcome.wrong.append(f"not judged: {failure}")
            streams.release()
            streams.kill_driver()
            cluster.repair()
        finally:
            streams.close()
        self._driver = None if streams.driver.is_killed else streams.driver
        outcome.rows = sum(case.expected.total() for case in cases)
        outcome.seconds = time.monotonic() - began
        outcome.stops = streams.stops
        outcome.ended_hanging = len({(each.transactional_id, each.place.producer_epoch) for each in here.ended_hanging})
        return outcome

    def _break(self, scenario: Scenario, cluster: ApacheCluster, streams: Streams) -> None:
        length = scenario.short_length if self._is_short else None
        streams.wait_for_progress(2)
        scenario.run(Scene(cluster, streams, self._chance, self._say, length or 1, self._cuts))
        cluster.repair()
        streams.wait_for_progress()


@contextmanager
def running_cluster(folder: Path, transaction_version: int = LATEST_TRANSACTION_VERSION) -> Iterator[ApacheCluster]:
    """Run a cluster with a feature level until the block ends."""
    with apache_cluster(folder / "cluster", APACHE_SETTINGS | PARTITION_COUNTS) as cluster:
        if transaction_version != LATEST_TRANSACTION_VERSION:
            finalize(cluster.nodes[1].address, transaction_version)
        yield cluster


def line(outcome: Outcome) -> str:
    """Format one outcome."""
    verdict = "held" if not outcome.failures else "FAILED"
    return (
        f"{outcome.scenario:30} {outcome.rows:6} rows, {len(outcome.stops):3} stops, "
        f"{outcome.ended_hanging:3} ended for Kafka, {outcome.seconds:4.0f} s: {verdict}"
    )
