"""The results of whole runs, in `results.json`, and their table in docs/contributing/foreign-suites.md."""

import datetime
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.foreign.known import BROKERS, Known
from tests.foreign.outcomes import FAILED, PASSED, SKIPPED, Outcomes, counts
from tests.foreign.suites import SUITES, version_of
from tests.support.apache_kafka import kafka_version
from tests.support.reference import json_rows, rewritten, table

FILE: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "contributing" / "foreign-suites.md"
APACHE: Final = kafka_version()
TITLES: Final = {"broker_core": "`broker_core`", "apache": f"Apache Kafka {APACHE}"}
NOT_RUN: Final = "not run"

# Suite -> broker -> counts, version, day, commit, and the ids of the failed tests.
Results = dict[str, dict[str, dict[str, Any]]]


def load() -> Results:
    """Return the recorded results."""
    recorded: Results = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return recorded


def record(suite: str, broker: str, outcomes: Outcomes, known: Mapping[str, list[Known]]) -> None:
    """Replace the result of one suite on one broker, and rewrite the page."""
    results = load()
    failed = sorted(each for each, outcome in outcomes.items() if outcome == FAILED)
    result = {"version": version_of(suite), **counts(outcomes), "failures": failed, **_when()}
    if broker == "apache":
        result["apache_version"] = SUITES[suite].apache_version
    results.setdefault(suite, {})[broker] = result
    FILE.write_text(json_rows(dict(sorted(results.items()))) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), results, known), encoding="utf-8")


def _when() -> dict[str, str]:
    """Return today's date and the commit, with a + if the broker's sources have changed since."""
    commit = _git("rev-parse", "--short=8", "HEAD").stdout.strip()
    changed = _git("status", "--porcelain", "../../broker_core").stdout
    return {"day": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "commit": commit + "+" * bool(changed)}


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=FILE.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )


def page(text: str, results: Results, known: Mapping[str, list[Known]]) -> str:
    """Return the page with the tables of these results."""
    return rewritten(
        text, {"foreign suites": lambda: _table(results), "known failures": lambda: _known(results, known)}
    )


def _table(results: Results) -> str:
    rows = [
        [
            suite.title,
            next((each["version"] for each in results.get(name, {}).values()), version_of(name)),
            suite.origin,
            *(_cell(results.get(name, {}).get(broker)) for broker in BROKERS),
            _run_of(results.get(name, {}).get("broker_core", {})),
        ]
        for name, suite in SUITES.items()
    ]
    return table(("suite", "version", "from", *(TITLES[broker] for broker in BROKERS), "run on"), rows)


def _run_of(result: Mapping[str, Any]) -> str:
    return f"{result['day']}, {result['commit']}" if "day" in result else ""


def _cell(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return NOT_RUN
    version = result.get("apache_version", APACHE)
    return (
        (f"on {version}: " if version != APACHE else "")
        + f"{result['run']} run: "
        + ", ".join(f"{result[each]} {each}" for each in (PASSED, FAILED, SKIPPED) if result[each] or each == PASSED)
    )


def _known(results: Results, known: Mapping[str, list[Known]]) -> str:
    rows = []
    for name, suite in SUITES.items():
        failed = {broker: set(results.get(name, {}).get(broker, {}).get("failures", ())) for broker in BROKERS}
        for entry in known.get(name, ()):
            where = [TITLES[broker] for broker in BROKERS if entry.test in failed[broker]]
            rows.append([suite.title, f"`{entry.test}`", _places(where, entry), entry.reason])
    return table(("suite", "test", "failed on", "reason"), rows)


def _places(where: Iterable[str], entry: Known) -> str:
    places = " and ".join(where)
    if not entry.sometimes:
        return places
    return f"{places}, sometimes" if places else "sometimes, not in this run"
