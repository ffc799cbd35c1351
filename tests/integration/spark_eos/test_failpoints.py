"""Failpoints act where and when their rules say, and at no other time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_eos.failpoints import ENVIRONMENT_NAME, POINTS, FailpointError, Failpoints
from tests.support.spark_eos.spark_session import worker_environment
from tests.support.waiting import wait_until

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
