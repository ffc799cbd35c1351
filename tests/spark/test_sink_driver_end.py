"""Drivers that end without `query.stop()`: readers go on within seconds, and what is decided is not aborted."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from spark_eos.errors import ClientStateError
from spark_eos.sink import driver_end
from spark_eos.sink.driver_end import after_driver_ends, before_driver_ends, create_lock
from tests.support.spark_eos.failpoints import ENVIRONMENT_NAME
from tests.support.spark_eos.sink_topic import READERS_WAIT_S, Topic, make_topic, open_transactions
from tests.support.spark_eos.spark_session import ROOT, worker_environment
from tests.support.waiting import wait_until

DEADLINE_S = 240
# The driver of two sessions, one after the other. In each a query has a task that has prepared its rows and is held.
DRIVER = """
import sys
import spark_eos
from tests.support.spark_eos.sink_query import lines_of, start
from tests.support.spark_eos.spark_session import build_session
folder, address, topic, prefix = sys.argv[1:]
options = {"kafka.bootstrap.servers": address, "topic": topic, "transactionalIdPrefix": prefix}
for name in ("first", "second"):
    spark = build_session(name)
    lines = lines_of(spark, folder + "/input")
    if name == "first":
        start(lines, folder + "/" + name, options)
    else:
        # What commits is this process.
        writer = lines.writeStream.foreachBatch(spark_eos.foreach_batch_sink(**options))
        writer.option("checkpointLocation", folder + "/" + name).start()
    print(name, flush=True)
    input()
    spark.stop()
    print("stopped", flush=True)
    input()
"""


@pytest.fixture
def topic(kafka_address: str) -> Topic:
    return make_topic(kafka_address)


@pytest.mark.spark
def test_stopped_session_and_terminated_driver_leave_no_open_transaction(topic: Topic, tmp_path: Path) -> None:
    prefix, held = f"test-{uuid.uuid4().hex[:8]}", tmp_path / "held"
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0.txt").write_text("a line\nanother\n")
    environment = {**os.environ, **worker_environment(), ENVIRONMENT_NAME: f"task.prepared=hold:{held}"}
    arguments = [str(tmp_path), topic.address, topic.name, prefix]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdin is not None and driver.stdout is not None

        def wait_until_prepared() -> None:
            wait_until(held.exists, "a task has prepared its rows", deadline_s=DEADLINE_S)
            assert open_transactions(topic.address, prefix)
            assert not topic.is_stable()

        def check_readers_continue() -> None:
            wait_until(topic.is_stable, "readers continue", deadline_s=READERS_WAIT_S)
            wait_until(lambda: not open_transactions(topic.address, prefix), "all ends", deadline_s=READERS_WAIT_S)

        try:
            assert driver.stdout.readline() == "first\n"
            wait_until_prepared()
            print(file=driver.stdin, flush=True)
            assert driver.stdout.readline() == "stopped\n"
            check_readers_continue()
            held.unlink()
            print(file=driver.stdin, flush=True)
            assert driver.stdout.readline() == "second\n"
            wait_until_prepared()
            driver.send_signal(signal.SIGTERM)
            check_readers_continue()
        finally:
            driver.kill()
    assert topic.values() == []


# The lock between a commit and the sweep


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "blockmgr-1"
    made.mkdir()
    create_lock(str(made))
    return made


def refuse() -> ClientStateError:
    return ClientStateError("the driver has ended")


@pytest.fixture
def sweeping(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Future[None]"]:
    """Wait for the end of the driver in a thread; the call creates the file `swept`."""
    monkeypatch.setattr(driver_end, "_POLL_SECONDS", 0.01)
    call = pickle.dumps(partial(Path.touch, folder.with_name("swept")))
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(after_driver_ends, str(folder), os.getpid(), call)
        shutil.rmtree(folder, ignore_errors=True)


def test_sweep_waits_for_a_commit_and_refuses_later_ones(folder: Path, sweeping: "Future[None]") -> None:
    swept = folder.with_name("swept")
    with before_driver_ends(str(folder), refuse):
        folder.rmdir()
        with pytest.raises(TimeoutError):
            sweeping.result(0.2)
        assert not swept.exists()
    sweeping.result(30)
    assert swept.exists()
    with pytest.raises(ClientStateError, match="has ended"), before_driver_ends(str(folder), refuse):
        pass
    assert list(folder.parent.iterdir()) == [swept]


def test_commit_that_opened_the_lock_before_the_sweep_is_refused(
    folder: Path, sweeping: "Future[None]", monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = driver_end._lock

    def lock_late(descriptor: int, *, alone: bool) -> None:
        if not alone:
            folder.rmdir()
            sweeping.result(30)
        lock(descriptor, alone=alone)

    monkeypatch.setattr(driver_end, "_lock", lock_late)
    with pytest.raises(ClientStateError, match="has ended"), before_driver_ends(str(folder), refuse):
        pass


def test_driver_that_nothing_watches_commits(tmp_path: Path) -> None:
    for folder in (None, str(tmp_path)):
        with before_driver_ends(folder, refuse):
            pass


def test_killed_jvm_is_left_to_the_restart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory stays, and it may have been Spark's Python process only that ended: the lock is still needed."""
    monkeypatch.setattr(driver_end, "_GRACE_SECONDS", 0.0)
    ended = subprocess.Popen(["true"])
    ended.wait()
    after_driver_ends(str(folder), ended.pid, b"not called")
    assert len(list(folder.parent.iterdir())) == 2, "the directory and the lock"
