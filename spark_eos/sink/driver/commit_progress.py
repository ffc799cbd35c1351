"""What a commit shows of itself: the steps with their durations, what it waits for, and its numbers at the end."""

import logging
from collections.abc import Sequence
from typing import Final

from spark_eos.metrics import SINK_METRICS
from spark_eos.runtime import Clock, now_ms
from spark_eos.sink.driver.id_usage import IdUsage
from spark_eos.sink.messages import Prepared, PreparedTransaction, TaskMessage

logger = logging.getLogger(__name__)
_TIMES_AT_VERIFICATION: Final = ("oldest_open_age_ms", "time_to_timeout_ms")


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
        """Record that a commit begins, and the ids that its tasks have used."""
        self._id_usage.note(self._query, messages)
        self._durations.clear()
        SINK_METRICS.set("undecided_since_timestamp_seconds", self._now_s())

    def decided(self) -> None:
        """Record that the decision is made and its transactions are to be ended."""
        SINK_METRICS.set("undecided_since_timestamp_seconds", 0)
        SINK_METRICS.set("uncompleted_since_timestamp_seconds", self._now_s())

    def aborted(self) -> None:
        """Record that nothing will be decided."""
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
        """Record that a step begins."""
        self._started[step] = self._clock.monotonic()

    def ended(self, step: str, micro_batch: int) -> None:
        """Time and log a step that has ended."""
        duration_ms = (self._clock.monotonic() - self._started[step]) * 1000
        metric = f"{step.replace(' ', '_')}_ms"
        self._durations[metric] = self._durations.get(metric, 0) + round(duration_ms)
        SINK_METRICS.set(metric, round(duration_ms))
        logger.info("micro-batch %d of %s: %s took %.0f ms", micro_batch, self._query, step, duration_ms)

    def _now_s(self) -> int:
        return now_ms(self._clock) // 1000
