"""Be the one driver of a query, in whichever process a micro-batch is committed.

Spark commits in whatever Python worker is idle, and the queries of a session share them: the commits of one run come to
several processes by turns, and each of them takes the driver's transactional id over from the others. So to be fenced
says nothing of a newer driver. A process knows by the newest decision whether it still has the id, and whose is whose:

- the newest decision is its own last one: it still has the id, and goes on with the epoch it was left with;
- its own run has decided since: another process has the id, so it takes over;
- another run has decided since: a newer driver is at work, so it stops and fences nobody;
- it has not decided yet with the id that it took: another process may have taken over for a micro-batch without rows,
  and left no trace. It takes over anew, unless another run has decided meanwhile.

Under the old protocol an epoch serves one decision, so that the id is taken over, or renewed, for each.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from broker_core.errors import ErrorCode
from spark_eos import failpoints
from spark_eos.errors import EosKafkaError, FencedError
from spark_eos.sink.decision import Decision
from spark_eos.sink.decision_log import DecisionLog, DriverIdentity
from spark_eos.sink.runs import superseded_error, superseding
from spark_eos.sink.used_ids import UsedIds

LOG: Final = logging.getLogger("spark_eos.sink")
Seen: TypeAlias = tuple[str, tuple[int, int, int]]


@dataclass(slots=True)
class RunState:
    """Remember, in one of the driver's processes, what lasts from one micro-batch of a run to the next."""

    identity: DriverIdentity | None = None
    # The micro-batch that was last decided with the identity, None for none since it was taken over.
    decided: int | None = None
    # Whether this process has taken over before, and the newest decision there was then, None for none.
    has_taken_over: bool = False
    seen: Seen | None = None
    began_at_ms: int | None = None
    superseded: tuple[str, ...] = ()
    # Whether this process has seen the run's first micro-batch, so that `began_at_ms` is that of the run.
    is_new_run: bool = False
    used_ids: UsedIds = field(default_factory=UsedIds)


@dataclass(slots=True)
class Driver:
    """Be the driver for one micro-batch; `step` times what is done and logs it.

    `may_be_decided` is False where no earlier run can be; `is_query` is False where there is one micro-batch only.
    """

    log: DecisionLog
    run: str
    state: RunState
    micro_batch: int
    step: Callable[[str], AbstractContextManager[None]]
    may_be_decided: bool = True
    is_query: bool = True

    def newest(self, *, has_rows: bool) -> Decision | None:
        """Be the one driver, then read the newest decision; whoever takes over needs it whatever its micro-batch.

        A process that begins with a run fences whoever came before, rows or none. Once the run has decided, its
        processes do not take over from one another for a micro-batch that has nothing to decide.
        """
        # What was not there may be there now: other processes decide too.
        self.log.scan_again()
        identity, decided, newer = self.state.identity, self.state.decided, None
        if decided is not None and self.may_be_decided:
            newer = self.log.newest(decided + 1)
        if identity is None or decided is None or newer is not None:
            self.state.identity = self.state.decided = None
            before = self._newest_unless_superseded()
            run_has_decided = (
                before is not None and before.run == self.run and before.micro_batch < self.micro_batch)
            return before if run_has_decided and not has_rows else self._take_over(before)
        if not identity.spent:
            failpoints.reach("driver.taken_over", self.micro_batch)
            return None
        with self.step("take over"):
            self.state.identity = self.log.renew(identity)
        failpoints.reach("driver.taken_over", self.micro_batch)
        return self.newest_since()

    def _take_over(self, before: Decision | None) -> Decision | None:
        """Take over in this process, unless a newer run has decided: a sleeper that wakes must not fence it.

        The newest decision names that run, or it is another run's and was not there when this process took over last.
        """
        if (before is not None and before.run != self.run
                and self.state.has_taken_over and _seen(before) != self.state.seen):
            raise superseded_error(before, self.run)
        with self.step("take over"):
            self.state.identity = self.log.take_over()
        failpoints.reach("driver.taken_over", self.micro_batch)
        newest = self._newest_unless_superseded()
        self._note(newest)
        if self.is_query:
            self.state.is_new_run = newest is None or newest.run != self.run
            # What this process has swept is named on, though another has decided since who did not know of it.
            self.state.superseded = superseding(newest, self.run, self.state.superseded)
        return newest

    def _note(self, newest: Decision | None) -> None:
        """Remember the newest decision there was when this process had the id."""
        self.state.has_taken_over, self.state.seen = True, None if newest is None else _seen(newest)

    def _newest_unless_superseded(self) -> Decision | None:
        newest = self.log.newest() if self.may_be_decided else None
        if newest is not None and self.run in newest.superseded:
            self.state.identity = None
            raise superseded_error(newest, self.run)
        return newest

    def newest_since(self) -> Decision | None:
        """Read after a renewal, which may have fenced whoever superseded this run: an older decision tells that too."""
        newest = self._newest_unless_superseded()
        return newest if newest is not None and newest.micro_batch >= self.micro_batch else None

    def decide(self, decision: Decision, known: Decision | None, decide_by_ms: int) -> None:
        """Write the decision; once more where the driver's id has expired while the query was idle.

        `known` is the decision of this micro-batch that it replaces: another driver may have made one meanwhile.
        """
        identity, self.state.identity = self.state.identity, None
        assert identity is not None
        try:
            following = self.log.decide(decision, identity, decide_by_ms)
        except EosKafkaError as error:
            if error.error_code != ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise
            LOG.info("micro-batch %d of %s: the driver's id has expired: %s", self.micro_batch, decision.query, error)
            identity = self.log.renew(identity)
            if self.newest_since() != known:
                raise FencedError(
                    f"Another driver has decided micro-batch {decision.micro_batch} of query {decision.query}",
                    checked="The decision log, after the id of this driver had expired",
                    remedy="Run one driver for each checkpoint, then start the query again",
                ) from error
            following = self.log.decide(decision, identity, decide_by_ms)
        self.state.identity, self.state.decided = following, decision.micro_batch

    def amend(self, noted: Decision, now_ms: int) -> None:
        """Replace the newest decision by a later revision of it, which is then no sign of another driver."""
        identity, self.state.identity = self.state.identity, None
        assert identity is not None
        self.state.identity = self.log.amend(noted, identity, now_ms)
        self._note(noted)


def _seen(decision: Decision) -> Seen:
    return decision.run, decision.rank
