"""Operators' interventions: a dead query's decision is completed or abandoned, safely even if its driver is alive.

Completing uses the same table as a restart (`protocol.action_table`): what can be rolled back as a whole is not made
partly visible.

The order makes it safe. The query is watched for signs of life. Its driver's transactional id is taken over: from then
on no older driver can decide anything, and a live one fails at its next micro-batch with nothing visible (unless its
run has not decided yet: then it takes over the id again, and follows what it finds decided). The newest decision is
read again and must be what was shown. The intervention is then written to the decision, with an audit record,
in one transaction; only after that are the micro-batch's transactions ended, each by its exact producer id and epoch. A
query that is restarted at any of these steps finds in the decision what to do.

The decision also names the runs that had open transactions while the query was watched: none of them decides any more,
so their other open transactions can be aborted. No clock is involved, and a run that starts later is not affected.
"""

import getpass
import os
import platform
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from broker_core.types import ProducerIdentity, TransactionState, counted
from spark_eos.errors import EosKafkaError
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import (
    AUDIT_VERSION,
    Decision,
    Intervention,
    OperatorAction,
    Restart,
    intervention_document,
    sealed_json,
)
from spark_eos.sink.naming import audit_key, driver_id
from spark_eos.sink.performing import perform
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.action_table import Fate, Settlement, action_for
from spark_eos.sink.protocol.action_table import SettlementAction as Next
from spark_eos.sink.protocol.answers import Description
from spark_eos.sink.protocol.asks import DescribeTransactions, Monotonic, Now, Sleep
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.driver_identity import DriverIdentity
from spark_eos.sink.protocol.log_fates import logged_fates
from spark_eos.sink.protocol.orphan_sweep import Scope, names_of, open_of_query, run_of, superseding, sweep
from spark_eos.sink.protocol.retirement import Retirement, retire
from spark_eos.sink.protocol.settlement import fates_of, settle

CHANGED: Final = "What the plan is about has changed since it was shown"
_MOST_NAMED: Final = 500


class RefusedError(EosKafkaError):
    """An intervention that was not made: nothing was changed."""

    was_done = "Nothing was changed"


class FencedRefusalError(RefusedError):
    """An intervention that was not made after the query's driver was fenced for it."""

    was_done = "No transaction and no decision was changed"


def operator_name() -> str:
    """Return user and host: the name under which an intervention is recorded if the operator gives none."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # In a container the user id may have no name.
        name = str(os.getuid())
    return f"{name}@{platform.node()}"


class InterventionOutcome(NamedTuple):
    """What became of the transactions, and which steps after that failed."""

    settlement: Settlement
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        settled = self.settlement
        return (
            f"{counted(len(settled.decision.transactions), 'transaction')}: {len(settled.committed)} committed, "
            f"{len(settled.lost)} aborted or lost, {len(settled.unknown) + len(settled.pending)} with an unknown "
            "outcome."
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The effect that an intervention would have, determined without changes."""

    action: OperatorAction
    decision: Decision
    fates: Mapping[PreparedTransaction, Fate]
    restart: Restart | None = None

    def count(self, *fates: Fate) -> int:
        return sum(fate in fates for fate in self.fates.values())

    def steps(self) -> list[str]:
        decision, opened = self.decision, counted(self.count(Fate.OPEN), "open transaction")
        name = f"micro-batch {decision.micro_batch} of query {decision.query} (prefix {decision.prefix})"
        first = f"fence the query's driver, {driver_id(decision.prefix, decision.query)}"
        note = "write an audit record and this intervention to the decision topic, in one transaction"
        last = "abort the query's other open transactions, which belong to no decision"
        if self.action is OperatorAction.COMPLETE:
            return [first, note, self._completion(name), last]
        after = (
            "writes the whole micro-batch again"
            if self.restart is Restart.REWRITE
            else (
                f"skips the micro-batch: {self.count(Fate.COMMITTED)} of its {counted(len(self.fates), 'transaction')} "
                "will stay visible, and no other row of the micro-batch is ever written"
            )
        )
        return [first, note, f"abort {opened} of {name}; the restarted query {after}", last]

    def _completion(self, name: str) -> str:
        """Describe completing by recovery's table, which does not make a lost micro-batch partly visible."""
        opened = counted(self.count(Fate.OPEN), "open transaction")
        word = Intervention(self.action, "", 0)
        step = action_for(replace(self.decision, intervention=word), self.fates.values())
        if step is Next.ABORT:
            return (
                f"abort {opened} of {name} and commit none: the micro-batch has "
                f"{counted(self.count(Fate.LOST), 'lost transaction')} and none that is known to be committed, so a "
                "commit would make only a part of it visible. If all are lost after that, the restarted query writes "
                "the whole micro-batch again"
            )
        if step is Next.WRITE_AGAIN:
            return (
                f"end no transaction of {name}: all are lost, and the restarted query writes the whole "
                "micro-batch again"
            )
        if step is Next.WAIT and self.count(Fate.OPEN):
            return (
                f"wait until {counted(self.count(Fate.HIDDEN), 'transaction')} of {name} can be read; then commit "
                f"{opened} if none is lost, or abort if one is"
            )
        if step is Next.CLOSED:
            return f"end no transaction of {name}: none is open"
        return f"commit {opened} of {name}"


