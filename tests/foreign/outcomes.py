"""The outcomes of a suite's tests, read from what its test runner prints."""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from typing import Final

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"

# Test id -> outcome.
Outcomes = dict[str, str]

_GO: Final = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
_CARGO: Final = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}
_LIBRDKAFKA: Final = {"PASSED": PASSED, "FAILED": FAILED, "RUNNING": FAILED, "SKIPPED": SKIPPED}
_LIBRDKAFKA_TEST = re.compile(r"^\|\s*(\d{4}_\w+)\s*\|\s*([A-Z]+)\s*\|\s*[\d.]+s\s*\|\s*(.*)")
_ESCAPES = re.compile(r"\x1b\[[\d;]*m")
# A test that fails can end the runner before its summary.
_LIBRDKAFKA_FAILURE = re.compile(r'^### Test "(\w+)(?: \([^"]*)?" failed at ')
# The reason of tests that were not to be run.
_NOT_CHOSEN: Final = ("", "Filtered due to negative test flags")
_CARGO_BINARY = re.compile(r"^\s*Running (?:unittests )?(\S+)|^\s*Doc-tests (\S+)")
_CARGO_TEST = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)\b")


def counts(outcomes: Outcomes) -> dict[str, int]:
    """Return the number of tests of each outcome, and of all."""
    counted = Counter(outcomes.values())
    return {"run": len(outcomes), **{each: counted[each] for each in (PASSED, FAILED, SKIPPED)}}


def from_go(output: str, module: str) -> Outcomes:
    """Read the events of `go test -json`.

    A test's id is the package below the module, if any, and its name. A parent of subtests counts as one test. A test
    that began and did not end, because the program was stopped or crashed, has failed; so has a package that failed
    without a failed test, for example because it does not compile.
    """
    outcomes: Outcomes = {}
    packages: set[str] = set()
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            # Other output of the command, which can also break a line.
            continue
        action = event["Action"]
        package = event.get("Package", "").removeprefix(module).lstrip("/")
        if "Test" in event:
            name = f"{package}.{event['Test']}" if package else event["Test"]
            if action == "run":
                outcomes.setdefault(name, FAILED)
            elif action in _GO:
                outcomes[name] = _GO[action]
        elif action == "fail":
            packages.add(package)
    for package in packages:
        prefix = f"{package}." if package else ""
        if not any(each.startswith(prefix) and outcome == FAILED for each, outcome in outcomes.items()):
            outcomes[f"{prefix}(package)"] = FAILED
    return outcomes


def from_cargo(output: str) -> Outcomes:
    """Read the output of `cargo test -- --test-threads=1`, whose parts name the file of their tests."""
    outcomes: Outcomes = {}
    part = ""
    for line in output.splitlines():
        binary = _CARGO_BINARY.match(line)
        if binary:
            part = (binary[1] or f"doc {binary[2]}").removeprefix("tests/")
        found = _CARGO_TEST.match(line)
        if found:
            outcomes[f"{part}: {found[1]}"] = _CARGO[found[2]]
    return outcomes


def from_librdkafka(output: str) -> Outcomes:
    """Read the summary of librdkafka's test runner, which names tests that were not chosen as skipped as well."""
    outcomes: Outcomes = {}
    for line in output.splitlines():
        plain = _ESCAPES.sub("", line)
        failed = _LIBRDKAFKA_FAILURE.match(plain)
        if failed:
            outcomes[failed[1]] = FAILED
        found = _LIBRDKAFKA_TEST.match(plain)
        if found and found[2] in _LIBRDKAFKA and not (found[2] == "SKIPPED" and found[3].strip() in _NOT_CHOSEN):
            outcomes[found[1]] = _LIBRDKAFKA[found[2]]
    return outcomes


def from_junit(text: str) -> Outcomes:
    """Read a file of JUnit's format, as pytest writes it; an expected failure counts as skipped."""
    outcomes: Outcomes = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        name = f"{case.get('classname', '')}.{case.get('name', '')}".lstrip(".")
        # A test whose teardown fails is there twice.
        if outcomes.get(name) != FAILED:
            outcomes[name] = FAILED if failed else SKIPPED if "skipped" in kinds else PASSED
    return outcomes
