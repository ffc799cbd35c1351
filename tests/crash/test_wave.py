"""How a wave brings queries to their points, with a scripted driver."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.crash.case import Case
from tests.crash.matrix import Fault, Pair, pairs
from tests.crash.wave import LONG_TIMEOUT, Watched, Wave

PAUSED = next(pairs(Fault.PAUSE))
KILLED = next(pairs(Fault.KILL_WORKER))


class Player:
    """A scripted driver and world: the first queries end with the given errors, each later one reaches its point."""

    def __init__(self, folder: Path, *endings: str | None) -> None:
        self._folder = folder
        self._endings = iter(endings)
        self._ended: dict[str, str | None] = {}
        self.cases: list[Case] = []

    def new_case(self, **options: str) -> Case:
        """Make a case without a broker."""
        self.cases.append(Case(self._folder, "nowhere:9092", more_options=options))
        return self.cases[-1]

    def arm(self, case: Case, *rules: str) -> None:
        """Do nothing."""

    def start(self, case: Case) -> None:
        """End at once, or be held."""
        self._ended.pop(case.prefix, None)
        for ending in itertools.islice(self._endings, 1):
            self._ended[case.prefix] = ending
            return
        case.held.write_text("1")

    def has_ended(self, case: Case) -> bool:
        """Return whether the query of a case has ended."""
        return case.prefix in self._ended

    def error(self, case: Case) -> str | None:
        """Return the error of the query of a case."""
        return self._ended[case.prefix]


Play = Callable[..., list[Case]]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a function that leads a query to its point, and returns the cases that it took."""

    def lead(pair: Pair, timeout: str, *endings: str | None) -> list[Case]:
        player = Player(tmp_path, *endings)
        watched = Watched(pair, player.new_case(transactionTimeout=timeout))
        wave = Wave(cast(Any, player), cast(Any, None), cast(Any, player))
        wave._lead_to_points([watched])
        assert watched.case is player.cases[-1]
        return player.cases

    return lead


def test_query_that_failed_midway_is_restarted(play: Play) -> None:
    assert len(play(KILLED, LONG_TIMEOUT, "failed", "failed")) == 1


@pytest.mark.parametrize("endings", [(None,), ("timed out",) * 4])
def test_query_that_timed_out_before_its_failpoint_is_replaced_by_one_with_more_time(
    play: Play, endings: tuple[str | None, ...]
) -> None:
    late, fresh = play(PAUSED, "15s", *endings)
    assert fresh.more_options["transactionTimeout"] == "30s"
    # It runs to its end and is judged with the others, with a long timeout.
    assert late.more_options["transactionTimeout"] == LONG_TIMEOUT


def test_retries_with_more_time_are_limited(play: Play) -> None:
    assert len(play(PAUSED, "15s", None, None, None)) == 4
    with pytest.raises(AssertionError, match="was not reached"):
        play(PAUSED, "15s", None, None, None, None)


@pytest.mark.parametrize("endings", [(None,), ("failed",) * 4])
def test_failpoint_not_reached_in_any_time_fails_the_wave(play: Play, endings: tuple[str | None, ...]) -> None:
    with pytest.raises(AssertionError, match="was not reached"):
        play(KILLED, LONG_TIMEOUT, *endings)
