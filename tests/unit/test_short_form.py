"""The short form of searches: a part that the sources choose, and the sentence about the rest."""

import pytest

from tests.support import short_form
from tests.support.examples import profile_of


def test_every_case_runs_unless_the_short_form_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEARCHES", raising=False)
    assert short_form.chosen(range(7), "worlds", of=3) == list(range(7))


def test_sources_choose_a_part_and_the_parts_are_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCHES", "short")
    found, notes = list[int](), list[str]()
    for digest in range(3):
        found += short_form.chosen(range(7), f"worlds of {digest}", of=3, digest=digest, notes=notes)
    assert sorted(found) == list(range(7))
    assert "worlds of 1: 2 of 7, chosen by the sources; `make test SEARCHES=whole` runs all" in notes


def test_a_source_that_changes_changes_the_digest() -> None:
    assert short_form.source_digest("spark_eos/codec") == short_form.source_digest("spark_eos/codec")
    assert short_form.source_digest("spark_eos/codec") != short_form.source_digest("spark_eos/client")


def test_property_tests_try_fewer_examples_in_the_short_form_unless_a_profile_is_named() -> None:
    assert profile_of({}) == profile_of({"SEARCHES": "whole"}) == "repeat"
    assert profile_of({"SEARCHES": "short"}) == "short"
    assert profile_of({"SEARCHES": "short", "HYPOTHESIS_PROFILE": "brief"}) == "brief"
