"""The protocol rules in docs/protocol: ids are unique, cited rules exist, and the coverage page is up to date."""

import re
from pathlib import Path

import pytest

from tests.support.rule_coverage import (
    COVERAGE,
    PROTOCOL,
    ROOT,
    RuleBook,
    citations,
    cited_ids,
    coverage_page,
    read_rules,
    rows_with_tests,
    shown_rows,
)


@pytest.fixture(scope="module")
def book() -> RuleBook:
    return read_rules()


def test_every_id_is_unique_and_belongs_to_its_section(book: RuleBook):
    assert not book.repeated
    assert len(book.rules) > 300
    misplaced = [rule.id for rule in book.rules.values() if re.split("[ /]", rule.id)[0] != rule.section]
    assert not misplaced


def test_rows_are_numbered_without_gaps(book: RuleBook):
    for table in book.tables:
        numbers = [int(rule.rpartition("/")[2]) for rule in book.rules if rule.rpartition("/")[0] == table]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), table
        assert numbers[0] in (0, 1), table


def test_every_rule_has_a_requirement_and_a_source(book: RuleBook):
    for page in sorted(PROTOCOL.glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if cells[0] in book.rules and page != COVERAGE:
                assert all(cells), f"{page.name}: {cells[0]} has an empty cell"
    assert all(rule.text for rule in book.rules.values())


def test_every_cited_rule_exists(book: RuleBook):
    found = list(citations(book))
    assert len(found) > 250
    assert not [f"{one.path}:{one.line}: {one.id}" for one in found if not book.knows(one.id)]


def test_pages_cite_existing_rules(book: RuleBook):
    for page in sorted(PROTOCOL.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert not [cited for _, cited in cited_ids(text, book) if not book.knows(cited)], page.name


def test_pages_contain_no_bare_error_numbers():
    """Pages name the codes; the pattern excludes numbers that a rule may use as plain numbers."""
    numbers = re.compile(r"(?:error|code|answers?|answered) (?:with )?`?-?\d+\b")
    for page in sorted(PROTOCOL.glob("*.md")):
        if page.name != "answers.md":
            assert not numbers.findall(page.read_text(encoding="utf-8")), page.name


def test_coverage_page_is_current(book: RuleBook):
    """`python -m tests.support.rule_coverage` writes the page."""
    assert COVERAGE.read_text(encoding="utf-8") == coverage_page(book, rows_with_tests())


def test_no_other_document_is_cited():
    old = re.compile(r"\b[Ff]acts,? (?:[A-M]\b|0\.\d)|§\d")
    for folder in ("broker_core", "spark_eos", "tests", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path != Path(__file__):
                assert not old.search(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(rule A.5/16)", ["A.5/16"]),
        ("rules C.1/13 to C.1/27 say", ["C.1/13", "C.1/27"]),
        ("the rules A.9, A.10 and A.13 sender", ["A.9", "A.10", "A.13 sender"]),
        ('Row("A.8 V2/8 other", ...)', ["A.8 V2/8"]),
        ("RFC 7515, appendix A.5", []),
        ("rule Z.9/1", []),
    ],
)
def test_citations_are_found(book: RuleBook, text: str, expected: list[str]):
    assert [cited for _, cited in cited_ids(text, book)] == expected


def test_range_citation_covers_no_rule():
    assert shown_rows("Rules C.5/1 to C.5/9, and rule C.5/3.") == {"C.5/3"}
