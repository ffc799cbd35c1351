"""A world of share groups drawn from its seed: producers write, and members of groups share the records."""

from random import Random

from tests.simulation.plan import PARTITIONS, TOPIC, Plan
from tests.simulation.producers import V2
from tests.support.simulated.faults import FaultKind, NetworkConditions

# Nothing in these worlds has these faults.
NOT_IN_SHARE_WORLDS = frozenset({FaultKind.STALE_BROKER, FaultKind.DECIDED_AND_LOST, FaultKind.FEATURE_CHANGED})
GROUPS = ("share0", "share1")


def draw_shares(seed: int) -> Plan:
    """Draw a world of share groups."""
    random = Random(f"shares/{seed}")
    bad = random.choice((0.0, 0.01, 0.03))
    settings = {
        "transaction.version": "2",
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(random.choice((2_000, 1_000_000))),
        "log.cleaner.backoff.ms": "5000",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.state.topic.segment.bytes": str(random.choice((2_500, 5_000, 1_000_000))),
        "share.coordinator.snapshot.update.records.per.snapshot": str(random.choice((0, 2, 500))),
        "share.coordinator.state.topic.prune.interval.ms": str(random.choice((500, 300_000))),
        "share.coordinator.cold.partition.snapshot.interval.ms": str(random.choice((1_000, 300_000))),
        "group.share.session.timeout.ms": str(random.choice((3_000, 8_000))),
        "group.share.heartbeat.interval.ms": "500",
        "group.share.assignment.interval.ms": str(random.choice((0, 1_000))),
        "group.share.record.lock.duration.ms": str(random.choice((1_000, 4_000))),
        "group.share.delivery.count.limit": str(random.choice((2, 3, 5))),
        "group.share.partition.max.record.locks": "100",
    }
    segments = {"segment.bytes": str(random.choice((400, 1_500, 1_000_000)))}
    groups = {
        group: (
            {
                "share.auto.offset.reset": "earliest",
                "share.isolation.level": random.choice(("read_committed", "read_uncommitted")),
            },
            random.randint(1, 3),
        )
        for group in GROUPS[: random.choice((1, 1, 2))]
    }
    return Plan(
        seed=seed,
        brokers=random.choice((1, 2, 3)),
        settings=settings,
        topics={TOPIC: (PARTITIONS, segments)},
        journals={},
        groups=(),
        trouble_ms=random.randint(5_000, 15_000),
        conditions=NetworkConditions(
            slow_chance=random.choice((0.0, 0.03, 0.08)),
            fragment_chance=random.choice((0.0, 0.1)),
            aimed_slow_chance=random.choice((0.0, 0.1)),
            lose_request_chance=bad,
            lose_answer_chance=bad,
        ),
        producers=tuple((TOPIC, V2) for _ in range(random.randint(1, 2))),
        workers=(),
        has_administrator=False,
        changes_features=False,
        has_rogue=False,
        has_query=False,
        is_hurried=False,
        outages_ms=random.choice((0, 0, 20_000)),
        share_groups=groups,
    )
