"""What a process receives from its environment, and what it keeps."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_eos.backoff import backoff_ms
from spark_eos.runtime import REAL, ProcessState, Runtime, exclusive_state, process_state, shared_state


class Kept:
    """A thing that a process keeps."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime


class Other(Kept):
    """Another one."""


def test_process_creates_each_component_once() -> None:
    one, two = ProcessState(REAL), ProcessState(REAL)
    assert one.part(Kept) is one.part(Kept)
    assert one.part(Kept).runtime is REAL
    assert len({id(part) for part in (one.part(Kept), one.part(Other), two.part(Kept))}) == 3


class Inherited:
    """A thing that a forked child must not disturb."""

    def __init__(self) -> None:
        self.is_abandoned = False

    def abandon(self) -> None:
        self.is_abandoned = True


def test_forked_child_has_its_own_state_and_abandons_the_inherited_one() -> None:
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
def test_retry_waits_double_up_to_the_maximum(attempt: int, expected_ms: int) -> None:
    assert backoff_ms(attempt, 100, 1_000) == expected_ms


def test_threads_that_need_it_have_states_of_their_own_and_the_same_ones_again() -> None:
    def used(key: str, barrier: threading.Barrier) -> ProcessState:
        with exclusive_state(key):
            barrier.wait(60)
            assert process_state() is not shared_state()
            return process_state()

    rounds = []
    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):
            barrier = threading.Barrier(2)
            calls = {key: threads.submit(used, key, barrier) for key in ("a", "b")}
            rounds.append({key: call.result() for key, call in calls.items()})
    assert rounds[0]["a"] is not rounds[0]["b"]
    assert all(rounds[0][key] is rounds[1][key] for key in ("a", "b"))
    assert process_state() is shared_state()
