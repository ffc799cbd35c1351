"""The lag of a query, relative to the last stable offset and to the high watermark.

Spark's own progress has only the former, so an open transaction shows as "lag 0" while records accumulate behind it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from broker_core.types import TopicPartition
from spark_eos.metrics import SOURCE_METRICS
from spark_eos.runtime import Clock
from spark_eos.transactions.standstills import Standstill, Standstills

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 10.0


def show_lag() -> None:
    """Show lag in the driver's log, where its level (INFO) would otherwise hide it.

    Spark gives the Python process of a streaming source no logging, only a stderr, which is the driver's.
    """
    logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def _set_for_partitions(name: str, values: Mapping[TopicPartition, int]) -> None:
    SOURCE_METRICS.set_each(
        name, {(("topic", tp.topic), ("partition", str(tp.partition))): value for tp, value in sorted(values.items())}
    )


class LagWatch:
    """The log of lag, and of partitions whose last stable offset has not moved for too long."""

    def __init__(self, warn_after_ms: int, report: Callable[[Sequence[Standstill]], object], clock: Clock) -> None:
        self._report = report
        self._warn_after_seconds = warn_after_ms / 1_000
        self._clock = clock
        self._standstills = Standstills()
        self._looked_at: float | None = None
        # Of all partitions when they were last measured: the sum of their lags, and the longest stand.
        self.totals: dict[str, int] = {}

    def is_due(self, *, has_read: bool = False) -> bool:
        """Return whether it is time to measure again: after each micro-batch only if that is logged.

        A measurement queries each leader for its high watermarks, and queries trigger many times a second.
        """
        pause = min(_LONGEST_PAUSE_SECONDS, self._warn_after_seconds / 4)
        now = self._clock.monotonic()
        shown = has_read and logger.isEnabledFor(logging.INFO)
        if not shown and self._looked_at is not None and now - self._looked_at < pause:
            return False
        self._looked_at = now
        return True

    def observe(
        self,
        position: Mapping[TopicPartition, int],
        stable: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
    ) -> None:
        """Record the position of the query and the ends of the log; both ends must be from nearly the same moment."""
        both = [tp for tp in position if tp in stable and tp in high_watermarks]
        if logger.isEnabledFor(logging.INFO):
            for tp in sorted(both):
                logger.info(
                    "%s: read up to %d, lag %d to the last stable offset, %d to the high watermark",
                    tp, position[tp], stable[tp] - position[tp], high_watermarks[tp] - position[tp],
                )  # fmt: skip
        now_ms = round(self._clock.monotonic() * 1_000)
        self._standstills.keep_only(position)
        self._standstills.note(stable, high_watermarks, both, now_ms)
        standing = self._standstills.known
        behind_stable = {tp: stable[tp] - position[tp] for tp in both}
        behind_all = {tp: high_watermarks[tp] - position[tp] for tp in both}
        standing_ms = {tp: now_ms - standing[tp].since_ms if tp in standing else 0 for tp in both}
        _set_for_partitions("offsets_behind_last_stable_offset", behind_stable)
        _set_for_partitions("offsets_behind_high_watermark", behind_all)
        _set_for_partitions("last_stable_offset_standing_ms", standing_ms)
        self.totals = {
            "offsets_behind_last_stable_offset": sum(behind_stable.values()),
            "offsets_behind_high_watermark": sum(behind_all.values()),
            "last_stable_offset_standing_ms": max(standing_ms.values(), default=0),
        }
        self._report([standing[tp] for tp in sorted(standing) if standing_ms[tp] >= self._warn_after_seconds * 1_000])
