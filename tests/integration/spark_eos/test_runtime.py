"""What a process receives from its environment, and what it keeps."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_eos.backoff import backoff_ms
from spark_eos.runtime import REAL, ProcessState, Runtime, exclusive_state, process_state, shared_state
from tests.support.spark_eos.failpoints import ENVIRONMENT_NAME, POINTS, FailpointError, Failpoints
from tests.support.spark_eos.spark_session import worker_environment
from tests.support.waiting import wait_until


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
    assert backoff_ms(attempt, 0, 0) == 1


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


# Failpoints


ROOT = Path(__file__).parents[3]


def test_failpoints_without_rules_do_nothing() -> None:
    for point in POINTS:
        Failpoints("").reach(point, 1)
        assert not Failpoints("").is_armed(point)


def test_rule_fires_at_its_micro_batch_once() -> None:
    points = Failpoints("task.prepared=raise@3")
    points.reach("task.prepared", 2)
    points.reach("driver.after_decide", 3)
    with pytest.raises(FailpointError, match=r"task\.prepared"):
        points.reach("task.prepared", 3)
    points.reach("task.prepared", 3)


def test_rule_fires_at_its_visit_count() -> None:
    points = Failpoints("task.mid_write=raise#2; task.begin=raise")
    points.reach("task.mid_write", 7)
    with pytest.raises(FailpointError):
        points.reach("task.mid_write", 7)
    assert points.is_armed("task.begin") and not points.is_armed("task.mid_write")


def test_once_rule_fires_in_one_process_only(tmp_path: Path) -> None:
    rule = f"task.begin=once:{tmp_path / 'mark'}|raise"
    with pytest.raises(FailpointError):
        Failpoints(rule).reach("task.begin")
    Failpoints(rule).reach("task.begin")


def test_rules_in_a_file_are_read_at_every_visit(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    points = Failpoints(f"@{path}")
    points.reach("task.begin")
    path.write_text("task.begin=raise")
    with pytest.raises(FailpointError):
        points.reach("task.begin")
    path.unlink()
    points.reach("task.begin")


def test_rule_for_a_query_fires_in_that_query_only() -> None:
    points = Failpoints("task.mid_write/one-1=raise#2")
    for query in ("other", "one-1"):
        points.enter(query)
        points.reach("task.mid_write", 0)
    points.enter("other")
    points.reach("task.mid_write", 0)
    points.reach("task.mid_write", 0)
    # Failpoints that an earlier task reached do not count.
    points.enter("one-1")
    points.reach("task.mid_write", 0)
    assert points.is_armed("task.mid_write")
    with pytest.raises(FailpointError):
        points.reach("task.mid_write", 0)


@pytest.mark.parametrize(
    "rules", ["x", "task.begin", "task.begin=explode", "no.such.point=raise", "task.begin=raise@x"]
)
def test_misspelled_rules_are_refused(rules: str) -> None:
    with pytest.raises(FailpointError, match=r"expected point\[/query\]="):
        Failpoints(rules)
    with pytest.raises(FailpointError, match="not a failpoint"):
        Failpoints("").reach("no.such.point")


def _reach_in_process(rule: str) -> "subprocess.Popen[bytes]":
    program = "from spark_eos import failpoints; failpoints.reach('task.begin', 0); print('passed')"
    environment = {**os.environ, **worker_environment(), ENVIRONMENT_NAME: rule}
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environment, stdout=subprocess.PIPE)


def test_kill_and_hold_stop_a_process(tmp_path: Path) -> None:
    with _reach_in_process("task.begin=kill") as killed:
        assert killed.wait(60) == -signal.SIGKILL
    held = tmp_path / "held"
    with _reach_in_process(f"task.begin=hold:{held}@0") as holding:
        wait_until(lambda: held.exists() and held.read_text() == str(holding.pid), "the process is held")
        assert holding.poll() is None
        held.unlink()
        assert holding.communicate(timeout=60)[0] == b"passed\n"


def test_every_failpoint_is_used_in_the_code() -> None:
    packages = (ROOT / "spark_eos" / "sink", ROOT / "spark_eos" / "source")
    source = "".join(path.read_text() for package in packages for path in package.rglob("*.py"))
    assert {point for point in POINTS if f'each("{point}"' not in source} == set()
