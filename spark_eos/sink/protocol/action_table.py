"""The table of recovery's actions for a decided micro-batch, by the fates that are present among its transactions.

The aim: a micro-batch of which nothing is visible and a part is lost is rolled back and written again as a whole. One
of which a part is visible is only ever rolled forward. What cannot be known is left as it is.

Several processes may act at once, each on the state it saw, and the driver that made the decision may wake up and
continue to commit. That is safe for these reasons:

- Each transaction ends once, at its coordinator: by the first commit or abort that arrives, or by its timeout.
- Every request names the producer id and epoch, which nothing else on that id ever has: transactions V2 raise the epoch
  at every end, and under the old protocol the owner of an id initializes it before it uses it again. So a delayed
  commit cannot make a lost transaction visible; LOST and COMMITTED are final.
- An open transaction is aborted only if another one is known to be lost, so that the whole cannot become visible.
- A micro-batch is written again only if each of its transactions is known to be lost, so never twice.

What two processes that disagree leave behind is all visible, or all lost and written again once, or partly visible, if
an abort or a timeout followed a commit that was sent before the loss was known: then the query stops.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from spark_eos.sink.decision import Decision
from spark_eos.sink.decision import OperatorAction as Word
from spark_eos.sink.prepared import PreparedTransaction

# How long an open or hidden transaction is waited for, since the last one was settled.
SETTLE_LIMIT_SECONDS: Final = 60.0


class Fate(Enum):
    """The fate of one decided transaction; only committed and lost are final.

    Hidden: its coordinator does not report it, or may report a later one, and no reader can see it yet. Unknown: it
    can no longer be determined.
    """

    OPEN = auto()
    COMMITTED = auto()
    LOST = auto()
    HIDDEN = auto()
    UNKNOWN = auto()


class SettlementAction(Enum):
    """The next action of recovery."""

    COMMIT = "commit the open ones"
    ABORT = "abort the open ones"
    WAIT = "wait"
    CLOSED = "write nothing"
    WRITE_AGAIN = "write the whole micro-batch again"
    WRITE_LOST = (
        "stop with an error that lists the transactions, or write the lost ones again if onLostTransaction allows it"
    )
    STOP = "stop with an error that lists the transactions"


class ActionRule(NamedTuple):
    """The action for a combination of fates, the row of docs/protocol/sink.md, and what an abort is reported with."""

    rule: str
    present: frozenset[Fate]
    action: SettlementAction
    reason: str = ""


def _rule(number: int, present: Collection[Fate], action: SettlementAction, reason: str = "") -> ActionRule:
    return ActionRule(f"settlement {number}", frozenset(present), action, reason)


_OPEN, _COMMITTED, _LOST, _HIDDEN, _UNKNOWN = Fate.OPEN, Fate.COMMITTED, Fate.LOST, Fate.HIDDEN, Fate.UNKNOWN
# The first rule that matches applies.
_RULES: Final = (
    _rule(1, (_OPEN, _COMMITTED), SettlementAction.COMMIT),
    _rule(
        2,
        (_OPEN, _LOST),
        SettlementAction.ABORT,
        "a part is lost and none is known to be visible, so the whole can still be rolled back. If a hidden or "
        "unknown one was committed, the micro-batch is partly visible because of the loss, not because of the "
        "abort",
    ),
    _rule(3, (_OPEN, _HIDDEN), SettlementAction.WAIT),
    _rule(4, (_OPEN, _UNKNOWN), SettlementAction.STOP),
    _rule(5, (_OPEN,), SettlementAction.COMMIT),
    _rule(6, (_HIDDEN,), SettlementAction.WAIT),
    _rule(7, (_UNKNOWN,), SettlementAction.STOP),
    _rule(8, (_COMMITTED, _LOST), SettlementAction.WRITE_LOST),
    _rule(9, (_LOST,), SettlementAction.WRITE_AGAIN),
    _rule(10, (), SettlementAction.CLOSED),
)
_COMPLETED: Final = (*_RULES[:3], _rule(11, (_OPEN, _UNKNOWN), SettlementAction.COMMIT), *_RULES[4:])
_ABANDONED: Final = (_rule(12, (_OPEN,), SettlementAction.ABORT, "an operator abandoned the decision"), *_RULES)
_SKIPPED: Final = (_ABANDONED[0], _rule(13, (), SettlementAction.CLOSED))


def action_for(decision: Decision, fates: Collection[Fate]) -> SettlementAction:
    return rule_for(decision, fates).action


def rule_for(decision: Decision, fates: Collection[Fate]) -> ActionRule:
    """Return the rule for the fates that are present; a decision without a transaction has none."""
    return next(rule for rule in rules_of(decision) if rule.present <= set(fates))


def rules_of(decision: Decision) -> Sequence[ActionRule]:
    if decision.is_abandoned:
        return _SKIPPED if decision.is_skipped else _ABANDONED
    is_to_be_completed = decision.intervention is not None and decision.intervention.action is Word.COMPLETE
    return _COMPLETED if is_to_be_completed else _RULES


@dataclass(frozen=True, slots=True)
class Settlement:
    """The fates of a decision's transactions, in their order."""

    decision: Decision
    fates: tuple[Fate, ...]

    def _of(self, fate: Fate) -> tuple[PreparedTransaction, ...]:
        return tuple(t for t, found in zip(self.decision.transactions, self.fates, strict=True) if found is fate)

    @property
    def committed(self) -> tuple[PreparedTransaction, ...]:
        return self._of(Fate.COMMITTED)

    @property
    def lost(self) -> tuple[PreparedTransaction, ...]:
        return self._of(Fate.LOST)

    @property
    def still_open(self) -> tuple[PreparedTransaction, ...]:
        return self._of(Fate.OPEN)

    @property
    def pending(self) -> tuple[PreparedTransaction, ...]:
        """Return what could not be ended or read in time."""
        # If a micro-batch is closed whatever is visible, only what could still become visible matters.
        return self.still_open if self.decision.is_skipped else self.still_open + self._of(Fate.HIDDEN)

    @property
    def unknown(self) -> tuple[PreparedTransaction, ...]:
        found = self._of(Fate.UNKNOWN)
        return found + self._of(Fate.HIDDEN) if self.decision.is_skipped else found

    @property
    def action(self) -> SettlementAction:
        return action_for(self.decision, self.fates)

    @property
    def is_closed(self) -> bool:
        """Return whether nothing more of the micro-batch is to be written: all is visible, or an operator closed it."""
        return self.action is SettlementAction.CLOSED

    @property
    def took_effect(self) -> bool:
        return len(self.committed) == len(self.decision.transactions)

    @property
    def took_no_effect(self) -> bool:
        """Return whether nothing of the micro-batch is or becomes visible, so that it can be written again."""
        return self.action is SettlementAction.WRITE_AGAIN
