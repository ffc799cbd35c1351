"""One run of a query, and the state that a driver process keeps of it between micro-batches."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Rank
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.driver_identity import DriverIdentity
from spark_eos.sink.protocol.retirement import Retirement

# Losing attempts run for at most about this long.
_WATCHED_SECONDS: Final = 60.0
# Orphans without any sign are found within this time.
_INTERVAL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class DriverState:
    """What a driver process knows of its run; each change makes a new one.

    A steady micro-batch has nothing to sweep and sends no request for it. A process sweeps in its first micro-batch,
    after each take-over and after an abort; for some time after each sign of attempts that may still be running; and
    periodically, for orphans without any sign. A sign is that the tasks' messages show other attempts (see
    `show_other_attempts`), that an earlier run has decided, or that a sweep found something.
    """

    identity: DriverIdentity | None = None
    # The micro-batch that was last decided with the identity, or None since the take-over.
    decided: int | None = None
    # The rank of that decision.
    rank: Rank | None = None
    # The micro-batch that was last committed, and the call of a batch write that it came from.
    finished: tuple[int, str] | None = None
    # Whether this process has committed the query's first micro-batch, so that no later one was decided before.
    began_query: bool = False
    # Whether this process has taken over before, and the newest decision at that time, or None.
    has_taken_over: bool = False
    seen: tuple[str, Rank] | None = None
    # Whether the id was not used between that decision and the take-over; the pointer alone may have gone back.
    has_followed: bool = False
    # Whether no transaction of the query was committed before its first decision; only looked up if there may be one.
    is_known_new: bool = False
    # The identity of a decision that failed, until the id is taken over again.
    attempted: DriverIdentity | None = None
    # Whether a take-over request received no response since this process decided last; it may be applied late.
    unanswered: bool = False
    began_at_ms: int | None = None
    superseded: tuple[str, ...] = ()
    # Whether this process has seen the run's first micro-batch, so that `began_at_ms` is the run's.
    is_new_run: bool = False
    # Whether another process of the run is known to have decided since this one.
    is_shared: bool = False
    # Whether the log has the reason why brokers list no transactions.
    is_unlisted: bool = False
    # When this process swept, and when it saw a sign of lost attempts, in seconds of the monotonic clock.
    swept_at: float = -math.inf
    sign_at: float = -math.inf

    def has_decided(self, run: str) -> bool:
        """Return whether the run is known to have decided, in this process or, at its take-over, in another one."""
        return self.decided is not None or (self.has_followed and self.seen is not None and self.seen[0] == run)

    def is_sweep_due(self, now: float) -> bool:
        return now - self.sign_at < _WATCHED_SECONDS or now - self.swept_at >= _INTERVAL_SECONDS

    @property
    def known_ranks(self) -> list[Rank]:
        return [rank for rank in (self.rank, self.seen and self.seen[1]) if rank is not None]


@dataclass(slots=True)
class RunMemory:
    """The one place of a process that has the present state of a run."""

    state: DriverState = field(default_factory=DriverState)

    def note(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def expect_sweep(self) -> None:
        self.note(swept_at=-math.inf)


@dataclass(slots=True)
class QueryRun:
    """One run of one query or job, as one process of its driver sees it.

    `may_hang` is True if partition leaders do not verify transactions; then no transaction may be ended that a task may
    still write to. `write` names one call of a batch write.
    """

    log: DecisionLog
    prefix: str
    query: str
    run: str
    policy: OnLostTransaction
    memory: RunMemory = field(default_factory=RunMemory)
    retirement: Retirement = Retirement.REPLACE
    write: str = ""
    discard_differing_rows: bool = False
    may_hang: bool = False

    @property
    def state(self) -> DriverState:
        return self.memory.state

    @property
    def prefixes(self) -> list[str]:
        """Return the prefix of the options, and the prefix of the decisions if it is another one."""
        return list(dict.fromkeys((self.prefix, self.log.prefix)))

    @property
    def may_be_decided(self) -> bool:
        """Return whether an earlier run can have decided: not for a batch job without a job id."""
        return self.retirement is not Retirement.FORGET

    @property
    def is_query(self) -> bool:
        """Return whether there is more than one micro-batch."""
        return self.retirement is Retirement.REPLACE
