"""A world: built from a seed, run through its faults, and checked at the end.

The seed decides everything: the actors, the faults and their times. After the trouble come calm and rest: every client
finishes, every open transaction times out, and then the checks must find nothing wrong.
"""

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from broker_core.broker.cluster import Cluster
from broker_core.broker.metadata_records import ConfigResource
from broker_core.config import BrokerConfig
from broker_core.simulation.entropy import SeededEntropy
from broker_core.types import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from tests.simulation.decided import DecidedDeath
from tests.simulation.fibers import Fibers
from tests.simulation.history import NEMESIS, History
from tests.simulation.markers import MarkerWatch
from tests.simulation.odd_answers import OddAnswers
from tests.simulation.outages import Outages
from tests.simulation.plan import STALE_BROKERS, TOPIC, Plan, cast, draw
from tests.simulation.share_judge import is_done
from tests.simulation.share_plan import draw_shares
from tests.simulation.share_watch import ShareWatch
from tests.simulation.sink_network import SinkProcesses, failpoints_of
from tests.support.history.format import to_line
from tests.support.simulated.clock import SimulatedClock
from tests.support.simulated.disk import SimulatedDisk
from tests.support.simulated.faults import NO_FAULTS, FaultCounts, FaultKind
from tests.support.simulated.network import SimulatedNetwork
from tests.support.simulated.scheduler import US_PER_MS, Scheduler
from tests.support.simulated.server import SimulatedServer, is_disk_trouble

Found = TypeVar("Found")
_SECOND_US = 1_000 * US_PER_MS
_FINISH_LIMIT_US = 400 * _SECOND_US
# Longer than any transaction may stay open plus the time until the coordinators notice.
REST_US = 40 * _SECOND_US


@dataclass(frozen=True)
class Outcome:
    """The result of one seed; a good one has no problems."""

    seed: int
    problems: list[str]
    digest: str
    event_count: int
    faults: FaultCounts
    lines: list[str] | None
    history: History


