"""The changes that the console offers: planned, shown, confirmed once, then carried out by the commands' own code."""

import argparse
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from spark_eos.admin.console.documents import Documents
from spark_eos.admin.decision_operator import CHANGED, DecisionOperator, Plan, RefusedError, operator_name
from spark_eos.admin.inventory import read_inventory
from spark_eos.admin.transactions_end import EndPlan, plan_abort, plan_force_terminate
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import OptionError
from spark_eos.runtime import now_ms
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import OperatorAction, Restart

_CONFIRM_WITHIN_SECONDS: Final = 120.0
_MOST_PLANS: Final = 20
_OPEN_AGAIN: Final = "Open the plan again"


class _Shown(NamedTuple):
    """A plan that was shown, and until when it may be confirmed."""

    action: Mapping[str, Any]
    plan: Plan | EndPlan
    until: float


@dataclass(slots=True)
class Actions:
    """The plans of one console; each can be confirmed once, within two minutes."""

    documents: Documents
    _shown: "OrderedDict[str, _Shown]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Return what an action would do, and the name under which it can be confirmed; changes nothing."""
        findings: list[str] = []
        plan: Plan | EndPlan
        with self.documents.client() as client:
            if action.get("kind") in ("complete", "abandon"):
                plan = self._decision_plan(client, action)[0]
                steps = plan.steps()
            else:
                plan = self._end_plan(client, action, findings)
                steps = [plan.text]
        name = secrets.token_urlsafe(16)
        with self._lock:
            self._shown[name] = _Shown(dict(action), plan, self.documents.clock.monotonic() + _CONFIRM_WITHIN_SECONDS)
            while len(self._shown) > _MOST_PLANS:
                self._shown.popitem(last=False)
        return {"plan": name, "findings": findings, "steps": steps, "expires_in_s": _CONFIRM_WITHIN_SECONDS}

    def carry_out(self, name: str, reason: str) -> dict[str, Any]:
        """Carry out a plan that was shown, if it would still do the same."""
        with self._lock:
            shown = self._shown.pop(name, None)
        if shown is None or shown.until < self.documents.clock.monotonic():
            raise RefusedError("This plan was already carried out, or is too old", remedy=_OPEN_AGAIN)
        try:
            with self.documents.client() as client:
                if isinstance(shown.plan, EndPlan):
                    end = self._end_plan(client, shown.action, [])
                    end.require_same(shown.plan, _OPEN_AGAIN)
                    end.do()
                    return {"done": True, "text": f"Done: {end.text}."}
                plan, operator = self._decision_plan(client, shown.action, reason)
                if plan.steps() != shown.plan.steps() or plan.decision != shown.plan.decision:
                    raise RefusedError(CHANGED, remedy=_OPEN_AGAIN)
                outcome = operator.carry_out(plan)
                return {"done": not outcome.problems, "text": " ".join([str(outcome), *outcome.problems])}
        finally:
            self.documents.collector.look_again()

    def _end_plan(self, client: KafkaClient, action: Mapping[str, Any], findings: list[str]) -> EndPlan:
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
            return plan_abort(chosen, client, now_ms(self.documents.clock), findings.append)
        if action.get("kind") == "force-terminate":
            chosen = argparse.Namespace(transactional_id=_text(action, "id"), **reach)
            return plan_force_terminate(chosen, client, findings.append)
        raise OptionError(f"There is no action {action.get('kind')!r}")

    def _decision_plan(
        self, client: KafkaClient, action: Mapping[str, Any], reason: str = ""
    ) -> tuple[Plan, DecisionOperator]:
        chosen = self.documents.chosen
        cluster = KafkaCluster(client, chosen.decision_topic)
        prefix, query = _text(action, "prefix"), _text(action, "query")
        entries = read_inventory(cluster, chosen.decision_topic, prefix, query)
        if not entries or entries[0].decision is None:
            problem = entries[0].problem if entries else f"No decision found for query {query!r} with prefix {prefix!r}"
            raise RefusedError(problem)
        operator = DecisionOperator(cluster, chosen.decision_topic, chosen.by or operator_name(), reason)
        if action["kind"] == "complete":
            return operator.plan(entries[0].decision, OperatorAction.COMPLETE), operator
        restart = Restart(_text(action, "restart"))
        return operator.plan(entries[0].decision, OperatorAction.ABORT, restart), operator


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
