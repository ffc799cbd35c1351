"""Nothing is ended while a partition that it wrote to has no leader: its marker could be lost (KAFKA-20734)."""

from dataclasses import dataclass, replace

import pytest

from broker_core.types import TransactionState
from spark_eos.sink.decision import Decision, Intervention, OperatorAction
from spark_eos.sink.performing import perform
from spark_eos.sink.protocol.descriptions import abort_described
from tests.support.spark_eos.driving import settle
from tests.support.spark_eos.sink_cluster import MemoryCluster

ONGOING, COMMITTED, ABORTED = (
    TransactionState.ONGOING,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


@dataclass
class Cluster(MemoryCluster):
    """A cluster whose partition 1 has no leader for some time; `ends` are the times at which ids were ended."""

    away_ms: int = 5_000

    def __post_init__(self) -> None:
        self.leaderless = {1}
        self.began_ms = self.now_ms

    def pass_time(self, ms: int) -> None:
        super().pass_time(ms)
        if self.now_ms >= self.began_ms + self.away_ms:
            self.leaderless = set()


def _decided(cluster: MemoryCluster, **fields: object) -> Decision:
    written = tuple(cluster.prepare(f"id-{split}", split) for split in range(3))
    return Decision("p", "q", "r", 3, 1, 3, 0, written, **fields)  # type: ignore[arg-type]


def test_recovery_commits_what_has_leaders_and_waits_for_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    cluster = Cluster()
    assert settle(cluster, _decided(cluster)).took_effect
    assert cluster.now_ms >= cluster.began_ms + cluster.away_ms
    assert "among them id-1; next: commit the open ones when t-1 has a leader" in caplog.text


def test_recovery_reports_what_it_could_not_end() -> None:
    cluster = Cluster(away_ms=10**9)
    decision = _decided(cluster)
    for each in cluster.ids.values():
        each.timeout_ms = 900_000
    decision = replace(decision, transactions=tuple(replace(t, timeout_ms=900_000) for t in decision.transactions))
    settled = settle(cluster, decision)
    assert [each.transactional_id for each in settled.pending] == ["id-1"]
    assert [cluster.ids[f"id-{split}"].state for split in range(3)] == [COMMITTED, ONGOING, COMMITTED]


def test_recovery_waits_no_longer_than_half_of_the_timeout() -> None:
    """A commit whose marker an operator can write is better than an abort."""
    cluster = Cluster(away_ms=10**9)
    assert settle(cluster, _decided(cluster)).took_effect
    assert cluster.now_ms - cluster.began_ms in range(30_000, 31_000)


def test_roll_back_waits_as_well() -> None:
    cluster = Cluster()
    abandoned = Intervention(OperatorAction.ABORT, "ops", 1)
    assert not settle(cluster, _decided(cluster, intervention=abandoned)).still_open
    assert cluster.now_ms >= cluster.began_ms + cluster.away_ms
    assert {each.state for each in cluster.ids.values()} == {ABORTED}


def test_sweep_leaves_what_has_a_partition_without_a_leader() -> None:
    cluster = Cluster()
    names = [cluster.prepare(f"id-{split}", split).transactional_id for split in range(3)]
    described = cluster.describe_transactions(names)
    ended = perform(cluster, abort_described(list(described.values())))
    assert [each.transactional_id for each in ended] == ["id-0", "id-2"]
    assert [cluster.ids[name].state for name in names] == [ABORTED, ONGOING, ABORTED]
