"""The ownership of a query's driver id, in whichever process a micro-batch is committed.

Spark commits in any idle Python worker, and the queries of a session share the workers: the commits of one run happen
in several processes in turn, and each of them takes over the driver's transactional id from the others. So a fenced
process cannot conclude that there is a newer driver. It determines from the newest decision whether it still owns the
id: see `COURSES` and `AFTER_FENCING`. If another run has decided since, a newer driver is running, so this one stops.

What it reads may be outdated: a group coordinator that is disconnected from the other brokers hides what another
process of the run has decided, so that this one would stop for a newer driver that does not exist. So before it stops,
it reads the newest decision again, from the coordinator that another broker names, and takes over if its own run has
decided. A newer driver that took over since and has not decided yet is then fenced, as always when a process of the run
takes over: that stops it and duplicates nothing, since the first decision after a take-over checks what was read then.

A take-over request of its own that received no response may be applied late and looks like another driver's. So after
such a request this process may lose the id once before it decides, and takes it over again by the same rules.

Under the old protocol an epoch serves one decision, so the id is taken over, or renewed, for each.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NoReturn

from spark_eos.errors import EosKafkaError, FencedError, LostTransactionError, UnansweredError
from spark_eos.sink.decision import NO_DECISION, Decision, Rank
from spark_eos.sink.naming import group_id, run_again
from spark_eos.sink.protocol.asks import Reach, Step, warn
from spark_eos.sink.protocol.decision_errors import OutdatedError, UndecidedError, gone_error
from spark_eos.sink.protocol.decision_log import Verify
from spark_eos.sink.protocol.driver_identity import DriverIdentity, taken_after
from spark_eos.sink.protocol.orphan_sweep import superseded_error, superseding
from spark_eos.sink.protocol.state import QueryRun


class Holding(Enum):
    """What a process holds of the driver's id when a micro-batch begins, with the row of docs/protocol/sink.md.

    Passed: another process has decided since. Unused: it has not decided with the id since it took it. Used here: it
    has just decided this micro-batch. Spent: the epoch has served, and the broker returned no next one.
    """

    NOTHING = "ownership 1"
    PASSED = "ownership 2"
    UNUSED = "ownership 3"
    USED_HERE = "ownership 4"
    READY = "ownership 5"
    SPENT = "ownership 6"


class Course(Enum):
    """How a process comes to own the id for a micro-batch."""

    TAKE_OVER = auto()
    RENEW = auto()
    GO_ON = auto()


# How long a query that begins waits for brokers that would know it under another prefix.
_LOOK_MS: Final = 5_000
COURSES: Final[Mapping[Holding, Course]] = {
    Holding.NOTHING: Course.TAKE_OVER,
    Holding.PASSED: Course.TAKE_OVER,
    Holding.UNUSED: Course.TAKE_OVER,
    Holding.USED_HERE: Course.TAKE_OVER,
    Holding.READY: Course.GO_ON,
    Holding.SPENT: Course.RENEW,
}


class Fenced(Enum):
    """Why a process lost the id, with the row of docs/protocol/sink.md: only two of them take over again."""

    BEHIND = "fencing 1"
    SUPERSEDED = "fencing 2"
    LATE = "fencing 3"
    NEWER_DRIVER = "fencing 4"


# Whether the newest decision is newer than those this process knows; then whether it is of its own run, and otherwise
# whether a take-over had no response.
AFTER_FENCING: Final[Mapping[tuple[bool, bool], Fenced]] = {
    (True, True): Fenced.BEHIND,
    (True, False): Fenced.SUPERSEDED,
    (False, True): Fenced.LATE,
    (False, False): Fenced.NEWER_DRIVER,
}


@dataclass(slots=True)
class Ownership:
    """The ownership for one micro-batch."""

    own: QueryRun
    micro_batch: int
    # Raises if the newest decision before a take-over makes the take-over pointless.
    examine: Callable[[Decision], Awaitable[None]]
    # The newest decision that the first one after a take-over relies on, or None if nothing was taken over or no
    # decision can exist.
    _known: Rank | None = None

    async def newest(self, *, has_rows: bool, is_told: bool, must_look: bool = True) -> Decision | None:
        """Become the only driver, then return the newest decision, which every take-over needs.

        A process that has decided last goes on without it, if there are rows and nothing requires it: a driver that has
        decided since owns the id, so this process's decision is refused. If processes of the run take turns, reading
        first is cheaper. A process that begins with a run fences all earlier ones, with or without rows. Once the run
        has decided, its processes do not take over from one another for a micro-batch that has nothing to decide.

        `is_told` states that a task has found this micro-batch decided: if it seems undecided, that is outdated.
        """
        # A decision may exist now that did not exist before: other processes decide too.
        self.own.log.scan_again()
        identity, decided, newer = self.own.state.identity, self.own.state.decided, None
        may_go_on = identity is not None and has_rows and not must_look and not self.own.state.is_shared
        if decided is not None and self.own.may_be_decided and not may_go_on:
            newer = await self.own.log.newest(decided + 1)
            self.own.memory.note(is_shared=newer is not None and newer.run == self.own.run)
        course = COURSES[self._holding(is_passed=newer is not None)]
        if course is Course.TAKE_OVER or identity is None:
            self.own.memory.note(decided=None)
            before = await self._newest_unless_superseded()
            if is_told and (before is None or before.micro_batch < self.micro_batch):
                before = await self._newest_unless_superseded(is_doubted=True)
            # An attempt whose responses were lost may have decided this very micro-batch; then it is only completed.
            run_has_decided = (
                before is not None
                and before.run == self.own.run
                and (before.micro_batch == self.micro_batch or (before.micro_batch < self.micro_batch and not has_rows))
            )
            if run_has_decided:
                self.own.memory.note(identity=None)
                return before
            return await self._take_over(before, identity or self.own.state.attempted, has_rows)
        if course is Course.GO_ON:
            await Reach("driver.taken_over", self.micro_batch)
            return None
        # A take-over that fails may have been applied anyway, and what is found then is not another driver's work.
        self.own.memory.note(identity=None, decided=None)
        async with Step("take over", self.micro_batch):
            try:
                renewed = await self._own(self.own.log.renew(identity))
            except FencedError as error:
                await self._stop(error)
        # If not, another driver was there between the look and the renewal.
        is_next = renewed.producer == taken_after(
            identity.producer, is_v2=identity.transaction.transaction_version >= 2
        )
        self.own.memory.note(identity=renewed, decided=decided if is_next else None, has_followed=False)
        await Reach("driver.taken_over", self.micro_batch)
        if has_rows and self.own.may_be_decided and is_next:
            # The decision itself checks that nothing has happened in between.
            self._known = self.own.state.rank
            return None
        # The renewal may have fenced a run that superseded this one.
        newest = await self._newest_unless_superseded()
        return newest if newest is not None and (not is_next or newest.micro_batch >= self.micro_batch) else None

    def _holding(self, *, is_passed: bool) -> Holding:
        identity, decided = self.own.state.identity, self.own.state.decided
        if identity is None:
            return Holding.NOTHING
        if is_passed:
            return Holding.PASSED
        if decided is None:
            return Holding.UNUSED
        if decided == self.micro_batch:
            return Holding.USED_HERE
        return Holding.SPENT if identity.spent else Holding.READY

    async def _take_over(self, before: Decision | None, held: DriverIdentity | None, has_rows: bool) -> Decision | None:
        """Take over in this process, unless a newer run has decided: a process that wakes up must not fence it.

        The newest decision names that run, or it belongs to another run and did not exist when this process took over
        last. If the id is still as this process `held` it, however, the decision is older than that, and what was read
        then was outdated.
        """
        if (
            before is not None
            and before.run != self.own.run
            and (held is not None or self.own.state.has_taken_over)
            and _seen(before) != self.own.state.seen
            and not (held is not None and await self.own.log.is_kept(held))
        ):
            raise superseded_error(before, self.own.run)
        if before is not None:
            await self.examine(before)
        if self.own.state.attempted is not None:
            try:
                await self.own.log.check_kept(self.own.state.attempted)
            except FencedError as error:
                await self._stop(error)
            # From here on, another epoch may come from this process.
            self.own.memory.note(attempted=None)
        # Until here, a look that fails leaves the id as evidence for the next one.
        self.own.memory.note(identity=None)
        if before is not None:
            # It is no work of a newer driver, even if the look after the take-over fails.
            self.own.memory.note(seen=_seen(before))
        async with Step("take over", self.micro_batch):
            self.own.memory.note(identity=await self._own(self.own.log.take_over()))
        await Reach("driver.taken_over", self.micro_batch)
        self.own.memory.expect_sweep()
        newest = await self._newest_unless_superseded()
        if newest is None and has_rows:
            newest = await self._newest_if_committed()
        if newest is not None and newest.run != self.own.run and newest != before:
            await self._check_older(newest)
        self._note(newest)
        identity = self.own.state.identity
        has_followed = newest is not None and identity is not None and self.own.log.follows(newest, identity)
        self.own.memory.note(has_followed=has_followed)
        if self.own.is_query:
            self.own.memory.note(
                is_new_run=newest is None or newest.run != self.own.run,
                # Keep naming what this process has swept, even if another process has decided since.
                superseded=superseding(newest, self.own.run, self.own.state.superseded),
            )
        return newest

    async def _check_older(self, newest: Decision) -> None:
        """Raise if another run has made a decision after this take-over: this process was paused in between.

        If the id is as this process took it, an outdated answer had hidden the decision before.
        """
        identity = self.own.state.identity
        assert identity is not None
        try:
            await self.own.log.check_kept(identity)
        except FencedError as error:
            self.own.memory.note(identity=None)
            raise superseded_error(newest, self.own.run) from error

    async def _newest_if_committed(self) -> Decision | None:
        """Look for decisions again, elsewhere, if the query has committed before; raise if they are gone.

        A query that begins, or whose transactionalIdPrefix was changed, has a new id: it waits for no silent broker.
        """
        identity, scan = self.own.state.identity, self.own.log.scan
        is_begun = self.micro_batch > 0 or (identity is not None and identity.producer.producer_epoch > 0)
        if self.own.may_be_decided and not self.own.state.is_known_new:
            used = await scan.used_ids(None if is_begun else _LOOK_MS)
            await scan.follow_pointers(used, self.own.log.prefix, self.micro_batch - 1)
            if scan.unexplained_ids(used, self.own.log.prefix):
                newest = await self._newest_unless_superseded(is_doubted=True)
                # What a broker that lags behind has hidden was read again with it.
                if newest is None and (ids := scan.unexplained_ids(used, self.own.log.prefix)):
                    query, group = ids[0].query, group_id(ids[0].prefix, ids[0].query)
                    raise gone_error(query, scan.run, group, scan.topic, self.micro_batch, list(map(str, ids)))
                return newest
        self.own.memory.note(is_known_new=True)
        return None

    def _note(self, newest: Decision | None) -> None:
        self.own.memory.note(has_taken_over=True, seen=None if newest is None else _seen(newest))

    async def _newest_unless_superseded(self, *, is_doubted: bool = False) -> Decision | None:
        newest = await self.own.log.newest() if self.own.may_be_decided and not is_doubted else None
        if is_doubted or (newest is not None and any(newest.rank < rank for rank in self.own.state.known_ranks)):
            # Ranks only grow, so this decision is outdated and no evidence of a newer driver.
            newest = await self.own.log.newest_elsewhere()
            newest = await self.own.log.unpointed(newest) or newest
        if newest is not None and self.own.run in newest.superseded:
            self.own.memory.note(identity=None)
            raise superseded_error(newest, self.own.run)
        self._known = (NO_DECISION if newest is None else newest.rank) if self.own.may_be_decided else None
        return newest

    async def decide(self, decision: Decision, decide_by_ms: int, verify: Verify | None = None) -> None:
        """Write the decision; raise `UndecidedError` if another attempt may follow, which takes over again.

        The first one after a take-over checks what was read then; a driver that decides later would fence this one.
        """
        identity = self.own.state.identity
        assert identity is not None
        # Each take-over of this process is known before the next attempt compares the id with it.
        identity = await self._own(self.own.log.beyond(identity))
        self.own.memory.note(identity=None, attempted=identity)
        try:
            following = await self.own.log.decide(decision, identity, decide_by_ms, self._known, verify)
        except FencedError as error:
            await self._stop(error)
        except LostTransactionError:
            if self.own.may_be_decided:
                # If a newer run ended what this process had open, that is the better explanation.
                await self._newest_unless_superseded()
            raise
        except OutdatedError as error:
            # It existed when this process took over, or the coordinator would have fenced it.
            newest = await self.own.log.newest()
            if newest is not None and newest.rank == error.rank:
                self._note(newest)
            raise
        self.own.memory.note(
            identity=following, attempted=None, unanswered=False, decided=decision.micro_batch, rank=decision.rank
        )

    async def explain_loss(self, lost: LostTransactionError) -> None:
        """Raise `FencedError` if transactions of this run's decision were lost, and another run has decided since.

        That run has found them lost, while this process was paused, and may have written the micro-batch again.
        """
        if not self.own.may_be_decided:
            return
        try:
            newest = await self.own.log.newest_elsewhere()
        except EosKafkaError as error:
            await warn(f"whether another run has decided since is not known: {error}")
            return
        if newest is not None and newest.run != self.own.run and self._is_new(newest):
            raise superseded_error(newest, self.own.run, lost) from lost

    async def _own(self, take: Awaitable[DriverIdentity]) -> DriverIdentity:
        try:
            return await take
        except UnansweredError:
            self.own.memory.note(unanswered=True)
            raise

    async def _stop(self, error: FencedError) -> NoReturn:
        """Raise because another driver owns the id; raise `UndecidedError` if this run may have taken it."""
        newest = await self.own.log.newest_elsewhere()
        is_new = newest is not None and self._is_new(newest)
        is_own = newest is not None and newest.run == self.own.run
        why = AFTER_FENCING[is_new, is_own if is_new else self.own.state.unanswered]
        # In two cases the next attempt takes over, whatever the epoch is then.
        if why is Fenced.BEHIND and newest is not None:
            self.own.memory.note(attempted=None, is_shared=True)
            raise OutdatedError(
                f"Another process of this run decided micro-batch {newest.micro_batch} of query {newest.query}, which "
                "this process did not know",
                rank=newest.rank,
                checked="The newest decision, read again. The earlier response came from a broker that is disconnected "
                "from the others",
                remedy="Nothing was decided, and nothing that this run prepared is visible: "
                f"{run_again(newest.query, newest.run)}",
            ) from error
        if why is Fenced.SUPERSEDED and newest is not None:
            raise superseded_error(newest, self.own.run) from error
        if why is Fenced.LATE:
            self.own.memory.note(attempted=None, unanswered=False)
            raise UndecidedError(
                "The driver's transactional id was taken over, possibly by an earlier request of this process that "
                "received no response",
                checked=error.checked,
                remedy="Nothing was decided: restart the query, or run the job again with its jobId",
            ) from error
        raise error

    def _is_new(self, newest: Decision) -> bool:
        """Return whether a decision is newer than all that this process made or saw last; others are outdated."""
        return all(newest.rank > rank for rank in self.own.state.known_ranks)

    async def amend(self, noted: Decision, now_ms: int) -> None:
        """Replace the newest decision with a later revision, which then does not indicate another driver."""
        identity = self.own.state.identity
        assert identity is not None
        self.own.memory.note(identity=None)
        self.own.memory.note(identity=await self.own.log.amend(noted, identity, now_ms))
        self._note(noted)


def _seen(decision: Decision) -> tuple[str, Rank]:
    return decision.run, decision.rank
