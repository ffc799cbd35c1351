"""What a long recovery logs: how many transactions are left, and not more often than is useful."""

import logging
import re

import pytest

from spark_eos.sink.decision import Decision
from spark_eos.sink.protocol import settlement
from spark_eos.sink.protocol.settlement import SETTLE_LIMIT_SECONDS
from tests.support.spark_eos.driving import settle
from tests.support.spark_eos.sink_cluster import MemoryCluster


def test_completion_of_many_transactions_logs_how_many_are_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settlement, "_GROUP_SIZE", 4)
    cluster = MemoryCluster()
    transactions = tuple(cluster.prepare(f"id-{split}", split) for split in range(10))
    with caplog.at_level(logging.INFO):
        settled = settle(cluster, Decision("p", "q", "r", 3, 1, 10, 0, transactions))
    assert settled.took_effect
    assert re.findall(r"micro-batch 3 of q: (\d+) transactions? left to end of 10 decided", caplog.text) == ["6", "2"]


def test_recovery_that_waits_logs_at_intervals(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cluster: MemoryCluster
) -> None:
    monkeypatch.setattr(cluster, "unstable_end", lambda *_, **__: None)
    cluster.prepare("foreign", 0)
    one = cluster.prepare("one", 0)
    decision = Decision("p", "q", "r", 3, 1, 1, 0, (one,))
    settle(cluster, decision)
    cluster.forgotten = {"one"}
    with caplog.at_level(logging.INFO):
        assert settle(cluster, decision).pending == (one,)
    logged = caplog.text.count("1 transaction not settled of 1 decided")
    assert 10 <= logged <= SETTLE_LIMIT_SECONDS / settlement._REPORT_SECONDS + 1
