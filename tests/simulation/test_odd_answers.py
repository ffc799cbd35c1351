"""Small worlds in which one answer is odd: what comes of a query, or of a command, is as without it, or it says why."""

import re
from collections.abc import Iterator
from functools import cache

import pytest

from broker_core.errors import ErrorCode
from tests.simulation.odd_answers import Oddity
from tests.simulation.odd_scenes import COMMANDS, OddQuery, OddReader, Played, operated, play
from tests.support.short_form import chosen

QUERIES = {"writes": OddQuery, "reads": OddReader}
# Each takes some seconds.
PARTS = [
    *((name, part, 240) for name in QUERIES for part in range(240)),
    *((name, part, 6) for name in COMMANDS for part in range(6)),
]
# What is said of an answer that has no error code.
_LACKS = "DescribeGroups: the broker's response does not include"
_SAID = {"base_offset=-1": "without an offset", "groups none": _LACKS, "groups stranger alone": _LACKS}


@cache
def possible(name: str) -> tuple[tuple[str, int, str], ...]:
    """Return each change of each answer in a scene, so that those of one kind are in different parts."""
    if name in QUERIES:
        seen = play(QUERIES[name], None).seen
    else:
        with operated() as run:
            seen = run(name, None).seen
    found = [(api, nth, words) for (api, nth), changes in seen.items() for words in changes]
    return tuple(sorted(found, key=lambda each: (each[0], re.sub(r"\[\d+\]", "", each[2]), each[1])))


def is_named(change: str, stop: str) -> bool:
    """Return whether a stop names the error that an answer had, or says what it lacked."""
    words = change.rpartition(".")[2]
    code = words.removeprefix("all ")
    return (
        code in stop if code in ErrorCode.__members__ else words in _SAID and re.search(_SAID[words], stop) is not None
    )


def wrong(oddity: Oddity, played: Played) -> Iterator[str]:
    """Yield what is wrong."""
    yield from (f"{oddity}: {each}" for each in played.problems)
    yield from (f"{oddity}: {each}" for each in played.stops if not is_named(oddity.change, each))


@pytest.mark.parametrize(("name", "part", "of"), chosen(PARTS, "parts of the odd answers", of=123))
def test_one_odd_answer_changes_nothing(name: str, part: int, of: int) -> None:
    oddities = [Oddity(*each) for each in possible(name)[part::of]]
    if name in QUERIES:
        all_played = [play(QUERIES[name], each) for each in oddities]
    else:
        with operated() as run:
            assert not run(name, None).problems
            all_played = [run(name, each) for each in oddities]
    assert [text for each in zip(oddities, all_played, strict=True) for text in wrong(*each)] == []
    # The commands' questions may be in another order.
    assert 10 * sum(played.changed > 0 for played in all_played) >= 9 * len(oddities)


def test_decision_topic_that_one_answer_calls_leaderless_is_made() -> None:
    """Such an answer is a deleted topic's last one, or a broker's that does not create topics by itself."""
    oddities = [Oddity("Metadata", nth, "topics[0].LEADER_NOT_AVAILABLE") for nth in range(1, 6)]
    assert [text for each in oddities for text in wrong(each, play(OddQuery, each))] == []


@pytest.mark.parametrize("change", ["topics none", "topics[0].partitions[0].leader_id=99"])
def test_transaction_whose_coordinator_is_away_is_not_called_hanging(change: str) -> None:
    """Answers that say nothing of the coordinators' topic, or name a leader that is no broker, for a while."""
    with operated(is_offline=True) as run:
        judged = run("transactions", None)
        looks = [nth for api, nth in judged.seen if api == "Metadata" and change in judged.seen[api, nth]]
        said = [run("transactions", Oddity("Metadata", nth, change, lasts=True)).problems for nth in looks]
    assert said and not any("'hanging'" in text for problems in said for text in problems)