class World:
    """The parts of one simulated world."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.scheduler = Scheduler(plan.seed, keep_trace=keep_trace)
        self.faults = FaultCounts()
        self.fibers = Fibers(self.scheduler)
        self.history = History()
        self.clock = SimulatedClock(self.scheduler)
        self.network = SimulatedNetwork(self.scheduler, self.faults)
        self.disk = SimulatedDisk(self.random_of("disk"), self.faults)
        self.server = SimulatedServer(
            network=self.network,
            disk=self.disk,
            entropy=SeededEntropy(plan.seed),
            clock=self.clock,
            config=BrokerConfig().override(plan.settings),
            broker_count=plan.brokers,
        )
        self.broker_ids = list(range(1, plan.brokers + 1))
        self.problems: list[str] = []
        self.is_calm = False
        self.is_quiet = False
        # What the actors communicate outside of Kafka.
        self.flags: set[str] = set()
        # Producers of records that no coordinator knows.
        self.rogues: set[int] = set()
        # Which clients have held a producer id, and the protocol they speak.
        self.users: dict[int, set[tuple[str, int]]] = {}
        self.watch = MarkerWatch()
        self.shares = ShareWatch(self.problems)
        self.death = DecidedDeath(self)
        self.outages = Outages(self)
        self.odd_answers = OddAnswers()
        self.processes = SinkProcesses(self)
        self.actors: dict[str, Any] = {}
        self._owners: dict[str, int] = {}
        self._clock_offsets_ms: dict[str, int] = {}
        self._process_count = 0
        self._answers: dict[str, Counter[bytes]] = defaultdict(Counter)

    # What actors use

    def random_of(self, name: str) -> Random:
        """Return a separate source of randomness, so that other draws do not change it."""
        return Random(f"{self.plan.seed}/{name}")

    def record(self, process: str, kind: str, function: str, value: Any = None, **details: Any) -> None:
        """Append a line to the history and to the trace."""
        op = self.history.note(self.scheduler.now_us * 1_000, process, kind, function, value, **details)
        self.scheduler.note(to_line(op))

    def claim(self, transactional_id: str) -> None:
        """Count one more process that will use an id."""
        self._owners[transactional_id] = self._owners.get(transactional_id, 0) + 1

    def has_rival(self, transactional_id: str) -> bool:
        """Return whether more than one process uses an id."""
        return self._owners.get(transactional_id, 0) > 1

    def share_group_is_done(self, group: str) -> bool:
        """Return whether the leaders have nothing left to give to a share group; they must have loaded its state."""
        return self.server.is_running and is_done(self.server.cluster, group, TOPIC)

    def all_done(self, prefix: str) -> bool:
        """Return whether all actors with this prefix have ended."""
        return all(fiber.is_done for fiber in self.fibers.all if fiber.name.startswith(prefix))

    def start_actor(self, actor: Any) -> None:
        """Start an actor."""
        self.actors[actor.name] = actor
        fiber = self.fibers.spawn(actor.name, actor.run)
        fiber.process_id = self.new_process_id()
        fiber.clock_offset_ms = self.clock_offset_of(actor.name)

    def new_process_id(self) -> int:
        """Return an id that no process of this world has had."""
        self._process_count += 1
        return self._process_count

    def clock_offset_of(self, host: str) -> int:
        """Return the error of a machine's clock."""
        return self.clock.offset_ms if self.is_calm else self._clock_offsets_ms.get(host, 0)

    def answers_to(self, client: str) -> Counter[bytes]:
        """Return how often each content of a client's requests got a response."""
        return self._answers[client]

    def set_clock_of(self, host: str, by_ms: int) -> None:
        """Let a machine's clock jump."""
        self._clock_offsets_ms[host] = self.clock_offset_of(host) + by_ms
        for fiber in self.fibers.all:
            if fiber.host == host:
                fiber.clock_offset_ms += by_ms

    def nemesis(self, text: str) -> None:
        """Record a fault in the history."""
        self.record("nemesis", "info", NEMESIS, text)

    def reach(self, point: str, micro_batch: int | None = None) -> None:
        """Act at a failpoint that the sink reaches."""
        driver = self.actors.get(self.fibers.current.name)
        if self.plan.dies_decided and driver is not None:
            self.death.reach(point, driver.messages)

    # The run

    def boot(self) -> None:
        """Start the cluster and create the topics."""
        self.server.died = self._restart_later
        assert self.server.start()

        def make(cluster: Cluster) -> None:
            for topic, (partitions, config) in (self.plan.topics | self.plan.journals).items():
                cluster.controller.create_topic(topic, partitions, config)
            for name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
                cluster.controller.ensure_topic(name)
            for group, (settings, _) in self.plan.share_groups.items():
                cluster.controller.ensure_topic(SHARE_GROUP_STATE_TOPIC)
                cluster.metadata.configure(ConfigResource.GROUP, group, settings)

        self.server.act(make)

    def _restart_later(self, power: bool) -> None:
        random = self.scheduler.random
        if power and not self.is_calm and random.random() < 0.2:
            self.clock.jump(-random.randint(1, 20_000))
            self.faults.record(FaultKind.CLOCK_BACK)
        self.scheduler.after(random.randint(50, 2_500) * US_PER_MS, self._restart)

    def _restart(self) -> None:
        if self.server.is_running:
            return
        if not self.is_calm and self.scheduler.random.random() < 0.2:
            # Power may fail again while the logs are being repaired.
            self.disk.fuse = self.scheduler.random.randint(0, 60)
        if self.server.start():
            self.disk.fuse = None
            self.faults.record(FaultKind.RESTARTED)

    def live(self) -> None:
        """Run the phases: trouble, calm, rest."""
        for actor in cast(self):
            self.start_actor(actor)
        self.outages.begin()
        self.scheduler.run(max(self.plan.trouble_ms, self.plan.outages_ms) * US_PER_MS)
        self._calm_down()
        limit_us = self.scheduler.now_us + _FINISH_LIMIT_US
        while not all(fiber.is_done for fiber in self.workers) and self.scheduler.step(limit_us):
            pass
        self.problems += [
            f"{fiber.name} did not end within {_FINISH_LIMIT_US // _SECOND_US} s of calm"
            for fiber in self.workers
            if not fiber.is_done
        ]
        self.scheduler.run(self.scheduler.now_us + REST_US)
        self.is_quiet = True
        while not all(fiber.is_done for fiber in self.fibers.all) and self.scheduler.step(limit_us + 2 * REST_US):
            pass

    @property
    def workers(self) -> list[Any]:
        """Return the fibers that must end by themselves."""
        return [fiber for fiber in self.fibers.all if not fiber.name.startswith("reader")]

    def _calm_down(self) -> None:
        self.is_calm = True
        self.nemesis("calm")
        self.network.conditions = NO_FAULTS
        self.disk.is_full = False
        self.disk.fuse = self.disk.syncs_until_failure = None
        self.outages.end()
        self.network.heal_all()
        for broker_id in self.broker_ids:
            self.server.bring_up(broker_id)
        for fiber in self.fibers.all:
            fiber.clock_offset_ms = self.clock.offset_ms
            fiber.go_on()
        if not self.server.is_running:
            self.scheduler.after(0, self._restart)

    def do(self, work: Callable[[], Found], process_id: int | None = None) -> Found:
        """Run a function in a client's process, to its end: return its result, or raise its error."""
        found: list[Found] = []
        fiber = self.fibers.spawn(f"client{len(self.fibers.all)}", lambda: found.append(work()))
        fiber.process_id = self.new_process_id() if process_id is None else process_id
        while not fiber.is_done:
            assert self.scheduler.step(self.scheduler.now_us + _FINISH_LIMIT_US)
        if self.fibers.failures:
            raise self.fibers.failures.pop()[1]
        return found[0]

    def note_failures(self) -> None:
        """Add to the problems what clients and the broker did not expect."""
        self.problems += [f"{name}: {type(error).__name__}: {error}" for name, error in self.fibers.failures]
        self.problems += [f"the broker failed: {error!r}" for error in self.server.bugs]

    def outcome(self) -> Outcome:
        """Return what became of the world."""
        scheduler = self.scheduler
        return Outcome(
            self.plan.seed,
            self.problems,
            scheduler.digest,
            scheduler.event_count,
            self.faults,
            scheduler.lines,
            self.history,
        )

    def run_fiber(self, name: str, work: Any) -> None:
        """Run one more function of a client to its end."""
        fiber = self.fibers.spawn(name, work)
        limit_us = self.scheduler.now_us + _FINISH_LIMIT_US
        while not fiber.is_done and self.scheduler.step(limit_us):
            pass
        if not fiber.is_done:
            self.problems.append(f"{name} did not end")


