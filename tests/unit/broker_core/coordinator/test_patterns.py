"""Patterns match as in Apache Kafka, and in bounded time."""

import pytest

from broker_core.coordinator.patterns import NamePattern
from broker_core.errors import ErrorCode, KafkaError
from tests.support.re2_examples import MATCHES, REFUSED, TAKEN

# RE2 and RE2/J, which Kafka uses, differ in these: patterns that only RE2 accepts, and one that only RE2/J accepts.
ONLY_RE2 = (r"\C", "(?<x>a)(?<x>b)")
ONLY_RE2J = (r"\é",)
TOO_LARGE = ("((a{100}){100}){10}", "(((((){1000}){1000}){1000}){1000})", "(" * 100_000)


@pytest.mark.parametrize("pattern", [*TAKEN, *ONLY_RE2])
def test_pattern_accepted_by_kafka_is_accepted(pattern: str) -> None:
    NamePattern(pattern)


@pytest.mark.parametrize("pattern", [*REFUSED, *ONLY_RE2J])
def test_pattern_refused_by_kafka_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        NamePattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message


@pytest.mark.parametrize("pattern", TOO_LARGE, ids=lambda pattern: pattern[:20])
def test_oversized_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        NamePattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(("pattern", "match", "no_match"), MATCHES)
def test_pattern_must_match_the_whole_text(pattern: str, match: list[str], no_match: list[str]) -> None:
    compiled = NamePattern(pattern)
    assert [text for text in match if not compiled.matches(text)] == []
    assert [text for text in no_match if compiled.matches(text)] == []


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*a){20}b", "a*a*a*a*a*a*a*a*b", "((a?){30}a{30})*b"]
)
def test_catastrophic_backtracking_pattern_finishes_quickly(pattern: str) -> None:
    # Python's `re` would need exponential time for these.
    assert not NamePattern(pattern).matches("a" * 5_000)
