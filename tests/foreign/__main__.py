"""Run test suites of others: `python -m tests.foreign franz-go sarama --broker both`; without names, list them.

A run fails if a test fails that known_failures.json does not name, or if one that it names does not fail any more.
`--write` records whole runs that do not fail, and rewrites the tables of docs/contributing/foreign-suites.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.foreign import known, results
from tests.foreign.outcomes import counts
from tests.foreign.suites import SUITES, version_of
from tests.support.apache_kafka import CACHE, Unavailable

LOGS = CACHE / "foreign"
# The exit status of a run in which a suite could not be had.
UNAVAILABLE = 3


def main(arguments: Sequence[str] | None = None, logs: Path = LOGS) -> int:
    """Return 0 if every run was as known_failures.json says, 1 if not, and 3 if a suite could not run."""
    options = _parser().parse_args(arguments)
    if not options.suites:
        for name, suite in SUITES.items():
            print(f"{name:16} {version_of(name):10} {suite.origin}")
        return 0
    logs.mkdir(parents=True, exist_ok=True)
    kinds = known.BROKERS if options.broker == "both" else (options.broker,)
    return max(
        _run(name, kind, options.only, logs / f"{name}-{kind}.log", writes=options.write)
        for name in (SUITES if "all" in options.suites else options.suites)
        for kind in kinds
    )


def _run(name: str, kind: str, only: str | None, log: Path, *, writes: bool) -> int:
    try:
        outcomes = SUITES[name].run(kind, log, only)
    except Unavailable as problem:
        print(f"{name} on {kind}: skipped: {problem}", flush=True)
        return UNAVAILABLE
    counted = ", ".join(f"{number} {outcome}" for outcome, number in counts(outcomes).items())
    print(f"{name} {version_of(name)} on {kind}: {counted}", flush=True)
    listed = known.load()
    verdict = known.judge(outcomes, listed.get(name, ()), kind, is_whole=only is None)
    for line in verdict.lines():
        print(f"  {line}")
    if not outcomes:
        print(f"  no test ran: see {log}")
        return 1
    if not verdict.is_good:
        return 1
    if writes and only is None:
        results.record(name, kind, outcomes, listed)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("suites", nargs="*", choices=[*SUITES, "all", []], metavar="suite", help="or all")
    parser.add_argument("--broker", choices=[*known.BROKERS, "both"], default="both")
    parser.add_argument("--only", metavar="PATTERN", help="run the tests that match, in the runner's own notation")
    parser.add_argument("--write", action="store_true", help="record whole runs in results.json and in the document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
