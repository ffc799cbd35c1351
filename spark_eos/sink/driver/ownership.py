"""The ownership of a query's driver id, in whichever process a micro-batch is committed.

Spark commits in whatever Python worker is idle, and the queries of a session share them: the commits of one run come to
several processes by turns, and each of them takes the driver's transactional id over from the others. So to be fenced
says nothing of a newer driver. A process knows by the newest decision whether it still has the id, and whose is whose:

- the newest decision is its own last one: it still has the id, and goes on with the epoch it was left with;
- its own run has decided since: another process has the id, so it takes over;
- another run has decided since: a newer driver is at work, so it stops and fences none;
- it has not decided yet with the id that it took: another process may have taken over for a micro-batch without rows,
  and left no trace. It takes over again, unless another run has decided meanwhile.

What it reads may be from the past: a group coordinator that is cut off from its peers goes on to answer, and hides what
another process of the run has decided. This one then finds the id in other hands, and for that reason alone it would
stop for a newer driver that is not there. So before it stops it reads the newest decision again, from the coordinator
that another broker names. One of its own run that it did not know is the second case: it takes over. A newer driver
that has decided shows itself there, and is not fenced. One that has taken over after the run's own decision and has not
decided yet is fenced, as in the second case everywhere: that stops it, and repeats nothing, since the first decision
after a take-over checks what was read then.

A request of its own to take over that got no answer may be done late, after a later one was answered, and looks like
another driver's. So after one without an answer this process may lose the id once, until it has decided, and takes it
over again unless another run has decided: what is said above of a newer driver holds here too.

Under the old protocol an epoch serves one decision, so that the id is taken over, or renewed, for each.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from spark_eos import failpoints
from spark_eos.errors import FencedError, LostTransactionError, UnansweredError
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.decision_errors import OutdatedError, behind_error, late_error
from spark_eos.sink.driver.decision_log import DecisionLog
from spark_eos.sink.driver.driver_identity import DriverIdentity, Known
from spark_eos.sink.driver.run_state import RunState, Seen
from spark_eos.sink.driver.superseded_runs import superseded_error, superseding

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Ownership:
    """The ownership for one micro-batch; `step` times what is done and logs it.

    `may_be_decided` is False where no earlier run can be; `is_query` is False where there is one micro-batch only.
    """

    log: DecisionLog
    run: str
    state: RunState
    micro_batch: int
    step: Callable[[str], AbstractContextManager[None]]
    # Raises where the newest decision before a take-over leaves nothing to take over for.
    examine: Callable[[Decision], None]
    may_be_decided: bool = True
    is_query: bool = True
    # What the first decision after a take-over relies on; None where nothing was taken over, or nothing can be there.
    _known: Known | None = None

    def newest(self, *, has_rows: bool, must_look: bool = True) -> Decision | None:
        """Become the one driver, then read the newest decision, which each take-over needs whatever its micro-batch.

        A process that has decided last goes on without a look, where there are rows and it need not: a driver that has
        decided since has taken the id over, so that this one's decision is refused. Where processes of the run take
        turns, to look first is cheaper.

        A process that begins with a run fences all that came before, rows or none. Once the run has decided, its
        processes do not take over from one another for a micro-batch that has nothing to decide.
        """
        # What was not there may be there now: other processes decide too.
        self.log.scan_again()
        identity, decided, newer = self.state.identity, self.state.decided, None
        may_go_on = identity is not None and has_rows and not must_look and not self.state.is_shared
        if decided is not None and self.may_be_decided and not may_go_on:
            newer = self.log.newest(decided + 1)
            self.state.is_shared = newer is not None and newer.run == self.run
        # Of a micro-batch that it has just decided, a further write under the same name must see the decision.
        if identity is None or decided is None or newer is not None or decided == self.micro_batch:
            self.state.identity = self.state.decided = None
            before = self._newest_unless_superseded()
            # An attempt whose answers were lost may have decided this very micro-batch: it is only completed then.
            run_has_decided = (
                before is not None
                and before.run == self.run
                and (before.micro_batch == self.micro_batch or (before.micro_batch < self.micro_batch and not has_rows))
            )
            return before if run_has_decided else self._take_over(before, identity or self.state.attempted)
        if not identity.spent:
            failpoints.reach("driver.taken_over", self.micro_batch)
            return None
        # Where this fails it may have been done all the same, and what is then found is not another driver's work.
        self.state.identity = self.state.decided = None
        with self.step("take over"):
            try:
                self.state.identity = self._own(partial(self.log.renew, identity))
            except FencedError as error:
                self._stop(error)
        self.state.decided = decided
        failpoints.reach("driver.taken_over", self.micro_batch)
        if has_rows and self.may_be_decided:
            # The decision itself will check that nothing has come between.
            self._known = Known(self.state.rank)
            return None
        return self.newest_since()

    def _take_over(self, before: Decision | None, held: DriverIdentity | None) -> Decision | None:
        """Take over in this process, unless a newer run has decided: a sleeper that wakes must not fence it.

        The newest decision names that run, or it is another run's and was not there when this process took over last.
        Where the id is still as this process `held` it, though, the decision is older than that, and what was read
        then was from the past.
        """
        if (
            before is not None
            and before.run != self.run
            and self.state.has_taken_over
            and _seen(before) != self.state.seen
            and not (held is not None and self.log.is_kept(held))
        ):
            raise superseded_error(before, self.run)
        if before is not None:
            self.examine(before)
        if self.state.attempted is not None:
            try:
                self.log.check_kept(self.state.attempted)
            except FencedError as error:
                self._stop(error)
            # From here on another epoch may be the doing of this process.
            self.state.attempted = None
        with self.step("take over"):
            self.state.identity = self._own(self.log.take_over)
        failpoints.reach("driver.taken_over", self.micro_batch)
        self.state.sweeps.expect()
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
        if newest is not None and any(newest.rank < rank for rank in self.state.known_ranks):
            # Ranks only grow, so that this one is from the past, and no sign of a newer driver.
            newest = self.log.newest_elsewhere()
        if newest is not None and self.run in newest.superseded:
            self.state.identity = None
            raise superseded_error(newest, self.run)
        self._known = Known(None if newest is None else newest.rank) if self.may_be_decided else None
        return newest

    def newest_since(self) -> Decision | None:
        """Read after a renewal, which may have fenced a run that superseded this one: an older decision shows it."""
        newest = self._newest_unless_superseded()
        return newest if newest is not None and newest.micro_batch >= self.micro_batch else None

    def decide(self, decision: Decision, decide_by_ms: int, confirm: Callable[[], int] | None = None) -> None:
        """Write the decision; raises `UndecidedError` where another attempt may follow, which takes over again.

        The first decision after a take-over checks what was read then. Later ones need not: a driver that decided
        meanwhile would have fenced this one. For `confirm` see `DecisionLog.decide`.
        """
        identity, self.state.identity = self.state.identity, None
        assert identity is not None
        self.state.attempted = identity
        try:
            following = self.log.decide(decision, identity, decide_by_ms, self._known, confirm)
        except FencedError as error:
            self._stop(error)
        except LostTransactionError:
            if self.may_be_decided:
                # A newer run ends what this one has open, and is the better explanation.
                self._newest_unless_superseded()
            raise
        except OutdatedError as error:
            # It was there when this process took over, or the coordinator would have fenced it.
            newest = self.log.newest()
            if newest is not None and newest.rank == error.rank:
                self._note(newest)
            raise
        self.state.identity, self.state.attempted, self.state.unanswered = following, None, False
        self.state.decided, self.state.rank = decision.micro_batch, decision.rank

    def _own(self, take: Callable[[], DriverIdentity]) -> DriverIdentity:
        try:
            return take()
        except UnansweredError:
            self.state.unanswered = True
            raise

    def _stop(self, error: FencedError) -> NoReturn:
        """Stop since another driver has the id, or raise `UndecidedError` where it may be this run that took it."""
        newest = self.log.newest_elsewhere()
        is_new = newest is not None and all(newest.rank > rank for rank in self.state.known_ranks)
        # From here on the next attempt takes over, whatever the epoch is then.
        if newest is not None and is_new and newest.run == self.run:
            self.state.attempted, self.state.is_shared = None, True
            raise behind_error(newest.query, newest.rank) from error
        if newest is not None and is_new:
            raise superseded_error(newest, self.run) from error
        if not self.state.unanswered:
            raise error
        self.state.attempted, self.state.unanswered = None, False
        raise late_error(error) from error

    def amend(self, noted: Decision, now_ms: int) -> None:
        """Replace the newest decision by a later revision of it, which is then no sign of another driver."""
        identity, self.state.identity = self.state.identity, None
        assert identity is not None
        self.state.identity = self.log.amend(noted, identity, now_ms)
        self._note(noted)


def _seen(decision: Decision) -> Seen:
    return decision.run, decision.rank
