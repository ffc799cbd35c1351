"""A world drawn from its seed: the cluster, its settings, its clients, and the rate of faults."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation import decided
from tests.simulation.administrators import AdministratorActor, RogueActor
from tests.simulation.client import Client
from tests.simulation.history import READ_UNCOMMITTED
from tests.simulation.nemesis import Nemesis
from tests.simulation.producers import CLASSIC, V2, ProducerActor, TransactionalProducer, recalled
from tests.simulation.readers import ReaderActor
from tests.simulation.seeds import KEPT
from tests.simulation.share_members import ShareMemberActor
from tests.simulation.sink import DECISIONS, query
from tests.simulation.sink import GROUP as SINK_GROUP
from tests.simulation.workers import GROUP, WorkerActor
from tests.support.history.format import READ_COMMITTED
from tests.support.simulated.faults import FaultKind, NetworkConditions

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPIC, INPUT, OUTPUT, SUNK = "t", "in", "out", "sunk"
PARTITIONS = 2
_TIMEOUTS_MS = (4_000, 8_000)
# Worlds with a query are never undisturbed, so that about a tenth of all worlds are.
_UNDISTURBED = 0.14
_DIES_DECIDED = 0.3
# Hurried producers write more transactions: a late request rarely meets a later transaction.
_HURRIED_TIMES = 3
# Brokers with outdated responses are a known risk for the sink: it writes rows twice until it reads again after its
# InitProducerId. True adds them to the worlds with outages, as `python -m tests.simulation --stale` does.
STALE_BROKERS = False
SWITCHED_OFF = frozenset() if STALE_BROKERS else frozenset({FaultKind.STALE_BROKER})
# The seeds with a description keep their worlds.
_KEPT = {seed for seed, _ in KEPT}
_VERIFICATION = "transaction.partition.verification.enable"


@dataclass(frozen=True)
class Plan:
    """The drawn settings of a world."""

    seed: int
    brokers: int
    settings: Mapping[str, str]
    # Each with its partitions and settings; journals are topics that the readers do not read.
    topics: dict[str, tuple[int, Mapping[str, str]]]
    journals: dict[str, tuple[int, Mapping[str, str]]]
    groups: tuple[str, ...]
    trouble_ms: int
    conditions: NetworkConditions
    producers: tuple[tuple[str, int], ...]
    workers: tuple[int, ...]
    has_administrator: bool
    changes_features: bool
    has_rogue: bool
    has_query: bool
    is_hurried: bool
    # Only the network disturbs the cluster, and all clients use the new protocol: no marker may be repeated there.
    is_undisturbed: bool = False
    # The query's first driver dies between a decision and its completion, and one of its transactions times out early.
    dies_decided: bool = False
    # How long coordinators and leaders stay offline; such a world has no other faults after its trouble.
    outages_ms: int = 0
    has_stale_brokers: bool = False
    # The share groups that read the topic, with their settings, and the number of members of each.
    share_groups: Mapping[str, tuple[Mapping[str, str], int]] = field(default_factory=dict)

    @property
    def verifies(self) -> bool:
        """Return whether the broker verifies the transactions of the old protocol's batches."""
        return self.settings.get(_VERIFICATION) != "false"


def cast(world: "World") -> Iterator[Any]:
    """Make all actors of a world."""
    plan = world.plan
    for number, (topic, protocol) in enumerate(plan.producers):
        yield ProducerActor(
            _producer(world, f"producer{number}", protocol),
            f"producer{number}",
            topic,
            PARTITIONS,
            world.random_of("counts").randint(3, 8) * (_HURRIED_TIMES if plan.is_hurried else 1),
            is_hurried=plan.is_hurried,
        )
    for number, protocol in enumerate(plan.workers):
        name = f"worker{number}"
        yield WorkerActor(_producer(world, name, protocol), name, (INPUT, OUTPUT), PARTITIONS, is_last=number == 0)
    read = sorted({topic for topic, _ in plan.producers} | {topic for topic in plan.topics if topic != INPUT})
    for topic in read:
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED) if topic == TOPIC else (READ_COMMITTED,):
            name = f"reader-{topic}-{isolation}"
            yield ReaderActor(Client(world, name), name, topic, PARTITIONS, isolation)
    for group, (_, members) in plan.share_groups.items():
        for number in range(members):
            name = f"{group}-{number}"
            yield ShareMemberActor(Client(world, name), name, group, TOPIC)
    if plan.has_query:
        yield query(world, "sink", SUNK, PARTITIONS)
    if plan.has_rogue:
        yield RogueActor(Client(world, "rogue"), "rogue", TOPIC, PARTITIONS)
    if plan.has_administrator:
        yield AdministratorActor(Client(world, "admin"), "admin", changes_features=plan.changes_features)
    yield Nemesis(world)


def _producer(world: "World", name: str, protocol: int) -> TransactionalProducer:
    timeout_ms = world.random_of(f"{name}.timeout").choice(_TIMEOUTS_MS)
    return TransactionalProducer(
        Client(world, name, recalled=recalled(protocol, verifies=world.plan.verifies)),
        f"id-{name}",
        protocol,
        timeout_ms=timeout_ms,
    )


