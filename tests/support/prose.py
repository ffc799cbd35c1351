"""Pronoun chains in prose, counted: `python -m tests.support.prose` lists them and compares each place with its limit.

A chain such as "those that" or "the one which" makes a reader look for the noun. The cure is to name the noun again.
`make lint` runs this; a limit follows its count down, and never goes up.
"""

import ast
import importlib
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.remembered import remembered

ROOT: Final = Path(__file__).parents[2]
# Chains for each 1,000 words of docstrings, comments and messages, or of pages. Kafka, raft and h11 have 0 to 0.3.
LIMITS: Final = {
    "broker_core": 0.4,
    "spark_eos": 0.3,
    "docs": 0.5,
}
# How far a place may be below its limit before the limit has to follow.
SLACK: Final = 0.2
CHAIN: Final = re.compile(
    r"\b(?:(?:that|those) (?:of|that|which|whose)|the ones? (?:that|which|whose))\b", re.IGNORECASE
)
_WORD: Final = re.compile(r"\b[a-z][a-z'-]*\b", re.IGNORECASE)
# Code in prose, and placeholders: their names are identifiers.
CODE: Final = re.compile(r"`[^`]*`|\{[^{}]*\}|\w*_\w*|\w+\.\w[\w.]*")
_BLOCK: Final = re.compile(r"^(```|~~~).*?^\1|<!--.*?-->", re.MULTILINE | re.DOTALL)
# Written from the sources, whose prose counts there.
_GENERATED: Final = ("docs/reference/", "docs/protocol/coverage.md")


class Chain(NamedTuple):
    """A pronoun chain and where it stands."""

    path: str
    line: int
    text: str


@remembered
def prose_of_source(source: str) -> list[tuple[int, str]]:
    """Return comment blocks and string literals of more than one word, each with its first line."""
    return list(_prose(source))


def _prose(source: str) -> Iterator[tuple[int, str]]:
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != block[-1][0] + 1:
                yield block[0][0], "\n".join(text for _, text in block)
                block = []
            block.append((token.start[0], token.string.lstrip("# ")))
    if block:
        yield block[0][0], "\n".join(text for _, text in block)
    within: set[ast.AST] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            # Its constants are parts of one sentence.
            within |= {each for each in node.values if isinstance(each, ast.Constant)}
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
            yield node.lineno, text
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            if node not in within:
                yield node.lineno, node.value


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield a page of Markdown without its blocks of code and its comments."""
    yield 1, _BLOCK.sub(blank, text)


def blank(match: re.Match[str]) -> str:
    """Return what stands for a text that is no prose: the same lines."""
    return "\n" * match[0].count("\n") + " "


def chains_of(path: str, prose: Iterable[tuple[int, str]]) -> tuple[list[Chain], int]:
    """Return the chains in prose, and the number of its words."""
    found, words = [], 0
    for line, text in prose:
        plain = CODE.sub(blank, text)
        words += len(_WORD.findall(plain))
        flat = re.sub(r"\s", " ", plain)
        for match in CHAIN.finditer(flat):
            found.append(Chain(path, line + plain.count("\n", 0, match.start()), match[0].lower()))
    return found, words


@remembered
def _measured(path: str, text: str) -> tuple[list[Chain], int]:
    return chains_of(path, prose_of_page(text) if path.endswith(".md") else prose_of_source(text))


def measure(place: str, root: Path = ROOT) -> tuple[list[Chain], int]:
    """Return the chains of a place, and the number of its words."""
    found, words = [], 0
    for path in sorted((root / place).rglob("*.md" if place == "docs" else "*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith(_GENERATED):
            continue
        text = path.read_text(encoding="utf-8")
        chains, count = _measured(name, text)
        found += chains
        words += count
    return found, words


def verdict(place: str, chains: int, words: int, limit: float) -> str:
    """Return what is wrong with a place, or an empty text.

    >>> verdict("docs", 30, 10_000, 2.0)
    'docs: 3.00 pronoun chains for 1,000 words, and 2.00 are allowed: name the noun again'
    """
    rate = 1_000 * chains / words
    if rate > limit:
        return f"{place}: {rate:.2f} pronoun chains for 1,000 words, and {limit:.2f} are allowed: name the noun again"
    if rate < limit - SLACK:
        return f"{place}: {rate:.2f} pronoun chains for 1,000 words: lower its limit in {Path(__file__).name}"
    return ""


def main(arguments: list[str]) -> int:
    """Print what is wrong; with `--list`, every chain and the rates."""
    wrong = []
    for place, limit in LIMITS.items():
        chains, words = measure(place)
        if "--list" in arguments:
            print("\n".join(f"{each.path}:{each.line}: {each.text}" for each in chains))
            print(f"{place}: {len(chains)} in {words} words, {1_000 * len(chains) / words:.2f} for 1,000")
        wrong.append(verdict(place, len(chains), words, limit))
    print("\n".join(filter(None, wrong)), end="\n" if any(wrong) else "")
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    # By its name, so that it keeps what it has found between two runs.
    sys.exit(importlib.import_module("tests.support.prose").main(sys.argv[1:]))
