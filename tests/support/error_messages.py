"""The texts of the errors that users see, read from the source code.

A message is the argument of an exception: literals as they are written, everything else as `…`.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.errors import ConfigError
from spark_eos import errors
from spark_eos.admin.decision_operator import RefusedError

ROOT: Final = Path(__file__).resolve().parents[2]
_GAP: Final = "…"
_LISTED: Final = {
    each.__name__: each
    for each in (
        *(value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)),
        RefusedError,
        ConfigError,
    )
}


class ErrorMessage(NamedTuple):
    """One message: the public class of its exception, and its sentences."""

    family: str
    happened: str
    checked: str
    remedy: str


@cache
def error_messages() -> tuple[ErrorMessage, ...]:
    """Return every message in both packages that has words of its own."""
    found = []
    for path in [*sorted((ROOT / "spark_eos").rglob("*.py")), *sorted((ROOT / "broker_core").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        if "Error(" in text:
            found += list(_messages_of(path, ast.parse(text)))
    return tuple(found)


@cache
def error_anchors() -> Mapping[ErrorMessage, str]:
    """Map each message to its anchor: its first ten words, or if others have the same all words, with its advice."""
    by_words: dict[str, set[ErrorMessage]] = {}
    for each in error_messages():
        by_words.setdefault("-".join(_words(each.happened)[:10]), set()).add(each)
    anchors = {
        each: words if len(same) == 1 else "-".join(_words(" ".join(each[1:])))
        for words, same in by_words.items()
        for each in same
    }
    assert len(set(anchors.values())) == len(anchors), "two messages have one anchor"
    return anchors


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _messages_of(path: Path, tree: ast.Module) -> Iterator[ErrorMessage]:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if name.endswith("__main__") or "pytest_plugin" in name:
        return
    known = vars(import_module(name))
    families = _families(known)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
            continue
        family = families.get(node.func.id)
        if family is None:
            continue
        happened = _text(node.args[0], known)
        if not re.search(r"\w{3}", happened):
            continue
        by_name = {each.arg: _text(each.value, known) for each in node.keywords if each.arg}
        yield ErrorMessage(family, happened, _said(by_name.get("checked", "")), _said(by_name.get("remedy", "")))


def _families(known: Mapping[str, object]) -> Mapping[str, str]:
    """Map the exception classes that a module knows to the public class that users see."""
    found: dict[str, str] = {}
    for name, value in known.items():
        if isinstance(value, type) and issubclass(value, Exception):
            public = next((base.__name__ for base in value.__mro__ if _LISTED.get(base.__name__) is base), None)
            if public is not None:
                found[name] = public
    return found


def _said(text: str) -> str:
    """Drop sentences without words of their own, and a gap before another one."""
    return text.removeprefix(f"{_GAP}. ") if re.search(r"\w{3}", text) else ""


def _text(node: ast.expr, known: Mapping[str, object]) -> str:
    """Return the text of an expression, with the named texts and numbers of its module filled in."""
    match node:
        case ast.Constant(value=str(text)):
            pass
        case ast.JoinedStr(values=values):
            text = "".join(_text(each, known) for each in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            text = _text(left, known) + _text(right, known)
        case ast.FormattedValue(value=ast.Name(id=name), format_spec=None) | ast.Name(id=name):
            value = known.get(name)
            text = str(value) if isinstance(value, str | int) else _GAP
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="format")):
            text = re.sub(r"\{\w*\}", _GAP, str(known.get(name, _GAP)))
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id="counted"), args=[_, ast.Constant(value=noun)])):
            text = f"{_GAP} {noun!s}s"
        case ast.IfExp(body=body, orelse=orelse):
            either = [_text(body, known), _text(orelse, known)]
            text = " / ".join(each for each in either if each)
        case _:
            text = _GAP
    return re.sub(r"…+", _GAP, text)
