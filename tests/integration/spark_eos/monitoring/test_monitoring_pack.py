"""The dashboard and the alert rules of conf/monitoring: the metrics they name exist, and Prometheus accepts them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_core.server.metrics_endpoint import ROWS
from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS

ROOT = Path(__file__).parents[4]
PACK = ROOT / "conf" / "monitoring"
RULES = PACK / "prometheus-rules.yml"
DASHBOARD = json.loads((PACK / "grafana-dashboard.json").read_text(encoding="utf-8"))
DEADLINE_S = 60

OURS = {
    f"{side.prefix}_{each.name}{'_total' if each.is_counter else ''}": {*side.labels, *each.labels, "job", "instance"}
    for side in (SINK_METRICS, SOURCE_METRICS)
    for each in side.definitions.values()
}
# The names of Kafka's example for the JMX exporter, which the embedded broker has too.
KAFKAS = {row.name: {*row.labels, "job", "instance"} for row in ROWS}
EXPORTED = OURS | KAFKAS


def rule_expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def dashboard_targets() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]


def named(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:eos_kafka|kafka|broker_core)_\w+", expression))


def test_every_metric_in_rules_and_dashboard_is_exported() -> None:
    expressions = [*rule_expressions(), *(expression for expression, _ in dashboard_targets())]
    assert len(expressions) > 40
    assert {name for each in expressions for name in named(each)} <= EXPORTED.keys()


def test_every_metric_of_source_and_sink_is_on_the_dashboard() -> None:
    assert {name for each, _ in dashboard_targets() for name in named(each)} >= OURS.keys()


def test_legends_name_labels_that_the_result_has() -> None:
    for expression, legend in dashboard_targets():
        grouped = re.search(r"\bby \(([\w, ]+)\)", expression)
        labels = set(grouped[1].split(", ")) if grouped else set.intersection(*(EXPORTED[n] for n in named(expression)))
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels, expression


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids: list[int] = []
    for panel in DASHBOARD["panels"]:
        ids.append(panel["id"])
        place: dict[str, Any] = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells
    assert len(set(ids)) == len(ids)


def test_dashboard_uses_the_variables_that_it_defines() -> None:
    defined = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == defined


def test_pages_that_alerts_name_exist() -> None:
    for page, _, anchor in re.findall(r"(docs/[\w/-]+\.md)(#([\w-]+))?", RULES.read_text(encoding="utf-8")):
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
        assert not anchor or anchor in anchors, f"{page}#{anchor}"


def test_prometheus_accepts_the_rules_and_each_alert_fires(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing; Debian has it in the package prometheus")
    subprocess.run([promtool, "check", "rules", str(RULES)], check=True, timeout=DEADLINE_S)
    cases = (Path(__file__).parent / "rules_test.yml").read_text(encoding="utf-8")
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8"))
    assert all(alert in cases for alert in alerts)
    (tmp_path / "cases.yml").write_text(cases.replace("[RULES]", f"[{RULES}]"), encoding="utf-8")
    subprocess.run([promtool, "test", "rules", str(tmp_path / "cases.yml")], check=True, timeout=DEADLINE_S)