@contextlib.contextmanager
def calm_world(plan: Plan, *, keep_trace: bool = False) -> Iterator[World]:
    """Start a world without faults, in which a test says what happens."""
    world = World(plan, keep_trace=keep_trace)
    with failpoints_of(world), world.watch.watching():
        try:
            world.boot()
            world.is_calm = True
            world.network.conditions = NO_FAULTS
            yield world
        finally:
            world.fibers.close()


def play(
    seed: int,
    *,
    keep_trace: bool = False,
    without_trouble: bool = False,
    stale_brokers: bool = STALE_BROKERS,
    shares: bool = False,
    judged: bool = True,
) -> Outcome:
    """Run one seed to its end and judge it; without trouble, the calm begins at once.

    With `shares` the world is one of share groups. The judges watch functions of the broker by replacing them, which a
    compiled broker does not allow: such a world is not `judged`.
    """
    # The judges know the world; the world does not know the judges.
    from tests.simulation.judge import judge

    plan = draw_shares(seed) if shares else draw(seed, stale_brokers=stale_brokers)
    world = World(replace(plan, trouble_ms=0, outages_ms=0) if without_trouble else plan, keep_trace=keep_trace)
    with listening() as complaints, failpoints_of(world), world.watch.watching(), world.shares.watching():
        try:
            world.boot()
            world.live()
            world.note_failures()
            if judged and not world.problems:
                world.problems += judge(world)
        finally:
            world.fibers.close()
    world.problems += complaints
    return world.outcome()


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Collect the exceptions that the core logged and survived, except those that the disk explains."""
    complaints: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if error is not None and not is_disk_trouble(error):
                complaints.append(f"{record.getMessage()}: {error!r}")

    ears = {logging.getLogger("broker_core"): Ear(logging.ERROR), logging.getLogger("spark_eos"): logging.NullHandler()}
    were = {logger: logger.propagate for logger in ears}
    for logger, ear in ears.items():
        logger.addHandler(ear)
        logger.propagate = False
    try:
        yield complaints
    finally:
        for logger, ear in ears.items():
            logger.removeHandler(ear)
            logger.propagate = were[logger]
