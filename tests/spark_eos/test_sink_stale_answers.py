"""Check that an answer from the past, of a broker that is cut off from its peers, loses and repeats nothing."""

import copy

import pytest

from spark_eos.sink.committer import Committer
from spark_eos.sink.ports import TransactionState
from tests.spark_eos.sink_cluster import MemoryCluster
from tests.spark_eos.sink_commits import cluster, committer_of, prepare, states, task_id

__all__ = ["cluster"]
S = TransactionState


def visible(cluster: MemoryCluster) -> int:
    return sum(committed for (place, _), committed in cluster.outcomes.items() if place.topic == "t")


def cut_off_group_coordinator(cluster: MemoryCluster) -> None:
    """Keep what the group's coordinator knows now as the answer of a broker that hears of nothing more."""
    cluster.past_offsets["p.q"] = dict(cluster.groups.get("p.q", {}))


@pytest.mark.parametrize("micro_batch", [0, 1])
def test_a_restart_that_reads_the_pointer_from_a_broker_cut_off_writes_no_row_twice(
    cluster: MemoryCluster, micro_batch: int
) -> None:
    """Run 1 dies when its micro-batch is visible and Spark has not noted that; tasks and driver of run 2 look back."""
    first = committer_of(cluster)
    for number in range(micro_batch):
        first.commit(prepare(cluster, number), number)
    cluster.past_offsets["p.q"] = dict(cluster.groups.get("p.q", {}))
    past = cluster.past_offsets.pop("p.q")
    first.commit(prepare(cluster, micro_batch), micro_batch)
    rows = visible(cluster)
    cluster.past_offsets["p.q"] = past
    committer_of(cluster, "run2").commit(prepare(cluster, micro_batch, "run2"), micro_batch)
    assert visible(cluster) == rows
    newest = committer_of(cluster).log.newest()
    assert newest is not None and newest.run == "run1"
    assert {cluster.ids[task_id("run2", f"w{split}")].state for split in (0, 1)} == {S.COMPLETE_ABORT}
