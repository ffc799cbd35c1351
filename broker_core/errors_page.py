"""The entry of an error on the page of errors, whose address Python prints below the message.

`error_anchors.json` of each package lists its messages: an anchor, the message with `…` for each part that varies, and
its advice, because several messages begin alike. `python -m tests.support.reference` writes it from the code. It is
read when an error is printed, not when one is raised.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

_PAGE: Final = "docs/reference/errors.md"
_CODES: Final = "error-codes-of-kafka"


class _Entry(NamedTuple):
    anchor: str
    message: str
    advice: str


class OnErrorsPage(Exception):
    """An error whose traceback ends with the address of its entry, as a note (PEP 678)."""

    # A type checker would take every attribute for one that exists.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> list[str]:
            """Make the note when it is first asked for."""
            unknown = AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            if name != "__notes__":
                raise unknown
            try:
                anchor = anchor_of(self)
            except OSError:
                # A program that was bundled without the table: the message is printed alone.
                raise unknown from None
            # Stored, so that `add_note` adds to it.
            self.__notes__ = [f"See {_home()}{_PAGE}#{anchor}"]
            return self.__notes__


def with_address(error: BaseException, text: str = "") -> str:
    """Return the text of an error, or another one about it, with the notes below it."""
    return "\n".join((text or str(error), *getattr(error, "__notes__", ())))


def anchor_of(error: OnErrorsPage) -> str:
    """Return the anchor of an error's message, or without an entry of its class, or of Kafka's codes if it has one."""
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ("broker_core", "spark_eos") and (entries := _entries(package).get(kind.__name__)):
            happened = getattr(error, "happened", str(error))
            words = _words(str(error))
            found = [each for each in entries if _matches(each.message, happened)]
            if found:
                return max(found, key=lambda each: _nearness(each, words)).anchor
            return entries[0].anchor if getattr(error, "error_code", None) is None else _CODES
    return ""


def _matches(message: str, text: str) -> bool:
    first, *rest = message.split("…")
    if not rest:
        return text == first
    position, end = len(first), len(text) - len(rest[-1])
    for part in rest[:-1]:
        place = text.find(part, position, end)
        if place < 0:
            return False
        position = place + len(part)
    return text.startswith(first) and position <= end and text.endswith(rest[-1])


def _nearness(entry: _Entry, words: set[str]) -> tuple[int, int, int]:
    """Return how many words of an entry a message has, less half of those it lacks; then the few it lacks decide."""
    own = _words(f"{entry.message} {entry.advice}")
    return 2 * len(own & words) - len(own - words), -len(own - words), len(entry.message)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@cache
def _entries(package: str) -> dict[str, Sequence[_Entry]]:
    """Return the entries of each class; the first one is the class itself."""
    # Each process that loads the package pays for an import above, and few print an error.
    from importlib.resources import files

    rows = json.loads(files(package).joinpath("error_anchors.json").read_text("utf-8"))
    return {name: [_Entry(*each) for each in entries] for name, entries in rows.items()}


@cache
def _home() -> str:
    """Return the address of the repository's files, if the package was built with one."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        home = str(metadata("eos-kafka").json.get("home_page", ""))
    except PackageNotFoundError:
        # Modules without metadata, as in an archive of a cluster.
        return ""
    return f"{home.rstrip('/')}/" if home else ""
