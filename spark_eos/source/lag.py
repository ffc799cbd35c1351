"""Tell how far a query is behind, against the last stable offset and against the high watermark.

Spark's own progress knows only the former, so that a transaction left open shows as "lag 0" while records pile up
behind it.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker_core.types import TopicPartition
from spark_eos.source.metrics import set_for_partitions

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 10.0


@dataclass
class _Stand:
    last_stable_offset: int
    since: float
    warned: bool = False


def show_lag() -> None:
    """Let lag be seen in the driver's log, where its level (INFO) would keep it out.

    Spark gives the Python process of a streaming source no logging, only a stderr, which is the driver's.
    """
    logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


class LagWatch:
    """Log lag with each micro-batch, and warn once when a last stable offset stands still for too long."""

    def __init__(
        self,
        warn_after_ms: int,
        name_blocker: Callable[[TopicPartition], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name_blocker = name_blocker
        self._warn_after_seconds = warn_after_ms / 1_000
        self._clock = clock
        self._stands: dict[TopicPartition, _Stand] = {}
        self._looked_at: float | None = None

    def is_due(self) -> bool:
        """Say whether it is time to look again; an idle query is asked many times a second."""
        pause = min(_LONGEST_PAUSE_SECONDS, self._warn_after_seconds / 4)
        now = self._clock()
        if self._looked_at is not None and now - self._looked_at < pause:
            return False
        self._looked_at = now
        return True

    def observe(
        self,
        position: Mapping[TopicPartition, int],
        stable: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
    ) -> None:
        """Take note of where query and log stand; both ends must come from the same moment, as near as can be."""
        now = self._clock()
        for tp, offset in sorted(position.items()):
            last_stable, high_watermark = stable.get(tp), high_watermarks.get(tp)
            if last_stable is None or high_watermark is None:
                continue
            if logger.isEnabledFor(logging.INFO):
                logger.info(
                    "%s: read up to %d, lag %d to the last stable offset, %d to the high watermark",
                    tp, offset, last_stable - offset, high_watermark - offset,
                )  # fmt: skip
            self._watch(tp, last_stable, high_watermark, now)
        both = position.keys() & stable.keys() & high_watermarks.keys()
        set_for_partitions("offsets_behind_last_stable_offset", {tp: stable[tp] - position[tp] for tp in both})
        set_for_partitions("offsets_behind_high_watermark", {tp: high_watermarks[tp] - position[tp] for tp in both})
        set_for_partitions("last_stable_offset_standing_ms", {
            tp: round((now - self._stands[tp].since) * 1_000) if tp in self._stands else 0 for tp in both})

    def _watch(self, tp: TopicPartition, last_stable: int, high_watermark: int, now: float) -> None:
        if high_watermark <= last_stable:
            self._stands.pop(tp, None)
            return
        stand = self._stands.get(tp)
        if stand is None or stand.last_stable_offset != last_stable:
            self._stands[tp] = _Stand(last_stable, now)
        elif not stand.warned and now - stand.since >= self._warn_after_seconds:
            stand.warned = True
            logger.warning(
                "%s: an open transaction holds the last stable offset at %d for %.0f s now; %d offsets wait behind. %s",
                tp, last_stable, now - stand.since, high_watermark - last_stable, self._name_blocker(tp),
            )  # fmt: skip
