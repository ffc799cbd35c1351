"""Every step of sink and source under about a third of the faults; `make crash` runs all cells, at random times.

A digest of the source of `spark_eos` chooses the part of the matrix, so that all parts are run as the source changes
and a failure can be repeated. `CRASH_PART=0`, `1`, `2` or `all` chooses another. The waves share a driver until one
kills it.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.crash.drivers import Driver, DriverPool
from tests.crash.matrix import (
    ADD_DRIVER,
    ADD_OFFSETS,
    ADD_TASK,
    EXCLUDED,
    PARTS,
    STEPS,
    Fault,
    Pair,
    pairs,
    part_waves,
    parts_to_run,
)
from tests.crash.wave import Wave
from tests.crash.world import World
from tests.support.short_form import chosen
from tests.support.spark_eos.failpoints import POINTS

WAVES = [chosen(cells, f"cells of the crash matrix, {cells[0].fault}", of=3) for cells in part_waves(parts_to_run())]


@pytest.fixture(scope="session")
def drivers_in_turn(pool: DriverPool) -> Iterator[list[Driver]]:
    """Return a list whose last element is the current driver."""
    return [pool.take()]


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cells", WAVES, ids=[f"{cells[0].fault}" for cells in WAVES])
def test_faults_lose_and_duplicate_nothing(
    here: World, pool: DriverPool, drivers_in_turn: list[Driver], cells: list[Pair]
) -> None:
    wave = Wave(here, pool, drivers_in_turn[-1])
    try:
        assert wave.run(cells) == []
    finally:
        drivers_in_turn.append(wave.driver)


def test_every_failpoint_is_a_step_of_the_matrix() -> None:
    assert {step.point.partition("#")[0] for step in STEPS} == set(POINTS)


def test_every_pair_is_run_or_excluded_with_a_reason() -> None:
    points = {step.point for step in STEPS}
    assert all(point in points and reason for (point, _), reason in EXCLUDED.items())
    for fault in Fault:
        run = {pair.step for pair in pairs(fault)}
        assert {step.point for step in STEPS if step not in run} == {point for point, f in EXCLUDED if f is fault}


def test_transactions_v1_responses_are_dropped_as_well() -> None:
    older, newer = (Counter(pair.answer for pair in pairs(Fault.LOSE_ANSWER, version)) for version in (1, 2))
    assert older - newer == Counter([ADD_TASK, ADD_DRIVER, ADD_OFFSETS]) and not newer - older


def test_parts_cover_every_cell_once() -> None:
    parts = [[cell for cells in part_waves(frozenset((part,))) for cell in cells] for part in range(PARTS)]
    assert Counter(itertools.chain.from_iterable(parts)) == Counter(cell for fault in Fault for cell in pairs(fault))
    for part in parts:
        assert {cell.step for cell in part} == set(STEPS)
        assert {cell.fault for cell in part} == set(Fault)


def test_part_is_chosen_by_the_source_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRASH_PART", raising=False)
    assert parts_to_run() == parts_to_run() <= set(range(PARTS))
    for name, parts in (("0", {0}), ("2", {2}), ("all", {0, 1, 2})):
        monkeypatch.setenv("CRASH_PART", name)
        assert parts_to_run() == parts
