"""Decided micro-batches on a cluster in memory, for the operator's commands."""

import argparse

from spark_eos.admin.command import _parser
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.messages import TaskMessage
from spark_eos.sink.protocol.settlement import must_write
from tests.support.spark_eos.driving import LogOn, settle
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster
from tests.support.spark_eos.sink_commits import committer_of, decide_and_die, decision_of, prepare, repeated

COMMAND = ["--bootstrap-server", "h:1", "--prefix", "p", "--query", "q", "--watch-seconds", "0", "--by", "ann@desk"]


def parsed(*words: str) -> argparse.Namespace:
    given = COMMAND if words[0] in ("complete", "abort") else COMMAND[:6]
    return _parser().parse_args(["decisions", *words, *given])


def decided(cluster: MemoryCluster, micro_batch: int = 3, splits: tuple[int, ...] = (0, 1)) -> Decision:
    """Decide a micro-batch and complete no transaction, like a driver that dies."""
    return decision_of(decide_and_die(cluster, micro_batch, splits=splits), micro_batch)


def end(cluster: MemoryCluster, decision: Decision, split: int, *, commit: bool) -> None:
    [found] = [t for t in decision.transactions if t.split == split]
    opened = found.opened._replace(transaction_version=cluster.version)
    cluster.end_transactions([opened], commit)


def newest(cluster: MemoryCluster) -> Decision:
    found: Decision = LogOn(cluster, "p", "q", DECISIONS).newest()
    return found


def restart(cluster: MemoryCluster, micro_batch: int = 3) -> list[TaskMessage]:
    """Run the micro-batch again as a restarted query does: each task checks first, then the driver commits."""
    messages: list[TaskMessage] = []
    for split in (0, 1):
        if not must_write(settle(cluster, newest(cluster)), split, OnLostTransaction.FAIL):
            messages += repeated("run2", micro_batch, (split,))
        else:
            messages += prepare(cluster, micro_batch, "run2", (split,))
    committer_of(cluster, "run2").commit(messages, micro_batch)
    return messages
