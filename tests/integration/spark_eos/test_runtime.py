"""What a process is given from the outside, and what it keeps."""

import os

import pytest

from spark_eos.runtime import REAL, ProcessState, Runtime, backoff_ms, process_state


class Kept:
    """Something that a process keeps."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime


class Other(Kept):
    """Something else."""


def test_each_process_keeps_each_of_its_parts_once() -> None:
    one, two = ProcessState(REAL), ProcessState(REAL)
    assert one.part(Kept) is one.part(Kept)
    assert one.part(Kept).runtime is REAL
    assert len({id(part) for part in (one.part(Kept), one.part(Other), two.part(Kept))}) == 3


class Inherited:
    """Something that a forked child must not disturb."""

    def __init__(self) -> None:
        self.is_abandoned = False

    def abandon(self) -> None:
        self.is_abandoned = True


def test_a_forked_child_has_a_state_of_its_own_and_abandons_what_it_inherits() -> None:
    inherited = Inherited()
    REAL.process.abandon_in_children(inherited)
    mine = process_state().part(Kept)
    child = os.fork()
    if not child:
        is_right = inherited.is_abandoned and process_state().part(Kept) is not mine
        os._exit(0 if is_right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not inherited.is_abandoned and process_state().part(Kept) is mine


@pytest.mark.parametrize(
    ("attempt", "expected_ms"), [(0, 100), (1, 200), (3, 800), (4, 1_000), (10_000, 1_000)], ids=str
)
def test_waits_double_up_to_the_longest(attempt: int, expected_ms: int) -> None:
    assert backoff_ms(attempt, 100, 1_000) == expected_ms
