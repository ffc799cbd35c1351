"""Tasks on two hosts, where Spark speculates, and two drivers on one checkpoint: every row is visible once."""

import os
import re
import time
from collections.abc import Iterator

import pytest

from tests.crash.drivers import Driver
from tests.crash.hazards_query import END_DEADLINE_S, Hazard
from tests.support.spark_eos.sink_topic import READERS_WAIT_S
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Return a driver in a separate process, with a standalone cluster of two hosts."""
    driver = Driver(tmp_path_factory.mktemp("cluster"), 0, "tests.crash.hazards_cluster")
    try:
        driver.boot()
        yield driver
    finally:
        driver.close()


@pytest.mark.parametrize("point", ["task.flushed", "task.before_write"])
def test_speculation_with_two_live_attempts(hazard: Hazard, cluster: Driver, point: str) -> None:
    """The loser has written everything, or nothing yet; it resumes when its micro-batch is decided and swept."""
    case = hazard.case(micro_batches=2)
    loser, decide = hazard.hold(point), hazard.hold("driver.before_decide")
    later = hazard.hold("driver.before_verify", 1)
    cluster.arm(case, loser.rule, decide.rule, later.rule)
    cluster.start(case)
    pid = loser.wait()
    # The driver gets here only after another attempt has done the work of the held one.
    decide.wait()
    os.kill(pid, 0)
    assert loser.path.exists()
    decide.release()
    later.wait()
    prepared = len(hazard.open(case))
    loser.release()
    if point == "task.before_write":
        wait_until(lambda: len(hazard.open(case)) > prepared, "the loser has written")
    later.release()
    wait_until(lambda: cluster.has_ended(case), "the query ends", deadline_s=END_DEADLINE_S)
    assert cluster.error(case) is None
    hazard.judge(case)
    assert "CompleteAbort" in hazard.task_states(case).values()


def test_killed_executors_do_not_block_readers(hazard: Hazard, cluster: Driver) -> None:
    """In the first micro-batch, during writes: the tasks' transactions end before any of the tasks is retried."""
    # Small requests: some of them are sent before the task is done.
    case = hazard.case(micro_batches=2, kafka_max_request_size="5000")
    victims = [hazard.hold("task.before_flush"), hazard.hold("task.before_flush")]
    tried_again = [hazard.hold("task.begin"), hazard.hold("task.begin")]
    cluster.arm(case, *(each.rule for each in victims))
    cluster.start(case)
    for each in victims:
        each.wait()
    wait_until(lambda: len(hazard.open(case)) == 2, "both tasks have written")
    cluster.arm(case, *(each.rule for each in tried_again))
    assert cluster.kill_executors() == 2
    started = time.monotonic()
    wait_until(lambda: not hazard.open(case), "nothing is open", deadline_s=READERS_WAIT_S)
    print(f"readers waited {time.monotonic() - started:.2f} s")
    for each in tried_again:
        each.wait()
    for each in (*victims, *tried_again):
        each.release()
    wait_until(lambda: cluster.has_ended(case), "the query ends", deadline_s=END_DEADLINE_S)
    assert cluster.error(case) is None
    hazard.judge(case)


@pytest.mark.parametrize(
    ("point", "says"),
    [
        ("driver.before_verify", "may no longer decide: run .* has decided micro-batch 2.*stop one of the two"),
        ("driver.before_decide", "may no longer decide: run .* has decided micro-batch 2.*stop one of the two"),
        # It has decided, so its micro-batch counts; Spark's own log of the checkpoint stops it.
        ("driver.after_decide", "Multiple streaming jobs detected"),
    ],
)
def test_two_drivers_on_one_checkpoint(hazard: Hazard, cluster: Driver, point: str, says: str) -> None:
    """The older driver is held while a newer one runs; afterwards it stops with an error that names the reason."""
    case = hazard.case(micro_batches=3)
    older = hazard.hold(point, 1)
    cluster.arm(case, older.rule)
    cluster.start(case)
    older.wait()
    hazard.run(case)
    hazard.judge(case)
    older.release()
    wait_until(lambda: cluster.has_ended(case), "the older driver ends", deadline_s=END_DEADLINE_S)
    assert re.search(says, str(cluster.error(case)), re.DOTALL)
    hazard.judge(case)
    # A driver that starts after both has nothing left to do.
    hazard.run(case)
    hazard.judge(case)
