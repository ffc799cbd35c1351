"""Every fault at every step of sink and source, one round; `make crash` runs more, at random times.

The waves share a driver until one kills it.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from spark_eos.failpoints import POINTS
from tests.crash.drivers import Driver, DriverPool
from tests.crash.matrix import ADD_DRIVER, ADD_OFFSETS, ADD_TASK, EXCLUDED, STEPS, Fault, Pair, pairs, waves
from tests.crash.wave import Wave
from tests.crash.world import World

WAVES = list(waves())


@pytest.fixture(scope="session")
def drivers_in_turn(pool: DriverPool) -> Iterator[list[Driver]]:
    """Return a list whose last element is the current driver."""
    return [pool.take()]


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cells", WAVES, ids=[f"{cells[0].fault}" for cells in WAVES])
def test_every_fault_at_every_step_loses_and_duplicates_nothing(
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


def test_round_covers_every_cell_once() -> None:
    cells = [cell for cells in WAVES for cell in cells]
    assert Counter(cells) == Counter(cell for fault in Fault for cell in pairs(fault))
    assert {cell.step for cell in cells} == set(STEPS)
