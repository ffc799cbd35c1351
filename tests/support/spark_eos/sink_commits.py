"""The tasks of micro-batches whose commits are tested against a cluster in memory."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker_core.types import TransactionState
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import AlreadyCommitted, Place, Prepared, TaskMessage
from spark_eos.sink.naming import TaskId
from spark_eos.sink.prepared import TopicRows
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.retirement import Retirement
from spark_eos.sink.protocol.state import QueryRun
from tests.support.spark_eos.driving import log_of
from tests.support.spark_eos.sink_cluster import DECISIONS, MemoryCluster


@pytest.fixture(params=[1, 2], ids=["V1", "V2"])
def cluster(request: pytest.FixtureRequest) -> MemoryCluster:
    return MemoryCluster(version=request.param)


@pytest.fixture
def local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


def committer_of(
    cluster: MemoryCluster,
    run: str = "run1",
    prefix: str = "p",
    policy: OnLostTransaction = OnLostTransaction.FAIL,
    topic: str = DECISIONS,
    query: str = "q",
    retirement: Retirement = Retirement.REPLACE,
) -> Committer:
    log = DecisionLog(prefix, query, topic, run=run)
    return Committer(cluster, QueryRun(log, prefix, query, run, policy, retirement=retirement))


def task_id(run: str = "run1", worker: str = "w0", number: int = 0, prefix: str = "p") -> str:
    return str(TaskId(prefix, "q", run, worker, number))


def prepare(
    cluster: MemoryCluster, micro_batch: int, run: str = "run1", splits: Sequence[int] = (0, 1)
) -> list[TaskMessage]:
    messages: list[TaskMessage] = []
    for split in splits:
        name = task_id(run, f"w{split}")
        cluster.init_producer_id(name, 60_000)
        messages.append(Prepared(Place("q", run, micro_batch, split), cluster.prepare(name, split)))
    return messages


def decide_and_die(
    cluster: MemoryCluster, micro_batch: int = 0, run: str = "run1", splits: Sequence[int] = (0, 1)
) -> list[TaskMessage]:
    """Decide a micro-batch and complete nothing, like a driver that is killed."""
    messages = prepare(cluster, micro_batch, run, splits)
    log = log_of(committer_of(cluster, run))
    log.decide(decision_of(messages, micro_batch), log.take_over())
    cluster.pass_time(1_000)
    return messages


def repeated(run: str = "run2", micro_batch: int = 0, splits: Sequence[int] = (0, 1)) -> list[TaskMessage]:
    """Return the messages of re-run tasks that find the micro-batch decided and read the rows of `prepare` again."""
    rows = (TopicRows("t", 1, 0),)
    return [AlreadyCommitted(Place("q", run, micro_batch, split), rows) for split in splits]


def states(cluster: MemoryCluster) -> set[TransactionState]:
    return {each.state for name, each in cluster.ids.items() if not name.endswith(".driver")}


def decision_of(messages: list[TaskMessage], micro_batch: int = 0) -> Decision:
    found = tuple(m.transaction for m in messages if isinstance(m, Prepared))
    return Decision("p", "q", messages[0].place.run, micro_batch, 1, len(messages), 0, found)


def visible(cluster: MemoryCluster, topic: str = "t") -> int:
    """Count the records of a topic that readers see."""
    return sum(committed for (place, _), committed in cluster.outcomes.items() if place.topic == topic)
