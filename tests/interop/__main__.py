"""Run all scenarios with all clients and print a table: `python -m tests.interop [--without-apache] [-k ...]`.

Other options go to pytest.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.interop.fleet import FLEET
from tests.support.apache_kafka import Unavailable, kafka_version
from tests.support.both_brokers import BROKERS

FOLDER = Path(__file__).parent
TITLES = {"broker_core": "`broker_core`", "apache": f"Apache Kafka {kafka_version()}"}


class Tally:
    """The outcomes of the scenarios by client and broker; those of two clients count for both."""

    def __init__(self) -> None:
        self.passed: Counter[tuple[str, str]] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()
        # Failures that a limit of the client explains.
        self.expected: Counter[tuple[str, str]] = Counter()
        # What a client cannot do or does wrong, on which brokers.
        self.limits: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.missing: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once, and a failure in any phase."""
        # With pytest-xdist, only the names come from the workers.
        broker, *parameters = report.nodeid.partition("[")[2].rstrip("]").split("-")
        clients = [each for each in parameters if each in FLEET]
        for client in clients:
            if report.failed:
                self.failed[client, broker] += 1
            elif hasattr(report, "wasxfail") and report.skipped:
                # A limit is one of the first client.
                if client == clients[0]:
                    self.expected[client, broker] += 1
                    self.limits[client][report.wasxfail].add(broker)
            elif report.skipped and isinstance(report.longrepr, tuple | list):
                reason = report.longrepr[2].removeprefix("Skipped: ")
                if reason.startswith("unsupported: "):
                    self.limits[client][reason.removeprefix("unsupported: ")].add(broker)
                else:
                    self.missing[client] = reason
            elif report.when == "call" and report.passed:
                self.passed[client, broker] += 1

    def counts(self, client: str, broker: str) -> str:
        """Format the outcomes of the client's scenarios on the broker, without those that it cannot express."""
        passed, expected, failed = (each[client, broker] for each in (self.passed, self.expected, self.failed))
        parts = [f"{passed} passed"]
        if expected:
            parts.append(f"{expected} expected failure{'s' if expected > 1 else ''} (limits of the client)")
        if failed:
            parts.append(f"{failed} failed")
        return ", ".join(parts)


def table(tally: Tally, brokers: Iterable[str]) -> str:
    """Format the table of docs/contributing/how-we-know.md, and below it the limits of each client."""
    brokers = list(brokers)
    lines = [["client", "version", *(TITLES[broker] for broker in brokers)]]
    limits = []
    for name in FLEET:
        if name in tally.missing:
            lines.append([name, "not run", *("" for _ in brokers)])
            limits.append(f"- {name}: {tally.missing[name]}")
            continue
        title, version = version_of(name)
        lines.append([title, version, *(tally.counts(name, broker) for broker in brokers)])
        for reason, seen in tally.limits[name].items():
            where = "" if seen == set(brokers) else f" (on {' and '.join(sorted(seen))} only)"
            limits.append(f"- {title}: {reason}{where}")
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join([*("| " + " | ".join(cells) + " |" for cells in lines), "", *limits])


def version_of(name: str) -> tuple[str, str]:
    """Return the name and version of a client."""
    try:
        adapter = FLEET[name].start()
    except Unavailable as problem:
        return name, str(problem)
    try:
        title, version = adapter.call("version")
    finally:
        adapter.close()
    return title, version


def main() -> int:
    """Return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__, allow_abbrev=False)
    parser.add_argument("--without-apache", action="store_true", help="use broker_core only, with all clients")
    arguments, others = parser.parse_known_args()
    chosen = ["-k", "broker_core"] if arguments.without_apache else []
    tally = Tally()
    status = pytest.main([str(FOLDER), "--apache", "-q", *chosen, *others], plugins=[tally])
    print()
    print(table(tally, BROKERS[:1] if arguments.without_apache else BROKERS))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
