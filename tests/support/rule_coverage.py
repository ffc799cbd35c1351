"""The rules of docs/protocol, the places that cite them, and the tests that show them.

`python -m tests.support.rule_coverage` writes docs/protocol/coverage.md. How rules are cited, and when a test counts as
showing one, is described in docs/protocol/index.md.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.remembered import remembered

ROOT: Final = Path(__file__).resolve().parents[2]
PROTOCOL: Final = ROOT / "docs" / "protocol"
COVERAGE: Final = PROTOCOL / "coverage.md"
# Pages without rules.
_NO_RULES: Final = frozenset({"index.md", "answers.md", "sink.md", "coverage.md"})
_CITING_FOLDERS: Final = ("broker_core", "spark_eos", "tests", "examples")

_SECTION: Final = re.compile(r"^#+ ([A-Z]\.\d+) (.+)$")
_NOT_TESTED: Final = re.compile(r"Not tested here: (.+)$")
_NUMBER: Final = r"[A-L]\.\d{1,2}"
# A row's id has a slash and is a citation anywhere; other ids need the word before them.
_ROW: Final = rf"{_NUMBER}(?: [A-Za-z0-9]+)?/\d+"
_BARE_ROW: Final = re.compile(rf"\b{_ROW}\b")
_RANGE: Final = re.compile(rf"\b{_ROW} to {_ROW}\b")


class Rule(NamedTuple):
    """One row of a table of rules; `not_tested` is the reason why no test can show it, if there is one."""

    id: str
    section: str
    text: str
    not_tested: str | None


class RuleBook(NamedTuple):
    """All rules by id, and the ids of sections and of the tables in them."""

    rules: dict[str, Rule]
    sections: dict[str, str]
    tables: frozenset[str]
    repeated: tuple[str, ...]

    def knows(self, cited: str) -> bool:
        """Return whether there is such a row, table or section."""
        return cited in self.rules or cited in self.sections or cited in self.tables


class Citation(NamedTuple):
    """One id in the code, with its place."""

    id: str
    path: str
    line: int


def read_rules(folder: Path = PROTOCOL) -> RuleBook:
    """Read all pages of rules."""
    rules: dict[str, Rule] = {}
    sections: dict[str, str] = {}
    repeated: list[str] = []
    for page in sorted(folder.glob("*.md")):
        if page.name in _NO_RULES:
            continue
        section, in_table = "", False
        for line in page.read_text(encoding="utf-8").splitlines():
            if heading := _SECTION.match(line):
                section = heading[1]
                if section in sections:
                    repeated.append(section)
                sections[section] = heading[2]
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
            in_table = bool(cells) and (in_table or cells[0] == "rule")
            if not in_table or cells[0] == "rule" or line.startswith("|---"):
                continue
            reason = _NOT_TESTED.search(cells[-1])
            if cells[0] in rules:
                repeated.append(cells[0])
            rules[cells[0]] = Rule(cells[0], section, " | ".join(cells[1:-1]), reason[1] if reason else None)
    tables = frozenset(rule.rpartition("/")[0] for rule in rules)
    return RuleBook(rules, sections, tables, tuple(repeated))


def cited_ids(text: str, book: RuleBook) -> list[tuple[int, str]]:
    """Return each cited id with its position in the text."""
    names = sorted((table.partition(" ")[2] for table in book.tables if " " in table), key=len, reverse=True)
    one = rf"{_NUMBER}(?: (?:{'|'.join(names)})\b)?(?:/\d+)?"
    lists = re.compile(rf"\b[Rr]ules? ({one}(?:(?:, | and | to |, and |; ){one})*)")
    found = {match.start(): match[0] for match in _BARE_ROW.finditer(text)}
    for listed in lists.finditer(text):
        for match in re.finditer(one, listed[1]):
            found.setdefault(listed.start(1) + match.start(), match[0])
    return sorted(found.items())


def citations(book: RuleBook, root: Path = ROOT) -> Iterator[Citation]:
    """Yield every citation in code and tests."""
    for folder in _CITING_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for position, cited in cited_ids(text, book):
                yield Citation(cited, str(path.relative_to(root)), text.count("\n", 0, position) + 1)


def shown_rows(text: str) -> set[str]:
    """Return the rows that a test's text cites individually; a range is only a pointer."""
    return {match[0] for match in _BARE_ROW.finditer(_RANGE.sub("", text))}


