"""The invariants: what may never be, in no state, at no step, and at no end."""

from collections.abc import Iterable, Mapping
from typing import Final

from broker_core.types import TransactionState
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.decision import Decision
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import asks
from tests.explorer.model import GROUPS, PHASE_MS, Ending, Model
from tests.explorer.process import Outcome
from tests.explorer.state import App, Bounds, World, decided, decisions_of, fate, is_gone

S = TransactionState
# The one list: what is found to be broken begins with its name, and the documents name them.
INVARIANTS: Final[Mapping[str, str]] = {
    "once": "no row of a micro-batch is visible twice",
    "kept": "what was reported committed is visible, all of it, and with the rows that were compared",
    "one-driver": "decisions follow one another in order; a run that can know of a newer one decides nothing and takes "
    "over nothing",
    "checked": "no decision without a look at its transactions and their topics, and none that names what is known to "
    "be lost",
    "whole": "no commit without a decision, and none while a part is known to be lost and nothing is visible",
    "spared": "nothing decided is aborted while nothing of it is lost",
    "reason": "a query stops only for a reason that is true; it fences no driver if it could know the reason before",
    "end": "when nothing more happens, no run is stuck and nothing stays open",
}
# Several of these in a row may outlast the retries of a commit.
_HINDRANCES = frozenset({"unanswered", "stale", "expires", "held"})


def broken(world: World, bounds: Bounds) -> str:
    """Return the invariant that a state breaks, if any."""
    for split, rows in enumerate(world.model.data):
        visible = [row for row in rows if row.is_committed]
        if len({row.micro_batch for row in visible}) < len(visible):
            return f"once: rows of task {split} are visible twice"
    went = {
        each.micro_batch
        for each in (decisions_of(world.model) if world.model.gone or world.operator else ())
        if each.is_skipped or any(is_gone(world.model, part) for part in each.transactions)
    }
    for micro_batch, kind in enumerate(world.reported):
        if micro_batch in went:
            continue
        # A commit without a leader leaves its marker to an operator, if an abort would come otherwise.
        first = 1 if "patience" in world.used else 0
        for split in range(first, bounds.tasks if micro_batch >= bounds.empty_micro_batches else 0):
            kinds = [r.kind for r in world.model.data[split] if r.is_committed and r.micro_batch == micro_batch]
            if not kinds:
                return f"kept: micro-batch {micro_batch} is reported committed, and rows of task {split} are missing"
            if kinds != [kind * 2]:
                return f"kept: micro-batch {micro_batch} is reported committed with other rows than are visible"
    return ""


def unfinished(world: World, bounds: Bounds) -> str:
    """Return what is wrong with a state in which nothing more must happen."""
    for at, app in enumerate(world.apps):
        if not app.is_over:
            return f"end: run r{at} is stuck"
        # An abort that finds no leader is left to the timeout.
        if app.status != "dead" and not world.used & {"unanswered", "missed", "stale", "leader"}:
            opened = [n for n, each in world.model.ids if each.state is S.ONGOING and f".r{at}." in n]
            if opened and not (app.reason and app.reason.error.startswith("abort:")):
                return f"end: run r{at} has ended ({app.reason}) and {opened[0]} stays open"
    for split, rows in enumerate(world.model.data):
        ongoing = {each.identity.producer_id for _, each in world.model.ids if each.state is S.ONGOING}
        if "patience" in world.used and split == 0:
            continue
        if any(r.is_committed is None and r.identity.producer_id not in ongoing and r.micro_batch >= 0 for r in rows):
            return f"end: rows of task {split} hang: their transaction has ended without a marker"
    last = world.apps[-1]
    is_open = any(name in GROUPS and each.state is S.ONGOING for name, each in world.model.ids)
    # What a dead driver leaves open ends at its timeout, or with the next take-over.
    if is_open and last.status != "dead" and not world.used & {"dies", "unanswered", "missed", "stale"}:
        return f"end: the query has ended ({last.reason}) and a decision stays open"
    if len(world.reported) < bounds.micro_batches and last.status == "done":
        return "end: the query is done, and not all is committed"
    return ""


