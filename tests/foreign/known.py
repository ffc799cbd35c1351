"""The failures that are known, each with its reason, and the comparison of a run with them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.foreign.outcomes import FAILED, Outcomes

FILE: Final = Path(__file__).with_name("known_failures.json")
BROKERS: Final = ("broker_core", "apache")


@dataclass(frozen=True)
class Known:
    """A test that fails on these brokers, always or, if it depends on timing, `sometimes`."""

    test: str
    reason: str
    brokers: tuple[str, ...] = BROKERS
    sometimes: bool = False


@dataclass(frozen=True)
class Verdict:
    """What of a run disagrees with the known failures."""

    unlisted: list[str]
    outdated: list[str]

    @property
    def is_good(self) -> bool:
        """Return whether the run is as the list says."""
        return not (self.unlisted or self.outdated)

    def lines(self) -> list[str]:
        """Return one line for each disagreement."""
        return [
            *(f"failed, and not in {FILE.name}: {each}" for each in self.unlisted),
            *(f"in {FILE.name}, and did not fail: {each}" for each in self.outdated),
        ]


def load(path: Path = FILE) -> dict[str, list[Known]]:
    """Return the known failures of each suite."""
    recorded = json.loads(path.read_text(encoding="utf-8"))
    return {
        suite: [Known(**{**each, "brokers": tuple(each.get("brokers", BROKERS))}) for each in entries]
        for suite, entries in recorded.items()
    }


def judge(outcomes: Outcomes, known: Iterable[Known], broker: str, *, is_whole: bool = True) -> Verdict:
    """Compare a run on one broker with the list.

    A failed parent of subtests needs no entry of its own if a subtest failed. An entry whose test did not fail, or is
    not there any more, is outdated; a run of some tests only judges those that it ran.
    """
    failed = {each for each, outcome in outcomes.items() if outcome == FAILED}
    listed = {each.test: each for each in known if broker in each.brokers}
    parents = {each for each in failed if any(other.startswith(f"{each}/") for other in failed)}
    return Verdict(
        unlisted=sorted(failed - parents - listed.keys()),
        outdated=sorted(
            test
            for test, each in listed.items()
            if test not in failed and not each.sometimes and (is_whole or test in outcomes)
        ),
    )
