"""The Markdown pages of the documentation: their code blocks, headings, links and tables."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# What a page's blocks need: nothing, an embedded broker, one with a control port, or the broker and a Spark session.
NEEDS = ("", "broker", "control", "spark")

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<ticks>`{3,})\s*(?P<language>[\w+-]*)(?P<rest>[^`]*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_NEEDS = re.compile(r"^<!-- blocks: (\w+)(?:; topics: ([\w., -]+))? -->$")
_NOT_RUN = re.compile(r"^\s*<!-- not run: ?(.*?) ?-->$")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_EXPLICIT_ID = re.compile(r"\s*\{[^}]*#([\w.-]+)[^}]*\}$")
_HTML_ID = re.compile(r"<\w+[^>]*\bid=\"([^\"]+)\"")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_LINK_DEFINITION = re.compile(r"^\s*\[[^\]^]+\]:\s+(\S+)")
_HTML_LINK = re.compile(r"<\w+[^>]*\b(?:href|src)=\"([^\"]+)\"")
_GENERATED = re.compile(r"^\s*<!-- (generated: |end of )([\w -]+?) -->$")


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    language: str
    # The name of the file that the block shows, or "".
    title: str
    code: str
    # The line of the page on which the code starts, counted from 1.
    line: int
    # Why the block does not run; None if it runs.
    not_run: str | None


@dataclass(frozen=True)
class Page:
    """One page, named by its path below the root of the repository."""

    name: str
    text: str

    @property
    def needs(self) -> str:
        """Return what the page's blocks need, from the comment within its first five lines."""
        return self._needs[1] if self._needs else ""

    @property
    def topics(self) -> dict[str, int]:
        """Return the topics that the broker has from the start, each with two partitions."""
        return dict.fromkeys(re.split(r",\s*", self._needs[2]), 2) if self._needs and self._needs[2] else {}

    @cached_property
    def _needs(self) -> re.Match[str] | None:
        found = (_NEEDS.match(line) for line in self.text.splitlines()[:5])
        return next(filter(None, found), None)

    @cached_property
    def blocks(self) -> list[Block]:
        """Return the fenced blocks in their order."""
        blocks: list[Block] = []
        lines = self.text.splitlines()
        number = 0
        while number < len(lines):
            fence = _FENCE.match(lines[number])
            number += 1
            if fence is None:
                continue
            first = number
            while number < len(lines) and lines[number].strip() != fence["ticks"]:
                number += 1
            indent = len(fence["indent"])
            code = "".join(f"{line[indent:]}\n" for line in lines[first:number])
            number += 1
            title = _TITLE.search(fence["rest"])
            above = next((line for line in reversed(lines[: first - 1]) if line.strip()), "")
            reason = _NOT_RUN.match(above)
            blocks.append(
                Block(fence["language"], title[1] if title else "", code, first + 1, reason[1] if reason else None)
            )
        return blocks

    @cached_property
    def prose(self) -> list[str]:
        """Return the page's lines with code blocks, comments and the contents of code spans blanked out."""
        lines = self.text.splitlines()
        for block in self.blocks:
            length = block.code.count("\n")
            lines[block.line - 2 : block.line + length] = [""] * (length + 2)
        text = "\n".join(lines)
        text = re.sub(r"<!--.*?-->", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.DOTALL)
        return re.sub(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", lambda found: "`" * len(found[0]), text).splitlines()

    @cached_property
    def headings(self) -> list[tuple[int, str]]:
        """Return level and text of each heading."""
        lines = self.text.splitlines()
        found = [(_HEADING.match(blanked), lines[number]) for number, blanked in enumerate(self.prose)]
        return [(len(match[1]), line.lstrip("#").strip()) for match, line in found if match]

    @cached_property
    def anchors(self) -> set[str]:
        """Return the names that links may have after `#`."""
        slug = _github_slug if self.name == "README.md" else _site_slug
        separator = "-" if self.name == "README.md" else "_"
        anchors: set[str] = set(_HTML_ID.findall("\n".join(self.prose)))
        for _, heading in self.headings:
            if explicit := _EXPLICIT_ID.search(heading):
                anchors.add(explicit[1])
                continue
            name = base = slug(_plain(heading))
            number = 0
            while name in anchors:
                number += 1
                name = f"{base}{separator}{number}"
            anchors.add(name)
        return anchors

    def links(self) -> Iterator[tuple[int, str]]:
        """Yield line and target of each link and image."""
        for number, line in enumerate(self.prose, 1):
            for target in (*_LINK.findall(line), *_LINK_DEFINITION.findall(line), *_HTML_LINK.findall(line)):
                yield number, target

    def cells(self) -> Iterator[tuple[int, str]]:
        """Yield line and visible text of each cell of the tables that are written by hand."""
        generated = False
        lines = self.text.splitlines()
        for number, blanked in enumerate(self.prose, 1):
            line = lines[number - 1]
            if mark := _GENERATED.match(line):
                generated = mark[1] == "generated: "
            if not generated and blanked.lstrip().startswith("|"):
                for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                    yield number, _plain(cell.strip())


def pages() -> list[Page]:
    """Read the README and every page below docs/."""
    paths = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [Page(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def _plain(text: str) -> str:
    """Return the visible text of a line of Markdown."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[`*]", "", text)


def _site_slug(text: str) -> str:
    """Return the anchor of a heading as Python-Markdown's table of contents makes it."""
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def _github_slug(text: str) -> str:
    """Return the anchor of a heading as GitHub makes it."""
    return re.sub(r"[^\w\s-]", "", text).strip().lower().replace(" ", "-")
