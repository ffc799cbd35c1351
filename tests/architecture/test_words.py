"""The words that this project does not use in prose, and the search for them in messages, docstrings and comments.

A word on the list is usually part of a sentence that is better rewritten in plain terms: subject first, active voice,
the field's own words.
"""

import re
from pathlib import Path

import pytest

from tests.support.prose import CODE, blank, prose_of_source

ROOT = Path(__file__).parents[2]
PLACES = ("broker_core", "spark_eos", "pyspark_eos_kafka.py", "examples", "tests")

WORDS = (
    # Personification, and people who are not there.
    "anybody", "nobody", "somebody", "whoever", "told", "hands off", "is deaf", "speaks of", "says so", "left in peace",
    # Old or literary English.
    "afresh", "anew", "in vain", "mend", "mends", "mended", "for ever", "lest", "spelt", "strike", "strikes", "struck",
    "unfold", "unfolds", "unfolded", "as it pleases",
    # House metaphors.
    "house", "floor 0", "floor 1", "room", "storey",
    # Phrasal verbs that have a plain counterpart: delay, block.
    "hold up", "holds up", "held up", "holding up", "hold readers", "holds readers", "held back", "holds back",
    # Riddles, and the passive voice without an agent.
    "is asked", "is no answer", "with an account",
)  # fmt: skip
# Uses of these words in another sense, as they stand in the source.
ALLOWED: tuple[str, ...] = ()

_WORD = re.compile(
    r"\b(?:" + "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in WORDS) + r")\b", re.IGNORECASE
)
# One of them is in each file with such a word, also where a phrase continues in the next literal or line of a comment.
# Only these files are parsed, which takes most of the time.
_HINTS = [re.compile(word.replace(" ", r"\W+(?:[a-z]{1,2}[\"'])?")) for word in WORDS]
_ALLOWED = re.compile("|".join(map(re.escape, ALLOWED)) or r"(?!)")


def found_in(source: str) -> list[tuple[int, str]]:
    """Return the line and the word for each word of the list in the prose of a source file."""
    lower = source.lower()
    if not any(hint.search(lower) for hint in _HINTS):
        return []
    return [
        (line + text.count("\n", 0, match.start()), " ".join(match[0].lower().split()))
        for line, prose in prose_of_source(source)
        for text in [CODE.sub(blank, _ALLOWED.sub(blank, prose))]
        for match in _WORD.finditer(text)
    ]


def _files(place: str) -> list[Path]:
    path = ROOT / place
    # The list itself contains every word.
    return sorted({*path.rglob("*.py")} - {Path(__file__)}) if path.is_dir() else [path]


@pytest.mark.parametrize("place", PLACES)
def test_prose_contains_no_forbidden_words(place: str) -> None:
    files = _files(place)
    assert files
    found = {
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in files
        for line, word in found_in(path.read_text(encoding="utf-8"))
    }
    assert sorted(found) == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('"""Do it\n\nin\nvain."""', [(3, "in vain")]),
        ("x = 1  # nobody knows", [(1, "nobody")]),
        ("# It waits in\n# vain.\nx = 1", [(1, "in vain")]),
        ('raise ValueError("Nobody " f"answered {count} times")', [(1, "nobody")]),
        ('say("held back " "by " f"a lock, for " f"ever")', [(1, "held back"), (1, "for ever")]),
        ('say("Readers are held\\nback by\\nnobody.")', [(1, "held back"), (3, "nobody")]),
        ('say("the house", "amend it")', [(1, "house")]),
        ("nobody = told = 1", []),
        ('"""Call `mend` with untold, or with told_at_ms or a.told."""', []),
        ('f"{told} and {nobody} were"', []),
        ('KEY = "room"', []),
    ],
)
def test_words_are_found_in_prose_only(source: str, words: list[tuple[int, str]]) -> None:
    assert found_in(source) == words