def _parts(model: Model, opened: Iterable[OpenTransaction]) -> Decision | None:
    """Return the newest decision that names all of some transactions."""
    wanted = {each[:2] for each in opened}
    for decision in reversed(decisions_of(model)):
        named = {(t.transactional_id, t.producer) for t in decision.transactions}
        if wanted <= named:
            return decision
    return None


def wrong_commit(world: World, app: App, ask: asks.EndTransactions) -> str:
    """Return what is wrong with the commit of some transactions, as far as the sender can know."""
    if not ask.commit:
        return ""
    decision = _parts(world.model, ask.opened)
    if decision is None:
        return "whole: transactions are committed that no decision names"
    fates = {each: fate(world.model, each) for each in decision.transactions}
    if True in fates.values() or None not in fates.values():
        # A part is visible already, or the commits can have no effect.
        return ""
    return _known_lost(world, app, "whole", [each for each, found in fates.items() if found is False])


def wrong_decision(world: World, app: App, ask: asks.EndDecision) -> str:
    value = ask.write.records[0][1]
    if value is None:
        return ""
    decision = decided(value)
    if decision.intervention is not None:
        return ""
    fates = {each: fate(world.model, each) for each in decision.transactions}
    if not decision.revision:
        asked = {name for name, _ in app.call.heard}
        is_known = app.call.remade == world.model.remade
        for each, found in fates.items():
            if found is not True and each.transactional_id not in asked:
                return f"checked: a decision without a look at {each.transactional_id}"
            if found is not True and (app.call.remade is None or (is_known and is_gone(world.model, each))):
                return "checked: a decision although its topic is known to have been made again, or was not looked at"
    return _known_lost(world, app, "checked", [each for each, found in fates.items() if found is False])


def _known_lost(world: World, app: App, invariant: str, lost: list[PreparedTransaction]) -> str:
    for each in lost:
        if (each.transactional_id, each.producer) in app.call.lost:
            return f"{invariant}: a commit although {each.transactional_id} is known to be lost and nothing is visible"
        is_late = each.started_at_ms // PHASE_MS < world.phase
        if is_late and (each.transactional_id, world.phase) not in app.call.heard:
            return f"{invariant}: {each.transactional_id} is lost, and its timeout has passed without a look at it"
    return ""


def wrong_end(before: Model, after: Model, ending: Ending) -> str:
    """Return what is wrong with the abort of a transaction, if it had an effect."""
    if ending.commit or before == after or ending.transactional_id in GROUPS:
        return ""
    known = before.id(ending.transactional_id)
    if known is None or known.state is not S.ONGOING:
        return ""
    decision = _parts(before, [ending.opened])
    if decision is None or decision.is_abandoned:
        return ""
    newest = max(each.rank for each in decisions_of(before) if each.micro_batch == decision.micro_batch)
    fates = [fate(before, each) for each in decision.transactions]
    if newest[:2] == decision.rank[:2] and False not in fates:
        return f"spared: {ending.transactional_id} is aborted although it is decided and nothing is lost"
    return ""


def wrong_intervention(world: World, outcome: Outcome) -> str:
    """Return what is wrong with the end of an operator's intervention: it is as reported."""
    if outcome.error:
        return ""
    settled = outcome.value
    if any(not fate(world.model, each) for each in settled.committed):
        return "whole: a transaction is reported to an operator as committed, and it is not"
    if settled.pending or settled.still_open:
        return ""
    opened = [each.transactional_id for each in settled.decision.transactions if fate(world.model, each) is None]
    return f"end: an operator has intervened, and {opened[0]} stays open" if opened else ""


def wrong_late_end(before: Model, after: Model, ask: asks.EndDecision) -> str:
    """Return what is wrong with a late end of a decision: it may only end the decision that it was sent for."""
    made = [new.value for old, new in zip(before.decisions, after.decisions, strict=True) if old != new]
    if any(value not in [each for _, each in ask.write.records] for value in made):
        return "one-driver: a late request ends another decision than the one it was sent for"
    return ""


