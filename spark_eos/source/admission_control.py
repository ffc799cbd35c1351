"""The size of the next micro-batch: the maximum, the minimum and the longest wait."""

import time
from collections.abc import Callable, Mapping

from broker_core.types import TopicPartition
from spark_eos.errors import EosKafkaError
from spark_eos.options.source import SourceOptions
from spark_eos.source.offsets import OffsetMap, limit_offsets, new_offset_count
from spark_eos.spark_api import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows


class AdmissionControl:
    """The rules of `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

    Spark's Python API has no composite limit, so the default limit has one number and the rest is kept here.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = options.max_offsets_per_trigger
        self._least = options.min_offsets_per_trigger
        self._longest_wait_seconds = options.max_trigger_delay_ms / 1_000
        self._clock = clock
        self._last_batch_at: float | None = None

    def default_limit(self) -> ReadLimit:
        """Return the limit that the options set; Spark passes it back unless the trigger reads everything."""
        if self._most is not None:
            return ReadMaxRows(self._most)
        return ReadAllAvailable() if self._least is None else ReadMinRows(self._least)

    def admit(
        self,
        start: Mapping[TopicPartition, int],
        available: Mapping[TopicPartition, int],
        limit: ReadLimit,
        *,
        may_wait: bool = True,
    ) -> OffsetMap:
        """Return where the micro-batch ends: at `start` if it should wait for more.

        `may_wait` is false for Trigger.AvailableNow, for which nothing more will arrive.
        """
        if isinstance(limit, ReadAllAvailable):
            return dict(available)
        if not isinstance(limit, ReadMaxRows | ReadMinRows):
            raise EosKafkaError(
                f"The read limit {limit!r} cannot be applied to Kafka", remedy="Limit with maxOffsetsPerTrigger"
            )
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._least
        if least is not None and may_wait and self._should_wait(new_offset_count(start, available), least):
            return dict(start)
        return limit_offsets(start, available, limit.max_rows) if isinstance(limit, ReadMaxRows) else dict(available)

    def _should_wait(self, new_offsets: int, least: int) -> bool:
        now = self._clock()
        first = self._last_batch_at is None
        waited = first or now - (self._last_batch_at or 0.0) >= self._longest_wait_seconds
        if new_offsets < least and not waited:
            return True
        self._last_batch_at = now
        return False
