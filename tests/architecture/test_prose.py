"""The lint of prose, and the check of commit messages."""

import pytest

from tests.support.commit_subject import problems_of
from tests.support.prose import CHAIN, LIMITS, chains_of, prose_of_page, prose_of_source, verdict


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""The logs, and those that it opens."""', [(1, "those that")]),
        (
            "x = 1  # the state is that of\n# the log, and the one that\n# follows",
            [(1, "that of"), (2, "the one that")],
        ),
        ('raise ValueError("Those " f"whose {name} differs")', [(1, "those whose")]),
        ('"""The state so that of `those that` only code is left: those_that."""', [(1, "that of")]),
        ("those = that\nthat.of", []),
    ],
)
def test_chains_are_found_in_the_prose_of_sources(source: str, found: list[tuple[int, str]]) -> None:
    chains, words = chains_of("a.py", prose_of_source(source))
    assert [(each.line, each.text) for each in chains] == found
    assert words >= 2 * len(found)


def test_code_and_comments_of_a_page_are_no_prose() -> None:
    page = "One\n<!-- those that -->\n```text\nthose that\n```\nA record, and those\nthat follow.\n"
    chains, words = chains_of("a.md", prose_of_page(page))
    assert [(each.line, each.text) for each in chains] == [(6, "those that")]
    assert words == 7


def test_limit_follows_the_count_down_and_never_up() -> None:
    assert LIMITS.keys() == {"broker_core", "spark_eos", "docs"}
    assert verdict("docs", 20, 10_000, 2.0) == ""
    assert "name the noun again" in verdict("docs", 21, 10_000, 2.0)
    assert "lower its limit" in verdict("docs", 17, 10_000, 2.0)
    assert CHAIN.search("the log that follows") is None


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("broker_core: derive checks from declarations", ""),
        ("sink, source: judge refusals by their kind\n\nBecause they differ.\n", ""),
        ("docs: move the tables (mechanical)", ""),
        ("client: process answers as they come", ""),
        ('Revert "sink: end what is open when a driver ends, in every case that is known"', ""),
        ("Add a table", "package: imperative"),
        ("docs: which calls of librdkafka block", "not with 'which'"),
        ("tests: one pause after a decision", "not with 'one'"),
        ("sink: adds a check", "not with 'adds'"),
        ("sink: fixed a check", "not with 'fixed'"),
        ("sink: add a check.", "full stop"),
        ("spark_eos: " + "x" * 50, "61 characters"),
        ("docs: add a table\nBecause.", "second line"),
        ("", "package: imperative"),
    ],
)
def test_commit_message_names_an_act(message: str, problem: str) -> None:
    found = "; ".join(problems_of(message))
    assert problem in found
    assert bool(problem) == bool(found)
