"""What a process of the driver remembers of a run from one micro-batch to the next."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from spark_eos.metrics import SINK_METRICS
from spark_eos.sink.driver.driver_identity import DriverIdentity
from spark_eos.sink.messages import Prepared, TaskMessage

logger = logging.getLogger(__name__)
# Attempts that have lost are at work for this long, most likely.
_WATCHED_SECONDS: Final = 60.0
# What gives no sign is found this soon.
_INTERVAL_SECONDS: Final = 60.0
_REMEMBERED: Final = 10_000
Seen: TypeAlias = tuple[str, tuple[int, int, int]]


@dataclass(slots=True)
class SweepTimes:
    """When a process of a run sweeps: a steady micro-batch has nothing to sweep, and asks no broker for it.

    It does so in its first micro-batch, after each take-over and after an abort; for some time after each sign of
    attempts that may still be at work; and now and then, for what gives no sign. A sign is that the tasks' messages
    show other attempts (see `show_other_attempts`), that an earlier run has decided, or that a sweep found something.
    """

    # By the monotonic clock, in seconds.
    _swept_at: float = -math.inf
    _sign_at: float = -math.inf

    def note(self, is_sign: bool, now: float) -> None:
        """Take note of a sign, if it is one."""
        if is_sign:
            self._sign_at = now

    def expect(self) -> None:
        """Sweep in the next micro-batch."""
        self._swept_at = -math.inf

    def is_due(self, now: float) -> bool:
        """Say whether to sweep now."""
        return now - self._sign_at < _WATCHED_SECONDS or now - self._swept_at >= _INTERVAL_SECONDS

    def done(self, now: float) -> None:
        """Take note of a sweep, whatever came of it: the next one is soon enough for what it has missed."""
        self._swept_at = now


class IdUsage:
    """The transactional ids that a run uses; warns where each task makes one.

    A transactional id belongs to one Python worker process. As long as Spark keeps its workers, a run needs about one
    id for each task that runs at a time. Where it does not, each task of each micro-batch makes one, and coordinators
    remember each of them for seven days. Of very many ids the last ones only are remembered here, so that one that
    comes back may count twice.
    """

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._is_warned = False

    def note(self, query: str, messages: Sequence[TaskMessage]) -> None:
        """Count what was not seen before; warn once of workers that serve one task only."""
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
    """What one of the driver's processes remembers from one micro-batch of a run to the next."""

    identity: DriverIdentity | None = None
    # The micro-batch that was last decided with the identity, None for none since it was taken over.
    decided: int | None = None
    # The rank of that decision.
    rank: tuple[int, int, int] | None = None
    # The micro-batch that was last committed, and the call of a batch write that it came from.
    finished: tuple[int, str] | None = None
    # Whether this process has taken over before, and the newest decision there was then, None for none.
    has_taken_over: bool = False
    seen: Seen | None = None
    # The identity of a decision that failed, until the id is taken over again.
    attempted: DriverIdentity | None = None
    # Whether a request to take over got no answer since this process decided last; it may be done late.
    unanswered: bool = False
    began_at_ms: int | None = None
    superseded: tuple[str, ...] = ()
    # Whether this process has seen the run's first micro-batch, so that `began_at_ms` is that of the run.
    is_new_run: bool = False
    id_usage: IdUsage = field(default_factory=IdUsage)
    # Whether another process of the run was found to have decided since this one.
    is_shared: bool = False
    sweeps: SweepTimes = field(default_factory=SweepTimes)

    @property
    def is_first_decision(self) -> bool:
        """Say whether this process knows of no decision of the query, its own included."""
        return self.decided is None and self.seen is None

    @property
    def known_ranks(self) -> list[tuple[int, int, int]]:
        """Give the ranks of the decisions that this process has made or seen last."""
        return [rank for rank in (self.rank, self.seen and self.seen[1]) if rank is not None]
