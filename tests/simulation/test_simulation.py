"""Worlds: a share of the seeds, every seed that once failed, and brokers that are broken on purpose."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from broker_core.config import BrokerConfig
from tests.simulation.__main__ import ENOUGH_SEEDS
from tests.simulation.broken import BROKEN
from tests.simulation.plan import SWITCHED_OFF, draw
from tests.simulation.seeds import KEPT
from tests.simulation.sink import DECISIONS, LONGEST_TIMEOUT_MS
from tests.simulation.world import REST_US, World, play
from tests.support.history.checker import check
from tests.support.short_form import chosen
from tests.support.simulated.faults import FaultKind, never_occurred

_SEEDS_IN_ONE = 20
_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def occurred() -> Counter[FaultKind]:
    """Count the faults of the worlds in this module."""
    return Counter()


@pytest.fixture(scope="module")
def played() -> set[int]:
    """Collect the seeds that ran and passed."""
    return set()


@pytest.mark.parametrize("first", chosen(range(1, ENOUGH_SEEDS, _SEEDS_IN_ONE), "twenties of worlds", of=5))
def test_seeds(first: int, occurred: Counter[FaultKind], played: set[int]) -> None:
    for seed in range(first, first + _SEEDS_IN_ONE):
        outcome = play(seed)
        assert outcome.problems == [], f"python -m tests.simulation --replay {seed}"
        occurred.update(outcome.faults.by_kind)
        played.add(seed)


def test_every_kind_of_fault_occurs_in_these_worlds(occurred: Counter[FaultKind], played: set[int]) -> None:
    if len(played) < ENOUGH_SEEDS:
        pytest.skip("not all of these worlds were run")
    assert never_occurred(occurred, SWITCHED_OFF) == []


@pytest.mark.parametrize(("seed", "story"), KEPT, ids=[str(seed) for seed, _ in KEPT])
def test_seeds_that_once_failed_pass(seed: int, story: str, played: set[int]) -> None:
    if seed not in played:
        assert play(seed).problems == [], story


def test_worlds_with_an_isolated_broker_finish() -> None:
    """Such brokers are switched off in other tests; see `plan.STALE_BROKERS`."""
    seeds = [seed for seed in range(1, 60) if draw(seed, stale_brokers=True).has_stale_brokers]
    outcomes = [play(seed, stale_brokers=True) for seed in seeds]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(seeds)
    assert sum(outcome.faults.by_kind[FaultKind.STALE_BROKER] for outcome in outcomes) > len(seeds) // 2 > 0


def test_world_with_outages_but_no_faults_equals_an_undisturbed_one() -> None:
    seed = next(seed for seed in range(1, 100) if draw(seed).outages_ms)
    away = play(seed).faults.by_kind
    assert away[FaultKind.COORDINATOR_AWAY] + away[FaultKind.LEADER_AWAY]
    calm = play(seed, without_trouble=True).faults.by_kind
    assert not calm[FaultKind.COORDINATOR_AWAY] + calm[FaultKind.LEADER_AWAY]


def test_no_query_stops_without_faults() -> None:
    """The commits of a run alternate between processes, and none takes another for a newer driver."""
    seeds = [seed for seed in range(1, 101) if draw(seed).has_query]
    assert len(seeds) > 25
    for seed in seeds:
        assert play(seed, without_trouble=True).problems == [], seed


def test_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    first, again, other = play(3, keep_trace=True), play(3, keep_trace=True), play(4, keep_trace=True)
    assert first.lines is not None
    assert len(first.lines) > 100
    assert (first.lines, first.digest) == (again.lines, again.digest)
    assert other.digest != first.digest


def test_same_seed_gives_the_same_trace_in_another_process() -> None:
    # One world of each kind: producers, workers, the sink. The hash seed changes the order of sets of text.
    seeds = [2, 3, 5, 8]
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.digests", *map(str, seeds)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": other},
    )
    assert done.stdout.splitlines() == [f"{seed} {play(seed).digest}" for seed in seeds]


def test_documentation_names_the_seeds_of_broken_brokers() -> None:
    page = (_ROOT / "docs" / "contributing" / "simulation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (\d+) \| ", page, re.MULTILINE)
    assert dict(rows) == {name: str(broken.seed) for name, broken in BROKEN.items()}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_broker_is_detected(name: str, played: set[int]) -> None:
    """The clients' history shows the bug where clients can see it; otherwise one line about the logs does."""
    broken = BROKEN[name]
    if broken.seed not in played:
        assert play(broken.seed).problems == [], "the broker as it is passes"
    with broken.breakage():
        outcome = play(broken.seed)
    assert broken.kind is not None or broken.line
    if broken.kind is not None:
        assert broken.kind in {anomaly.kind for anomaly in check(outcome.history.ops)}
    if broken.line:
        assert [problem for problem in outcome.problems if re.search(broken.line, problem)] != []


def test_clock_goes_back_at_a_restart_but_not_in_the_quiet_phase() -> None:
    """Seed 521: a driver whose clock was ahead of the broker's could commit nothing during the calm."""
    world = World(draw(1))
    world.is_calm = True
    for _ in range(50):
        world._restart_later(True)
    assert (world.clock.offset_ms, world.faults.by_kind[FaultKind.CLOCK_BACK]) == (0, 0)
    world.is_calm = False
    for _ in range(50):
        world._restart_later(True)
    assert world.clock.offset_ms < 0
    assert world.faults.by_kind[FaultKind.CLOCK_BACK] > 0


def test_worlds_include_decisions_groups_and_time_to_end_open_transactions() -> None:
    """Seeds 54, 7525 and 5132: what is refused rightly, or ends later than the check, is not a bug."""
    for seed in range(1, 201):
        plan = draw(seed)
        assert int(plan.settings["offsets.topic.segment.bytes"]) >= 10_000
        if DECISIONS in plan.journals:
            assert int(plan.journals[DECISIONS][1]["segment.bytes"]) >= 2_500
        scan_ms = BrokerConfig().override(plan.settings).transaction_abort_interval_ms
        assert LONGEST_TIMEOUT_MS + scan_ms < REST_US / 1_000