@dataclass(slots=True)
class DecisionOperator:
    """The interventions of an operator in the decisions of one topic."""

    cluster: KafkaCluster
    topic: str
    by: str
    reason: str = ""
    watch_seconds: float = 3.0
    is_known_dead: bool = False
    audit_id: str = field(default_factory=lambda: secrets.token_hex(4))

    def plan(self, decision: Decision, action: OperatorAction, restart: Restart | None = None) -> Plan:
        """Determine the effect of an intervention; raise `RefusedError` if it is pointless or unsafe."""
        return perform(self.cluster, self.planned(decision, action, restart))

    def carry_out(self, plan: Plan) -> InterventionOutcome:
        return perform(self.cluster, self.carried_out(plan))

    async def planned(self, decision: Decision, action: OperatorAction, restart: Restart | None = None) -> Plan:
        closes_the_rest = action is OperatorAction.ABORT and restart is Restart.SKIP
        if decision.is_abandoned and (decision.is_skipped or not closes_the_rest):
            raise RefusedError(
                f"The decision was already abandoned by {decision.intervention and decision.intervention.by}",
                remedy="Restart the query; it follows the earlier intervention",
            )
        fates = await _fates_now(decision)
        # A dead query may have left its next micro-batch open, undecided.
        frees_readers = action is OperatorAction.COMPLETE and self.is_known_dead
        # Closing it lets a query go on whose re-run has another number of rows.
        if all(fate is Fate.COMMITTED for fate in fates.values()) and not (closes_the_rest or frees_readers):
            raise RefusedError(
                "All transactions of the decision are already committed",
                remedy="Restart the query; it goes on after the micro-batch. If it is dead, complete --query-is-dead "
                "aborts what it has left open since. If it stops because its rows differ in number, --restart skip "
                "discards the rows of the re-run",
            )
        plan = Plan(action, decision, fates, restart)
        if (
            action is OperatorAction.ABORT
            and restart is Restart.REWRITE
            and plan.count(Fate.COMMITTED, Fate.UNKNOWN, Fate.HIDDEN)
        ):
            raise RefusedError(
                f"The micro-batch has {counted(plan.count(Fate.COMMITTED), 'committed transaction')} and "
                f"{plan.count(Fate.UNKNOWN, Fate.HIDDEN)} that may be committed. Writing it again would duplicate "
                "their rows",
                checked="DescribeTransactions for each transaction, and the log where the answer was inconclusive",
                remedy=(
                    "Use --restart skip to close the micro-batch as it is. If a re-run gives each task the same "
                    "rows, restart the query with onLostTransaction=rewrite instead"
                ),
            )
        return plan

    async def carried_out(self, plan: Plan) -> InterventionOutcome:
        """Carry the plan out; return what became of the transactions, and other failures."""
        decision = plan.decision
        runs = await self._watch(decision)
        log = DecisionLog(decision.prefix, decision.query, self.topic, run=decision.run)
        driver = await log.take_over()
        try:
            return await self._carry_out_fenced(plan, log, driver, runs)
        except EosKafkaError as error:
            raise _after_fencing(decision, error) from error

    async def _carry_out_fenced(
        self, plan: Plan, log: DecisionLog, driver: DriverIdentity, runs: Collection[str]
    ) -> InterventionOutcome:
        decision = plan.decision
        # The decision that was shown comes from the topic, and the pointer may be behind.
        await log.scan.refresh(decision.prefix)
        if await log.newest() != decision:
            raise RefusedError(
                "The newest decision of the query has changed since it was shown",
                checked="The decision log, after the query's driver was fenced",
                remedy="Run `eos-kafka decisions show` again",
            )
        shown, plan = plan, await self.planned(decision, plan.action, plan.restart)
        if plan.steps() != shown.steps():
            raise RefusedError(
                CHANGED,
                checked="It would now " + "; ".join(each for each in plan.steps() if each not in shown.steps()),
                remedy="Repeat the command to see the plan as it is now",
            )
        word = Intervention(plan.action, self.by, await Now(), self.reason, plan.restart)
        amended = replace(
            decision, revision=decision.revision + 1, intervention=word, superseded=superseding(decision, "", runs)
        )
        driver = await log.amend(amended, driver, word.at_ms, self._audit(plan, word))
        try:
            settled = await settle(amended)
        except EosKafkaError as error:
            raise _with_remedy(
                error,
                (
                    "The intervention is stored in the decision. To carry it out, restart the query; if it was "
                    "`complete`, `eos-kafka decisions complete` does it too"
                ),
            ) from error
        problems = []
        if settled.took_effect:
            try:
                await retire(log, driver, amended, Retirement.MARK, await Now())
            except EosKafkaError as error:
                problems.append(
                    f"The decision is completed, but the completion could not be recorded in {self.topic}: {error}"
                )
        try:
            scope = Scope(decision.prefix, decision.query, amended.superseded)
            await sweep(scope, log.newest)
        except EosKafkaError as error:
            problems.append(
                f"The query's other open transactions could not be aborted and end at their timeout: {error}"
            )
        return InterventionOutcome(settled, tuple(problems))

    async def _watch(self, decision: Decision) -> set[str]:
        """Watch the query for signs of life; return the runs with open transactions, none of which did anything.

        A query that only waits for data cannot be detected. It is fenced, stops at its next micro-batch and can be
        started again.
        """
        before = await _look(decision)
        unnamed = sorted(before.opened - names_of(decision))
        if unnamed and not self.is_known_dead:
            raise RefusedError(
                f"Query {decision.query} has {counted(len(unnamed), 'open transaction')} outside the decision, for "
                f"example {unnamed[0][0]}. It may be running a micro-batch",
                checked="ListTransactions and DescribeTransactions",
                remedy="Stop the query first. If it is dead and left them open, add --query-is-dead",
            )
        until = await Monotonic() + self.watch_seconds
        while True:
            now = await _look(decision)
            life = _sign_of_life(before, now)
            if life:
                raise RefusedError(
                    f"Query {decision.query} is running: {life}",
                    remedy="Stop it first; a running query completes its decisions itself",
                )
            left = until - await Monotonic()
            if left <= 0:
                return {run_of(name) for name, _ in now.opened}
            await Sleep(min(0.5, left))

    def _audit(self, plan: Plan, word: Intervention) -> tuple[bytes, bytes]:
        decision = plan.decision
        key = audit_key(decision.prefix, decision.query, word.at_ms, self.audit_id)
        document: dict[str, Any] = {
            "version": AUDIT_VERSION,
            **(intervention_document(word) or {}),
            "prefix": decision.prefix,
            "query": decision.query,
            "run": decision.run,
            "micro_batch": decision.micro_batch,
            "attempt": decision.attempt,
            "transaction_count": len(decision.transactions),
            "found": {fate.name.lower(): plan.count(fate) for fate in Fate},
            # Of a very large micro-batch only the first ones: the record must fit into one message.
            "transactions": [
                [t.transactional_id, *t.producer, fate.name.lower()]
                for t, fate in list(plan.fates.items())[:_MOST_NAMED]
            ],
        }
        return key, sealed_json(document)


