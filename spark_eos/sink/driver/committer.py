"""The commit and the abort of micro-batches in a driver's process: the protocol, its performer and what it shows."""

import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from spark_eos.metrics import SINK_METRICS
from spark_eos.runtime import Clock, Runtime, now_ms
from spark_eos.sink.incarnation import local_path
from spark_eos.sink.messages import Prepared, TaskMessage
from spark_eos.sink.performing import Handlers, HasRuntime, perform
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import asks, commit
from spark_eos.sink.protocol.state import QueryRun

Result = TypeVar("Result")
logger = logging.getLogger(__name__)
_IDS_REMEMBERED: Final = 10_000
_TIMES_AT_VERIFICATION: Final = ("oldest_open_age_ms", "time_to_timeout_ms")


class IdUsage:
    """The transactional ids that a run uses; warns if each task creates one.

    A transactional id belongs to one Python worker process. While Spark keeps its workers, a run needs about one id for
    each concurrent task. If Spark does not, each task of each micro-batch creates one, and coordinators remember each
    of them for seven days. Only the last ones are remembered here, so an id that returns may count twice.
    """

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._is_warned = False

    def note(self, query: str, messages: Sequence[TaskMessage]) -> None:
        prepared = [message for message in messages if isinstance(message, Prepared)]
        new = dict.fromkeys(name for each in prepared if (name := each.transaction.transactional_id) not in self._seen)
        SINK_METRICS.add("transactional_ids_used", len(new))
        self._seen |= new
        for oldest in list(self._seen)[:-_IDS_REMEMBERED]:
            del self._seen[oldest]
        if not self._is_warned and any(not each.is_worker_kept for each in prepared):
            self._is_warned = True
            logger.warning(
                "query %s: spark.python.worker.reuse is false, so every task creates its own transactional id, "
                "and brokers keep each in memory for transactional.id.expiration.ms (7 days by default). Set "
                "spark.python.worker.reuse=true",
                query,
            )


class ComparedNames:
    """The names of the decisions that the runs of a driver have compared; see `protocol.compared_decisions`.

    Spark commits each write in any Python process of the driver. So a commit that finds its decision leaves an empty
    file in the temporary directory of the driver's JVM (see `incarnation`). A driver that commits in its own process
    remembers it.
    """

    def __init__(self, runtime: Runtime | None = None) -> None:
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        self._names.add(name)
        path = local_path("compared", name)
        if path is not None:
            # Without the file the other writes stop, if they are committed in another process.
            with suppress(OSError):
                path.touch()

    def __contains__(self, name: str) -> bool:
        path = local_path("compared", name)
        return name in self._names or (path is not None and path.exists())


class CommitProgress:
    """The progress of the commits of one query, one at a time."""

    def __init__(self, query: str, clock: Clock, id_usage: IdUsage) -> None:
        self._query = query
        self._clock = clock
        self._id_usage = id_usage
        # Of the steps of this commit, in milliseconds, under the names of their metrics.
        self._durations: dict[str, int] = {}
        # When the steps began.
        self._started: dict[str, float] = {}

    def begin(self, messages: Sequence[TaskMessage]) -> None:
        self._id_usage.note(self._query, messages)
        self._durations.clear()
        SINK_METRICS.set("undecided_since_timestamp_seconds", self._now_s())

    def decided(self) -> None:
        SINK_METRICS.set("undecided_since_timestamp_seconds", 0)
        SINK_METRICS.set("uncompleted_since_timestamp_seconds", self._now_s())

    def aborted(self) -> None:
        SINK_METRICS.set("undecided_since_timestamp_seconds", 0)
        SINK_METRICS.set("updated_timestamp_seconds", self._now_s())

    def finished(
        self, messages: Sequence[TaskMessage], micro_batch: int, committed: Sequence[PreparedTransaction]
    ) -> None:
        """Record the end, and report the numbers of the micro-batch to users who log them."""
        SINK_METRICS.set("undecided_since_timestamp_seconds", 0)
        SINK_METRICS.set("uncompleted_since_timestamp_seconds", 0)
        SINK_METRICS.set("updated_timestamp_seconds", self._now_s())
        gauges = SINK_METRICS.snapshot() if "verify_ms" in self._durations else {}
        SINK_METRICS.report(
            micro_batch=micro_batch,
            transactions=len(committed),
            records=sum(each.record_count for each in committed),
            bytes=sum(each.size_bytes for each in messages if isinstance(each, Prepared)) if committed else 0,
            **{name: gauges[name] for name in _TIMES_AT_VERIFICATION if name in gauges},
            **self._durations,
        )

    def begun(self, step: str) -> None:
        self._started[step] = self._clock.monotonic()

    def ended(self, step: str, micro_batch: int) -> None:
        duration_ms = (self._clock.monotonic() - self._started[step]) * 1000
        metric = f"{step.replace(' ', '_')}_ms"
        self._durations[metric] = self._durations.get(metric, 0) + round(duration_ms)
        SINK_METRICS.set(metric, round(duration_ms))
        logger.info("micro-batch %d of %s: %s took %.0f ms", micro_batch, self._query, step, duration_ms)

    def _now_s(self) -> int:
        return now_ms(self._clock) // 1000


@dataclass(slots=True)
class Committer:
    """The commits and aborts of the micro-batches of one run of one query, on a cluster."""

    cluster: HasRuntime
    own: QueryRun
    id_usage: IdUsage = field(default_factory=IdUsage)
    compared: ComparedNames = field(default_factory=ComparedNames)
    # What the last call decided and committed.
    committed: tuple[PreparedTransaction, ...] = ()
    progress: CommitProgress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = CommitProgress(self.own.query, self.cluster.runtime.clock, self.id_usage)

    def commit(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """Make a micro-batch visible, or raise; return only when each of its transactions is committed."""
        self.committed = ()
        self.committed = self._perform(commit.commit(self.own, messages, micro_batch))
        self.progress.finished(messages, micro_batch, self.committed)

    def abort(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """End everything this run has open, except what is decided."""
        self._perform(commit.abort(self.own, messages, micro_batch))
        self.progress.aborted()

    def _perform(self, coroutine: Coroutine[asks.Ask[Any], Any, Result]) -> Result:
        handlers: Handlers = {
            asks.Accepted: lambda ask: self.progress.begin(ask.messages),
            asks.Begun: lambda ask: self.progress.begun(ask.step),
            asks.Ended: lambda ask: self.progress.ended(ask.step, ask.micro_batch),
            asks.Decided: lambda _: self.progress.decided(),
            asks.Compared: lambda ask: ask.name in self.compared,
            asks.NoteCompared: lambda ask: self.compared.add(ask.name),
        }
        return perform(self.cluster, coroutine, handlers)
