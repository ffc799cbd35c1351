"""Break the sink at every step: here once at each, with the faults taking turns; the whole product is `make crash`.

The budget of `make test` allows for one life of each query that is broken and one that repairs it. So the steps share
two waves: one for what is done to the queries' own processes, one for what is done to the broker and to time.
"""

from collections import Counter

import pytest

from spark_eos.failpoints import POINTS
from tests.crash.drivers import DriverPool
from tests.crash.matrix import (
    ADD_DRIVER,
    ADD_OFFSETS,
    ADD_TASK,
    EXCLUDED,
    STEPS,
    Fault,
    Pair,
    one_fault_per_step,
    pairs,
)
from tests.crash.wave import Wave
from tests.crash.world import World

CHOSEN = one_fault_per_step()


def _in_later_wave(pair: Pair) -> bool:
    return pair.fault in (Fault.KILL_BROKER, Fault.PAUSE)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_every_step_broken_once_loses_and_repeats_nothing(here: World, pool: DriverPool) -> None:
    wave = Wave(here, pool, pool.take())
    for later in (False, True):
        assert wave.run([pair for pair in CHOSEN if _in_later_wave(pair) is later]) == []


def test_every_failpoint_is_a_step() -> None:
    assert {step.point.partition("#")[0] for step in STEPS} == set(POINTS)


def test_every_pair_is_run_or_excluded_with_a_reason() -> None:
    points = {step.point for step in STEPS}
    assert all(point in points and reason for (point, _), reason in EXCLUDED.items())
    for fault in Fault:
        run = {pair.step for pair in pairs(fault)}
        assert {step.point for step in STEPS if step not in run} == {point for point, f in EXCLUDED if f is fault}


def test_transactions_v1_have_answers_of_their_own_to_lose() -> None:
    older, newer = (Counter(pair.answer for pair in pairs(Fault.LOSE_ANSWER, version)) for version in (1, 2))
    assert older - newer == Counter([ADD_TASK, ADD_DRIVER, ADD_OFFSETS]) and not newer - older


def test_the_round_of_make_test_has_every_step_and_every_fault() -> None:
    assert [pair.step for pair in CHOSEN] == list(STEPS)
    assert {pair.fault for pair in CHOSEN} == set(Fault)