def wrong_take_over(world: World, at: int, app: App) -> str:
    """Return what is wrong with a take-over: a driver that can know of a newer one leaves it alone."""
    if world.used & {"stale", "unanswered", "expires", "offset"}:
        return ""
    if app.call.is_superseded:
        return f"one-driver: run r{at} takes over although a later run had superseded it before"
    return ""


def unjustified(world: World, at: int, app: App, outcome: Outcome, bounds: Bounds) -> str:
    """Return why an error stops a query for no reason, if it does."""
    what = f"reason: the query stops without a reason: {outcome.error}: {outcome.message}"
    first = decisions_of(world.model)[: app.call.at_first_look or 0]
    known = [each.micro_batch for each in first]
    # Where a part is lost, the query that made the decision has stopped.
    whole = {each.micro_batch for each in first if all(fate(world.model, part) for part in each.transactions)}
    is_other = outcome.error == "DifferentRowsError" and app.micro_batch in whole
    is_old = "Cannot write micro-batch" in outcome.message
    if app.call.has_taken_over and (is_other or (is_old and max(known, default=-1) > app.micro_batch)):
        return f"reason: the query stops only after it has fenced another driver: {outcome.error}: {outcome.message}"
    others = [other for number, other in enumerate(world.apps) if number > at or (number < at and not other.is_over)]
    if world.operator is not None and not world.operator.is_over:
        others.append(world.operator)
    # Another producer id may be an earlier one or a later one: nothing in the answer tells.
    is_misled = {"stale", "expires"} <= world.used
    is_hindered = "time" in world.used or (bounds.faults - world.faults > 1 and world.used & _HINDRANCES)
    match outcome.error:
        case "FencedError":
            # An own take-over that came late looks like a newer driver.
            is_justified = bool(world.operator) or len(world.apps) > 1 or is_misled or "late take-over" in world.used
        case "LostTransactionError":
            lost = {row.micro_batch for rows in world.model.data for row in rows if row.is_committed is False}
            is_named = any(f"Micro-batch {each} " in outcome.message for each in lost)
            is_justified = is_named or is_misled or "time" in world.used or "topic" in world.used
        case "DifferentRowsError":
            is_justified = "rows" in world.used
        case "OptionError":
            is_justified = bounds.writes > 1
        case _ if is_old:
            is_justified = any(each.micro_batch > app.micro_batch for each in decisions_of(world.model))
        case _:
            # It has waited, for longer than transactions last, for an open decision under another prefix.
            is_late = bounds.prefixes > 1 and "could not be ended or read yet" in outcome.message
            is_justified = bool(is_hindered or others or is_late or "leader" in world.used)
    return "" if is_justified else what


def after_decision(before: Model, world: World, bounds: Bounds) -> tuple[World, str]:
    """Note which processes a decision supersedes; return what is wrong with it."""
    old, new = decisions_of(before), decisions_of(world.model)
    if len(new) == len(old):
        return world, ""
    # The log of a driver with another prefix may have the newest one before.
    made, wrong = next(each for each in new if each not in old), ""
    if any(made.rank <= each.rank for each in old):
        wrong = f"one-driver: a decision {made.rank} follows a newer one"
    if made.revision:
        # A note in a decision keeps the name of its run, and supersedes by naming.
        return world, wrong
    is_partial = any(row.is_committed and row.micro_batch == made.micro_batch for rows in before.data for row in rows)
    if made.attempt > 1 and is_partial and bounds.policy == "fail":
        wrong = wrong or "checked: a part is visible, and the rest is written again without leave"
    if any(made.run in each.superseded for each in old):
        wrong = wrong or f"one-driver: run {made.run} decides although a decision names it as superseded"
    maker = int(made.run[1:])
    apps = list(world.apps)
    app = apps[maker]
    if app.superseded and app.superseded >= {app.at}:
        wrong = wrong or f"one-driver: run {made.run} decides although a later run has superseded it"
    apps[maker] = app._replace(has_decided=True)
    for at, each in enumerate(apps[:maker]):
        superseded = frozenset(range(bounds.processes)) if each.has_decided else each.owners
        apps[at] = each._replace(superseded=each.superseded | superseded)
    return world._replace(apps=tuple(apps)), wrong
