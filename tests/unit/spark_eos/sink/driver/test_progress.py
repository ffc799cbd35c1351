"""The sink's progress: steps and their duration, counters and gauges."""

import logging
import re

import pytest

from spark_eos.metrics import SINK_METRICS
from spark_eos.sink.driver import committer as committers
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, prepare

__all__ = ["cluster"]
STEPS = ("take over", "verify", "decide", "complete", "sweep")
GAUGES = ("open_transactions", "oldest_open_age_ms", "time_to_timeout_ms")
COUNTERS = (
    "records_committed",
    "bytes_committed",
    "produce_retries",
    "transactions_committed",
    "transactions_swept",
    "transactional_ids_used",
)


def test_every_step_is_logged_with_its_time_and_a_summary(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "spark_eos.sink"):
        committer_of(cluster).commit(prepare(cluster, 7), 7)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    timed = [found[1] for line in lines if (found := re.match(r"micro-batch 7 of q: ([a-z ]+) took \d+ ms$", line))]
    assert timed == list(STEPS)
    assert any("committed 2 records in 2 transactions" in line for line in lines)
    for name in (*GAUGES, *COUNTERS):
        assert f"'{name}':" in lines[-1]


def test_gauges_show_the_last_micro_batch_and_counters_only_grow(cluster: MemoryCluster) -> None:
    committer = committer_of(cluster)
    before = dict(SINK_METRICS.snapshot())
    for micro_batch in (0, 1):
        messages = prepare(cluster, micro_batch, splits=(0, 1, 2))
        object.__setattr__(messages[0], "retries", 4)
        object.__setattr__(messages[0], "size_bytes", 100)
        cluster.pass_time(5_000)
        committer.commit(messages, micro_batch)
    now = SINK_METRICS.snapshot()
    grown = {name: now[name] - before.get(name, 0) for name in COUNTERS}
    assert grown == {
        "records_committed": 6,
        "bytes_committed": 200,
        "produce_retries": 8,
        "transactions_committed": 6,
        "transactions_swept": 0,
        "transactional_ids_used": 3,
    }
    assert {name: now[name] for name in GAUGES} == {
        "open_transactions": 3,
        "oldest_open_age_ms": 5_000,
        "time_to_timeout_ms": 55_000,
    }


@pytest.mark.parametrize(("age_ms", "is_warned"), [(29_000, False), (31_000, True)])
def test_micro_batch_that_takes_half_of_its_timeout_logs_a_warning(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, age_ms: int, is_warned: bool
) -> None:
    messages = prepare(cluster, 0)
    cluster.pass_time(age_ms)
    with caplog.at_level(logging.WARNING, "spark_eos.sink"):
        committer_of(cluster).commit(messages, 0)
    assert (f"times out in {60_000 - age_ms} ms, more than half of its timeout has passed" in caplog.text) == is_warned


def test_swept_transactions_are_counted(cluster: MemoryCluster) -> None:
    before = SINK_METRICS.snapshot().get("transactions_swept", 0)
    messages = prepare(cluster, 0)
    prepare(cluster, 0, splits=(5, 6))
    committer_of(cluster).commit(messages, 0)
    assert SINK_METRICS.snapshot()["transactions_swept"] - before == 2


def test_ids_are_counted_once_and_unreused_workers_warned_of_once(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    committer = committer_of(cluster)
    before = SINK_METRICS.snapshot().get("transactional_ids_used", 0)
    for micro_batch, splits in enumerate([(0, 1), (0, 1), (1, 2)]):
        committer.commit(prepare(cluster, micro_batch, splits=splits), micro_batch)
    assert SINK_METRICS.snapshot()["transactional_ids_used"] - before == 3
    assert "spark.python.worker.reuse" not in caplog.text
    for micro_batch in (3, 4):
        messages = prepare(cluster, micro_batch)
        object.__setattr__(messages[1], "is_worker_kept", False)
        committer.commit(messages, micro_batch)
    assert caplog.text.count("spark.python.worker.reuse is false") == 1


def test_only_the_most_recent_ids_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committers, "_IDS_REMEMBERED", 3)
    cluster, seen = MemoryCluster(), committers.IdUsage()
    before = SINK_METRICS.snapshot().get("transactional_ids_used", 0)
    for splits in ((0, 1), (2, 3), (2, 3), (0,)):
        seen.note("q", prepare(cluster, 0, splits=splits))
    assert SINK_METRICS.snapshot()["transactional_ids_used"] - before == 5