class _Look(NamedTuple):
    driver: Description | None
    opened: frozenset[tuple[str, ProducerIdentity]]


async def _look(decision: Decision) -> _Look:
    driver = driver_id(decision.prefix, decision.query)
    described = (await DescribeTransactions([driver])).get(driver)
    opened = await open_of_query(decision.prefix, decision.query)
    return _Look(described, frozenset((each.transactional_id, each.producer) for each in opened))


def _sign_of_life(before: _Look, now: _Look) -> str:
    """Return what a query was seen doing between two looks, or an empty text."""
    if now.driver is not None and now.driver.state is TransactionState.ONGOING:
        return (
            "its driver is writing a decision, or died while writing one (its coordinator then ends that "
            f"transaction within {now.driver.timeout_ms} ms and a few seconds)"
        )
    if (now.driver and now.driver.producer) != (before.driver and before.driver.producer):
        return "its driver wrote a decision while it was watched"
    begun = sorted(now.opened - before.opened)
    return f"it began a transaction while it was watched, {begun[0][0]}" if begun else ""


def _after_fencing(decision: Decision, error: EosKafkaError) -> EosKafkaError:
    """Add to an error that the driver was fenced by then, which cannot be undone."""
    fenced = (
        f"The query's driver, {driver_id(decision.prefix, decision.query)}, was fenced before this check. If the "
        "query is running and its run has already decided a micro-batch, it stops at its next commit and nothing "
        "of that micro-batch is visible. Restart it then"
    )
    whole = _with_remedy(error, fenced)
    if isinstance(error, RefusedError):
        return FencedRefusalError(whole.happened, checked=whole.checked, remedy=whole.remedy)
    return whole


def _with_remedy(error: EosKafkaError, more: str) -> EosKafkaError:
    remedy = error.remedy or error.default_remedy
    return type(error)(
        error.happened,
        checked=error.checked,
        remedy=f"{remedy}. {more}" if remedy else more,
        error_code=error.error_code,
    )


def fates_now(
    cluster: KafkaCluster, decision: Decision, undescribed: Collection[str] = ()
) -> dict[PreparedTransaction, Fate]:
    """Return the fate of each transaction of a decision, without ending any; those `undescribed` by their logs only."""
    by_log = [each for each in decision.transactions if each.transactional_id in undescribed]
    if not by_log:
        return perform(cluster, _fates_now(decision))
    described = perform(cluster, fates_of([each for each in decision.transactions if each not in by_log]))
    found = {**described, **perform(cluster, logged_fates(by_log))}
    return {each: found[each] for each in decision.transactions}


async def _fates_now(decision: Decision) -> dict[PreparedTransaction, Fate]:
    if decision.completed_at_ms is not None:
        return dict.fromkeys(decision.transactions, Fate.COMMITTED)
    return await fates_of(decision.transactions)
