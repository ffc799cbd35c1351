"""The commit and the abort of micro-batches in a driver's process: the protocol, its performer and what it shows."""

import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from spark_eos.metrics import SINK_METRICS
from spark_eos.runtime import Runtime, now_ms
from spark_eos.sink.incarnation import is_left, leave
from spark_eos.sink.messages import Prepared, TaskMessage, check_messages
from spark_eos.sink.performing import Handlers, HasRuntime, perform
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import asks, commit
from spark_eos.sink.protocol.state import QueryRun

Result = TypeVar("Result")
logger = logging.getLogger(__name__)
_IDS_REMEMBERED: Final = 10_000
_TIMES_AT_VERIFICATION: Final = ("oldest_open_age_ms", "time_to_timeout_ms")


class IdUsage:
    """The transactional ids that a run uses; warns if each task creates one, because Spark does not keep its workers.

    Only the last ones are remembered here, so an id that returns may count twice.
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
    """The names of the decisions that the runs of a driver have compared; see `protocol.rerun_checks`.

    Spark commits each write in any Python process of the driver, so a name is left for all of them (`incarnation`).
    """

    def __init__(self, runtime: Runtime | None = None) -> None:
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        self._names.add(name)
        # Without the file the other writes stop, if they are committed in another process.
        leave("compared", name)

    def __contains__(self, name: str) -> bool:
        return name in self._names or is_left("compared", name)


@dataclass(slots=True)
class Committer:
    """The commits and aborts of the micro-batches of one run of one query, on a cluster, one at a time."""

    cluster: HasRuntime
    own: QueryRun
    id_usage: IdUsage = field(default_factory=IdUsage)
    compared: ComparedNames = field(default_factory=ComparedNames)
    # What the last call decided and committed.
    committed: tuple[PreparedTransaction, ...] = ()
    # How many milliseconds the steps of this commit took, by the names of their metrics.
    _durations: dict[str, int] = field(default_factory=dict)

    def commit(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        """Make a micro-batch visible, or raise; return only when each of its transactions is committed.

        The numbers of the micro-batch are reported to users who log them.
        """
        self.committed = ()
        self._durations.clear()
        check_messages(messages, self.own.query, self.own.run, micro_batch)
        self.id_usage.note(self.own.query, messages)
        self.committed = self._perform(commit.commit(self.own, messages, micro_batch))
        SINK_METRICS.set("undecided_since_timestamp_seconds", 0)
        SINK_METRICS.set("uncompleted_since_timestamp_seconds", 0)
        SINK_METRICS.set("updated_timestamp_seconds", self._now_s())
        metrics = dict(SINK_METRICS.snapshot())
        logger.info("micro-batch %d of %s: %s", micro_batch, self.own.query, metrics)
        gauges = metrics if "verify_ms" in self._durations else {}
        SINK_METRICS.report(
            micro_batch=micro_batch,
            transactions=len(self.committed),
            records=sum(each.record_count for each in self.committed),
            bytes=sum(each.size_bytes for each in messages if isinstance(each, Prepared)) if self.committed else 0,
            **{name: gauges[name] for name in _TIMES_AT_VERIFICATION if name in gauges},
            **self._durations,
        )

    def abort(self, messages: Sequence[TaskMessage], micro_batch: int) -> None:
        self._perform(commit.abort(self.own, messages, micro_batch))
        SINK_METRICS.set("undecided_since_timestamp_seconds", 0)
        SINK_METRICS.set("updated_timestamp_seconds", self._now_s())

    def _perform(self, coroutine: Coroutine[asks.Ask[Any], Any, Result]) -> Result:
        handlers: Handlers = {
            asks.Ended: self._end_step,
            asks.Compared: lambda ask: ask.name in self.compared,
            asks.NoteCompared: lambda ask: self.compared.add(ask.name),
        }
        return perform(self.cluster, coroutine, handlers)

    def _end_step(self, ask: asks.Ended) -> None:
        duration_ms = ask.seconds * 1000
        metric = f"{ask.step.replace(' ', '_')}_ms"
        self._durations[metric] = self._durations.get(metric, 0) + round(duration_ms)
        SINK_METRICS.set(metric, round(duration_ms))
        logger.info("micro-batch %d of %s: %s took %.0f ms", ask.micro_batch, self.own.query, ask.step, duration_ms)

    def _now_s(self) -> int:
        return now_ms(self.cluster.runtime.clock) // 1000
