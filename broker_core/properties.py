"""The `.properties` files of Java, in which Kafka's programs keep their settings."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_PAIR: Final = re.compile(r"((?:\\.|[^\\=:\s])+)\s*([=:\s])\s*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One setting and the number of the line it begins on; `separator` is empty where there is only a name."""

    line: int
    name: str
    separator: str
    value: str


def read_properties(text: str) -> Iterator[Property]:
    r"""Read settings as Java does: with comments (`#`, `!`), lines continued by a backslash, and escapes.

    >>> list(read_properties("# comment\nsecurity.protocol = SASL_SSL\n"))
    [Property(line=2, name='security.protocol', separator='=', value='SASL_SSL')]
    """
    # Some editors begin a file with a mark of its encoding, which would be a part of the first name.
    for number, line in _logical_lines(text.removeprefix("\ufeff")):
        pair = _PAIR.fullmatch(line)
        name, separator, value = pair.groups() if pair else (line, "", "")
        yield Property(number, _unescape(name), separator, _unescape(value))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    first, gathered = 0, ""
    is_continued = False
    for number, natural in enumerate(text.splitlines(), 1):
        line = natural.lstrip()
        if not is_continued:
            if not line or line[0] in "#!":
                continue
            first, gathered = number, ""
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        gathered += line[:-1] if is_continued else line
        if not is_continued:
            yield first, gathered
    if is_continued:
        yield first, gathered


def _unescape(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) == 5 else _ESCAPED.get(found[1], found[1]), text
    )
