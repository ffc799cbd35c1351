"""The state that a driver process keeps of a run between micro-batches."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from spark_eos.metrics import SINK_METRICS
from spark_eos.sink.driver.driver_identity import DriverIdentity
from spark_eos.sink.messages import Prepared, TaskMessage

logger = logging.getLogger(__name__)
# Losing attempts run for at most about this long.
_WATCHED_SECONDS: Final = 60.0
# Orphans without any sign are found within this time.
_INTERVAL_SECONDS: Final = 60.0
_REMEMBERED: Final = 10_000
Seen: TypeAlias = tuple[str, tuple[int, int, int]]


@dataclass(slots=True)
class SweepTimes:
    """When a process of a run sweeps: a steady micro-batch has nothing to sweep and sends no request for it.

    A process sweeps in its first micro-batch, after each take-over and after an abort; for some time after each sign of
    attempts that may still be running; and periodically, for orphans without any sign. A sign is that the tasks'
    messages show other attempts (see `show_other_attempts`), that an earlier run has decided, or that a sweep found
    something.
    """

    # By the monotonic clock, in seconds.
    _swept_at: float = -math.inf
    _sign_at: float = -math.inf

    def note(self, is_sign: bool, now: float) -> None:
        """Record a sign, if it is one."""
        if is_sign:
            self._sign_at = now

    def expect(self) -> None:
        """Sweep in the next micro-batch."""
        self._swept_at = -math.inf

    def is_due(self, now: float) -> bool:
        """Return whether to sweep now."""
        return now - self._sign_at < _WATCHED_SECONDS or now - self._swept_at >= _INTERVAL_SECONDS

    def done(self, now: float) -> None:
        """Record a sweep, whatever its result; the next one finds what it missed."""
        self._swept_at = now


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
        """Count new ids; warn once about workers that serve only one task."""
        prepared = [message for message in messages if isinstance(message, Prepared)]
        new = dict.fromkeys(name for each in prepared if (name := each.transaction.transactional_id) not in self._seen)
        SINK_METRICS.add("transactional_ids_used", len(new))
        self._seen |= new
        for oldest in list(self._seen)[:-_REMEMBERED]:
            del self._seen[oldest]
        if not self._is_warned and any(not each.is_worker_kept for each in prepared):
            self._is_warned = True
            logger.warning(
                "query %s: spark.python.worker.reuse is false, so every task creates its own transactional id, "
                "and brokers keep each in memory for transactional.id.expiration.ms (7 days by default). Set "
                "spark.python.worker.reuse=true",
                query,
            )


@dataclass(slots=True)
class RunState:
    """The state that a driver process keeps of a run between micro-batches."""

    identity: DriverIdentity | None = None
    # The micro-batch that was last decided with the identity, or None since the take-over.
    decided: int | None = None
    # The rank of that decision.
    rank: tuple[int, int, int] | None = None
    # The micro-batch that was last committed, and the call of a batch write that it came from.
    finished: tuple[int, str] | None = None
    # Whether this process has taken over before, and the newest decision at that time, or None.
    has_taken_over: bool = False
    seen: Seen | None = None
    # Whether no transaction of the query was committed before its first decision; only looked up if there may be one.
    is_known_new: bool = False
    # The identity of a decision that failed, until the id is taken over again.
    attempted: DriverIdentity | None = None
    # Whether a take-over request received no response since this process decided last; it may be applied late.
    unanswered: bool = False
    began_at_ms: int | None = None
    superseded: tuple[str, ...] = ()
    # Whether this process has seen the run's first micro-batch, so that `began_at_ms` is that of the run.
    is_new_run: bool = False
    id_usage: IdUsage = field(default_factory=IdUsage)
    # Whether another process of the run is known to have decided since this one.
    is_shared: bool = False
    # Whether the log has the reason why brokers list no transactions.
    is_unlisted: bool = False
    sweeps: SweepTimes = field(default_factory=SweepTimes)

    def has_decided(self, run: str) -> bool:
        """Return whether the run is known to have decided, in this process or, at its take-over, in another one."""
        return self.decided is not None or (self.seen is not None and self.seen[0] == run)

    @property
    def known_ranks(self) -> list[tuple[int, int, int]]:
        """Return the ranks of the decisions that this process made or saw last."""
        return [rank for rank in (self.rank, self.seen and self.seen[1]) if rank is not None]
