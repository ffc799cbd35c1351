"""The commit and the abort of micro-batches in a driver's process: the protocol, its performer and what it shows."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.driver.commit_progress import CommitProgress
from spark_eos.sink.driver.compared_names import ComparedNames
from spark_eos.sink.driver.id_usage import IdUsage
from spark_eos.sink.messages import PreparedTransaction, TaskMessage
from spark_eos.sink.performing import HasRuntime, perform
from spark_eos.sink.protocol.commit import RunCommits
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.retirement import Retirement
from spark_eos.sink.protocol.state import DriverState, RunMemory

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RunState:
    """What a driver's process keeps of a run between micro-batches."""

    memory: RunMemory = field(default_factory=RunMemory)
    id_usage: IdUsage = field(default_factory=IdUsage)


@dataclass(slots=True)
class Committer:
    """The commits and aborts of the micro-batches of one run of one query; see `RunCommits` for the fields."""

    cluster: HasRuntime
    log: DecisionLog
    prefix: str
    query: str
    run: str
    policy: OnLostTransaction
    may_be_decided: bool = True
    kept: RunState = field(default_factory=RunState)
    retirement: Retirement = Retirement.REPLACE
    write: str = ""
    discard_differing_rows: bool = False
    may_hang: bool = False
    compared: ComparedNames = field(default_factory=ComparedNames)
    # What the last call decided and committed.
    committed: tuple[PreparedTransaction, ...] = ()
    progress: CommitProgress = field(init=False)

    def __post_init__(self) -> None:
        """Show the progress of this query."""
        self.progress = CommitProgress(self.query, self.cluster.runtime.clock, self.kept.id_usage)

    @property
    def state(self) -> DriverState:
        """Return what the process knows of the run."""
        return self.kept.memory.state

    def commit(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """Make a micro-batch visible, or raise; return only when each of its transactions is committed."""
        self.committed = ()
        self.committed = perform(
            self.cluster, self._protocol().commit(messages, micro_batch), self.progress, self.compared
        )
        self.progress.finished(messages, micro_batch, self.committed)

    def abort(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """End everything this run has open, except what is decided."""
        perform(self.cluster, self._protocol().abort(messages, micro_batch), self.progress, self.compared)
        self.progress.aborted()

    def _protocol(self) -> RunCommits:
        return RunCommits(
            self.log,
            self.prefix,
            self.query,
            self.run,
            self.policy,
            self.may_be_decided,
            self.kept.memory,
            self.retirement,
            self.write,
            self.discard_differing_rows,
            self.may_hang,
        )