def draw(seed: int, *, stale_brokers: bool = STALE_BROKERS) -> Plan:
    """Draw a world; with `stale_brokers` some worlds with outages also have isolated brokers."""
    plan = _draw(seed)
    # From a separate source of randomness, which leaves all other worlds unchanged.
    is_undisturbed = Random(f"undisturbed/{seed}").random() < _UNDISTURBED and not plan.has_query
    if is_undisturbed:
        return _undisturbed(plan)
    if seed in _KEPT:
        return plan
    if plan.has_query and Random(f"death/{seed}").random() < _DIES_DECIDED:
        return replace(plan, dies_decided=True, settings={**plan.settings, **decided.SETTINGS})
    return _with_outages(plan, stale_brokers)


def calm(topic: str, partitions: int, decisions: str, group: str, settings: Mapping[str, str]) -> Plan:
    """Return the plan of a world of one broker, for one sink: its topic, decision topic, group, and settings."""
    plan = next(plan for plan in map(draw, count(1)) if plan.has_query and not plan.producers)
    return replace(
        plan,
        brokers=1,
        settings={**plan.settings, "transaction.state.log.segment.bytes": "1000000", **settings},
        topics={topic: (partitions, {})},
        trouble_ms=0,
        journals={decisions: (1, {"cleanup.policy": "compact"})},
        groups=(group,),
        has_administrator=False,
    )


def _with_outages(plan: Plan, stale_brokers: bool) -> Plan:
    """Add outages of coordinators to half of the worlds with a query, and to a quarter of the others."""
    random = Random(f"outages/{plan.seed}")
    if random.random() > (0.5 if plan.has_query else 0.25):
        return plan
    # A third of these have no other faults, so that no restart ends an outage early.
    trouble_ms = plan.trouble_ms if random.random() < 0.67 else 0
    return replace(
        plan,
        trouble_ms=trouble_ms,
        outages_ms=random.choice((20_000, 40_000, 60_000)),
        has_stale_brokers=stale_brokers and plan.brokers > 1,
    )


def _undisturbed(plan: Plan) -> Plan:
    return replace(
        plan,
        is_undisturbed=True,
        settings={**plan.settings, "transaction.version": "2"},
        changes_features=False,
        producers=tuple((topic, V2) for topic, _ in plan.producers),
        workers=tuple(V2 for _ in plan.workers),
    )


def _draw(seed: int) -> Plan:
    random = Random(f"plan/{seed}")
    level = random.choice((1, 2, 2))
    settings = {
        "transaction.version": str(level),
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.segment.bytes": str(random.choice((2_000, 1_000_000))),
        "offsets.topic.segment.bytes": str(random.choice((10_000, 1_000_000))),
        "log.cleaner.backoff.ms": "5000",
    }
    segments = {"segment.bytes": str(random.choice((400, 1_500, 1_000_000)))}
    bad = random.choice((0.0, 0.01, 0.03))
    scene = random.choices(("producers", "workers", "sink"), (4, 3, 3))[0]
    producers: list[tuple[str, int]] = []
    workers: list[int] = []
    topics: dict[str, tuple[int, Mapping[str, str]]] = {}
    is_hurried = scene == "producers" and random.random() < 0.3
    if scene == "producers" or (scene == "sink" and random.random() < 0.3):
        producers += [(TOPIC, V2 if is_hurried else random.choice((CLASSIC, V2))) for _ in range(random.randint(1, 3))]
        topics[TOPIC] = (PARTITIONS, segments)
    if scene == "workers":
        producers.append((INPUT, random.choice((CLASSIC, V2))))
        workers += [random.choice((CLASSIC, V2)) for _ in range(random.randint(1, 2))]
        topics |= {INPUT: (PARTITIONS, segments), OUTPUT: (PARTITIONS, segments)}
    has_query = scene == "sink"
    journals: dict[str, tuple[int, Mapping[str, str]]] = {}
    if has_query:
        topics[SUNK] = (PARTITIONS, segments)
        size_bytes = random.choice((2_500, 1_000_000))
        journals[DECISIONS] = (1, {"cleanup.policy": "compact", "segment.bytes": str(size_bytes)})
    has_rogue = scene == "producers" and random.random() < 0.1
    if has_rogue:
        settings[_VERIFICATION] = "false"
    return Plan(
        seed=seed,
        brokers=random.choice((1, 2, 3)),
        settings=settings,
        topics=topics,
        journals=journals,
        groups=((GROUP,) if workers else ()) + ((SINK_GROUP,) if has_query else ()),
        trouble_ms=random.randint(5_000, 12_000) * (_HURRIED_TIMES if is_hurried else 1),
        conditions=NetworkConditions(
            slow_chance=random.choice((0.0, 0.03, 0.08)),
            fragment_chance=random.choice((0.0, 0.1)),
            aimed_slow_chance=0.3 if is_hurried else random.choice((0.0, 0.0, 0.1)),
            lose_request_chance=bad,
            lose_answer_chance=bad,
        ),
        producers=tuple(producers),
        workers=tuple(workers),
        has_administrator=has_rogue or random.random() < 0.2,
        changes_features=random.random() < 0.8,
        has_rogue=has_rogue,
        has_query=has_query,
        is_hurried=is_hurried,
    )
