"""The changes that the console offers: planned, shown, confirmed once, then carried out by the commands' own code."""

import argparse
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from broker_core.types import counted
from spark_eos.admin.console.documents import Documents
from spark_eos.admin.decision_operator import DecisionOperator, Plan, RefusedError
from spark_eos.admin.inventory import read_inventory
from spark_eos.admin.operator_name import operator_name
from spark_eos.admin.transactions_end import CHANGED, EndPlan, plan_abort, plan_force_terminate
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transaction_admin import TransactionAdmin
from spark_eos.errors import OptionError
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.intervention import OperatorAction, Restart

_CONFIRM_WITHIN_SECONDS: Final = 120.0
_MOST_PLANS: Final = 20
_OPEN_AGAIN: Final = "Open the plan again"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A plan that was shown, and until when it may be confirmed."""

    action: Mapping[str, Any]
    steps: tuple[str, ...]
    until: float
    decision_plan: Plan | None = None
    end_plan: EndPlan | None = None


@dataclass(slots=True)
class Actions:
    """The plans of one console; each can be confirmed once, within two minutes."""

    documents: Documents
    _shown: "OrderedDict[str, _Shown]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Return what an action would do, and the name under which it can be confirmed; changes nothing."""
        findings: list[str] = []
        decision_plan, end_plan = None, None
        with self.documents.client() as client:
            if action.get("kind") in ("complete", "abandon"):
                decision_plan = self._decision_plan(client, action, "")
                steps = tuple(decision_plan.steps())
            else:
                end_plan = self._end_plan(client, action, findings)
                steps = (end_plan.text,)
        shown = _Shown(dict(action), steps, time.monotonic() + _CONFIRM_WITHIN_SECONDS, decision_plan, end_plan)
        name = secrets.token_urlsafe(16)
        with self._lock:
            self._shown[name] = shown
            while len(self._shown) > _MOST_PLANS:
                self._shown.popitem(last=False)
        return {"plan": name, "findings": findings, "steps": list(steps), "expires_in_s": _CONFIRM_WITHIN_SECONDS}

    def carry_out(self, name: str, reason: str) -> dict[str, Any]:
        """Carry out a plan that was shown, if it would still do the same."""
        with self._lock:
            shown = self._shown.pop(name, None)
        if shown is None or shown.until < time.monotonic():
            raise RefusedError("This plan was already carried out, or is too old", remedy=_OPEN_AGAIN)
        try:
            with self.documents.client() as client:
                if shown.end_plan is None:
                    return self._intervene(client, shown, reason)
                plan = self._end_plan(client, shown.action, [])
                plan.require_same(shown.end_plan, _OPEN_AGAIN)
                plan.do()
                return {"done": True, "text": f"Done: {plan.text}."}
        finally:
            self.documents.collector.look_again()

    def _end_plan(self, client: KafkaClient, action: Mapping[str, Any], findings: list[str]) -> EndPlan:
        admin = TransactionAdmin(client)
        reach = {
            "bootstrap_server": self.documents.chosen.bootstrap_server,
            "command_config": self.documents.chosen.command_config,
            "force": False,
        }
        if action.get("kind") == "abort":
            chosen = argparse.Namespace(
                topic=_text(action, "topic"),
                partition=_number(action, "partition"),
                start_offset=_number(action, "start_offset"),
                commit=action.get("commit") is True,
                **reach,
            )
            return plan_abort(chosen, admin, time.time_ns() // 1_000_000, findings.append)
        if action.get("kind") == "force-terminate":
            chosen = argparse.Namespace(transactional_id=_text(action, "id"), **reach)
            return plan_force_terminate(chosen, admin, findings.append)
        raise OptionError(f"There is no action {action.get('kind')!r}")

    def _decision_plan(self, client: KafkaClient, action: Mapping[str, Any], reason: str) -> Plan:
        topic = self.documents.chosen.decision_topic
        cluster = KafkaCluster(client, topic)
        prefix, query = _text(action, "prefix"), _text(action, "query")
        entries = read_inventory(cluster, topic, prefix, query)
        if not entries or entries[0].decision is None:
            problem = entries[0].problem if entries else f"No decision found for query {query!r} with prefix {prefix!r}"
            raise RefusedError(problem)
        if action["kind"] == "complete":
            return self._operator(cluster, reason).plan(entries[0].decision, OperatorAction.COMPLETE)
        restart = Restart(_text(action, "restart"))
        return self._operator(cluster, reason).plan(entries[0].decision, OperatorAction.ABORT, restart)

    def _operator(self, cluster: KafkaCluster, reason: str) -> DecisionOperator:
        chosen = self.documents.chosen
        return DecisionOperator(cluster, chosen.decision_topic, chosen.by or operator_name(), reason)

    def _intervene(self, client: KafkaClient, shown: _Shown, reason: str) -> dict[str, Any]:
        plan = self._decision_plan(client, shown.action, reason)
        if tuple(plan.steps()) != shown.steps or plan.decision != (
            shown.decision_plan and shown.decision_plan.decision
        ):
            raise RefusedError(CHANGED, remedy=_OPEN_AGAIN)
        cluster = KafkaCluster(client, self.documents.chosen.decision_topic)
        settled, problems = self._operator(cluster, reason).carry_out(plan)
        text = (
            f"{counted(len(settled.decision.transactions), 'transaction')}: {len(settled.committed)} committed, "
            f"{len(settled.lost)} aborted or lost, "
            f"{len(settled.unknown) + len(settled.pending)} with an unknown outcome."
        )
        return {"done": not problems, "text": " ".join([text, *problems])}


def _text(action: Mapping[str, Any], name: str) -> str:
    value = action.get(name)
    if not isinstance(value, str) or not value:
        raise OptionError(f"The action has no {name}")
    return value


def _number(action: Mapping[str, Any], name: str) -> int:
    value = action.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise OptionError(f"The action has no {name}")
    return value