def rows_with_tests(root: Path = ROOT) -> dict[str, list[str]]:
    """Return, by row, the tests that cite it: `path::name`, the path relative to the folder of tests."""
    found: dict[str, list[str]] = {}
    tests = root / "tests"
    for path in sorted(tests.rglob("test_*.py")):
        for name, rows in _rows_of_tests(path.read_text(encoding="utf-8")):
            for row in rows:
                found.setdefault(row, []).append(f"{path.relative_to(tests).as_posix()}::{name}")
    return {row: sorted(set(names)) for row, names in found.items()}


@remembered
def _rows_of_tests(source: str) -> list[tuple[str, set[str]]]:
    """Return each test that cites rows, with the rows."""
    return [(name, rows) for name, text in _tests_in(source) if (rows := shown_rows(text))]


def _tests_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each test with the text that belongs to it: its own, and that of its parameters."""
    module = ast.parse(source)
    lines = source.splitlines()
    definitions = _definitions(module)
    for node in _functions(module):
        if node.name.startswith("test"):
            names = {
                one.id for decorator in node.decorator_list for one in ast.walk(decorator) if isinstance(one, ast.Name)
            }
            yield node.name, "\n".join([_text(lines, node), *_texts(lines, definitions, names)])
    for statement in module.body:
        # A state machine of Hypothesis becomes a test by `TestX = Machine.TestCase`.
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Attribute)
            and statement.value.attr == "TestCase"
            and isinstance(statement.value.value, ast.Name)
            and isinstance(statement.targets[0], ast.Name)
        ):
            yield statement.targets[0].id, "\n".join(_texts(lines, definitions, {statement.value.value.id}))


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(module: ast.Module) -> Iterator[_Function]:
    for node in module.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from (one for one in inside if isinstance(one, _Function))


def _definitions(module: ast.Module) -> dict[str, ast.stmt]:
    """Return what the module defines by name, tests left out."""
    found: dict[str, ast.stmt] = {}
    for node in module.body:
        if isinstance(node, _Function | ast.ClassDef) and not node.name.startswith("test"):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def _texts(lines: list[str], definitions: dict[str, ast.stmt], names: Iterable[str]) -> list[str]:
    """Return the definitions of the names, and of the functions and values that a list of parameters names."""
    texts, wanted, seen = [], sorted(names), set[str]()
    while wanted:
        name = wanted.pop()
        node = definitions.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        texts.append(_text(lines, node))
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            wanted += sorted({one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)})
    return texts


def _text(lines: list[str], node: ast.stmt) -> str:
    """Return the source of the node with its decorators and the comment right above."""
    decorators = node.decorator_list if isinstance(node, _Function | ast.ClassDef) else []
    first = min([node.lineno, *(one.lineno for one in decorators)])
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return "\n".join(lines[first - 1 : node.end_lineno])


def coverage_page(book: RuleBook, tests: dict[str, list[str]]) -> str:
    """Return the text of docs/protocol/coverage.md."""
    rules = list(book.rules.values())
    shown = [rule for rule in rules if rule.id in tests]
    exempt = [rule for rule in rules if rule.not_tested is not None]
    missing = [rule for rule in rules if rule.id not in tests and rule.not_tested is None]
    parts = [
        "# Rules and the tests that show them",
        "Written by `python -m tests.support.rule_coverage`; what counts is described in [index.md](index.md). "
        "Paths are relative to `tests/`.",
        f"{len(rules)} rules: {len(shown)} with tests, {len(missing)} without, {len(exempt)} not tested here.",
        "## Without a test",
        _table(("rule", "what it says"), [(rule.id, rule.text) for rule in missing]) if missing else "None.",
        "## Not tested here",
        _table(("rule", "reason"), [(rule.id, rule.not_tested or "") for rule in exempt]),
    ]
    for section, title in book.sections.items():
        rows = [
            (rule.id, "<br>".join(f"`{test}`" for test in tests[rule.id])) for rule in shown if rule.section == section
        ]
        if rows:
            parts += [f"## {section} {title}", _table(("rule", "tests"), rows)]
    return "\n\n".join(parts) + "\n"


def _table(heads: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [" | ".join(heads), "---|---", *(" | ".join(row) for row in rows)]
    return "\n".join(f"|{line}|" if line.startswith("---") else f"| {line} |" for line in lines)


def main() -> None:
    """Write the page."""
    COVERAGE.write_text(coverage_page(read_rules(), rows_with_tests()), encoding="utf-8")


if __name__ == "__main__":
    main()
