"""The texts of the errors that users see, read from the source code.

A message is the argument of an exception: literals as they are written, everything else as `…`.
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker_core.errors import ConfigError
from spark_eos import errors
from spark_eos.admin.decision_operator import RefusedError

ROOT: Final = Path(__file__).resolve().parents[2]
# Written by `python -m tests.support.reference`, and read by `broker_core.errors_page`.
ANCHORS: Final = "error_anchors.json"
PACKAGES: Final = ("broker_core", "spark_eos")
_GAP: Final = "…"
# The `s` of a noun after a number, which is missing after 1; and one of two texts.
_PLURAL: Final = "\0"
_EITHER: Final = re.compile("\1([^\1\2]*)\2")
# Classes whose section has another name.
_SECTIONS: Final = {"RefusedError": "refusals-of-eos-kafka"}
# The classes that have a section on the page.
LISTED: Final[Mapping[str, Any]] = {
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
    # What happened, with `…` for an ending that varies too.
    pattern: str


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
    """Map each message to its anchor: its first ten words, or if others have them all words, or the class too."""
    ways = (
        lambda each: "-".join(_words(each.happened)[:10]),
        lambda each: "-".join(_words(f"{each.happened} {_advice(each)}")),
        lambda each: "-".join([each.family.lower(), *_words(f"{each.happened} {_advice(each)}")]),
    )
    anchors: dict[ErrorMessage, str] = {}
    left = set(error_messages())
    for way in ways:
        taken = Counter(map(way, left))
        anchors |= {each: way(each) for each in left if taken[way(each)] == 1}
        left -= anchors.keys()
    assert not left, f"messages without an anchor of their own: {left}"
    assert len(set(anchors.values())) == len(anchors), "two messages have one anchor"
    return anchors


def anchor_tables() -> Mapping[str, str]:
    """Write the table of anchors of each package, by its name: for each class its section and its messages."""
    written = {}
    for package in PACKAGES:
        classes = []
        for name in sorted(name for name, kind in LISTED.items() if kind.__module__.startswith(package)):
            found = {each: anchor for each, anchor in error_anchors().items() if each.family == name}
            rows = sorted((anchor, each.pattern, _words_beside(each)) for each, anchor in found.items())
            lines = [
                json.dumps(row, ensure_ascii=False) for row in ((_SECTIONS.get(name, name.lower()), "", ""), *rows)
            ]
            classes.append(f'"{name}": [\n' + ",\n".join(lines) + "\n]")
        written[package] = "{\n" + ",\n".join(classes) + "\n}\n"
    return written


def _words_beside(each: ErrorMessage) -> str:
    """Return what tells a message from others with the same pattern."""
    return _advice(each) if each.happened == each.pattern else f"{each.happened} {_advice(each)}"


def _advice(each: ErrorMessage) -> str:
    return f"{each.checked} {each.remedy}".strip()


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _messages_of(path: Path, tree: ast.Module) -> Iterator[ErrorMessage]:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if "pytest_plugin" in name:
        return
    known = vars(import_module(name))
    families = _families(known)
    for node, local in _calls(tree, known):
        family = families.get(node.func.id) if isinstance(node.func, ast.Name) and node.args else None
        if family is None:
            continue
        happened = _text(node.args[0], local)
        by_name = {each.arg: _shown(_text(each.value, local)) for each in node.keywords if each.arg}
        advice = (_said(by_name.get("checked", "")), _said(by_name.get("remedy", "")))
        if re.search(r"\w{3}", happened) or (re.search(r"\w", happened) and any(advice)):
            yield ErrorMessage(family, _shown(happened), *advice, pattern=_pattern(happened))


def _calls(tree: ast.AST, known: Mapping[str, object]) -> Iterator[tuple[ast.Call, Mapping[str, object]]]:
    """Yield each call with the names that it knows: of its module, and of texts in its function."""
    for node in ast.iter_child_nodes(tree):
        local = known
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named: dict[str, list[str]] = {}
            for each in ast.walk(node):
                if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                    named.setdefault(each.targets[0].id, []).append(_text(each.value, known))
            local = {**known, **{name: texts[0] if len(texts) == 1 else _GAP for name, texts in named.items()}}
        elif isinstance(node, ast.Call):
            yield node, known
        yield from _calls(node, local)


def _families(known: Mapping[str, object]) -> Mapping[str, str]:
    """Map the exception classes that a module knows to the public class that users see."""
    found: dict[str, str] = {}
    for name, value in known.items():
        if isinstance(value, type) and issubclass(value, Exception):
            public = next((base.__name__ for base in value.__mro__ if LISTED.get(base.__name__) is base), None)
            if public is not None:
                found[name] = public
    return found


def _shown(text: str) -> str:
    return re.sub("[\1\2]", "", text.replace(_PLURAL, "s"))


def _pattern(text: str) -> str:
    while _EITHER.search(text):
        text = _EITHER.sub(_GAP, text)
    return _merged(text.replace(_PLURAL, _GAP))


def _merged(text: str) -> str:
    return re.sub(r"…+", _GAP, text)


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
            text = f"{_GAP} {noun!s}{_PLURAL}"
        case ast.IfExp(body=body, orelse=orelse):
            either = [_text(body, known), _text(orelse, known)]
            text = "\1" + " / ".join(each for each in either if each) + "\2"
        case _:
            text = _GAP
    return _merged(text)
