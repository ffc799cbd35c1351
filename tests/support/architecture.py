"""Read from the code which room imports what, and name everything that breaks the house's rules.

Each check takes modules and tables and returns complaints, one sentence each: an empty list means all is well.
"""

import ast
import builtins
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# The guide is 400.
MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 70
VAGUE_NAMES = frozenset({"common", "helper", "helpers", "misc", "tools", "util", "utils"})
LABEL_LINES = ("Owns:", "Asks:", "Never:")

Table = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Module:
    """Hold one source file: its dotted name, whether it is a package's `__init__`, its text."""

    name: str
    is_package: bool
    source: str

    @property
    def tree(self) -> ast.Module:
        """Return the parsed source."""
        return ast.parse(self.source)


@dataclass(frozen=True)
class Use:
    """Hold one dotted name that a module imports, or reaches through an import."""

    name: str
    line: int
    is_import: bool


def read_modules(root: Path, *tops: str) -> Iterator[Module]:
    """Read every module of the given packages (or single modules) below `root`."""
    for top in tops:
        single = root / f"{top}.py"
        for path in [single] if single.exists() else sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            yield Module(".".join(parts[:-1] if is_package else parts), is_package, path.read_text(encoding="utf-8"))


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    base = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*base, *([node.module] if node.module else [])])


def _dotted(node: ast.expr) -> list[str]:
    """Return the parts of `a.b.c`, or nothing when the chain does not start with a plain name."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        start = _dotted(node.value)
        return [*start, node.attr] if start else []
    return []


def uses(module: Module) -> list[Use]:
    """Return what the module imports and what it reaches through its imports, in functions too."""
    found: list[Use] = []
    bound: dict[str, str] = {}
    nodes = list(ast.walk(module.tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.append(Use(alias.name, node.lineno, True))
                top = alias.name.split(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{_absolute(module, node)}.{alias.name}"
                found.append(Use(name, node.lineno, True))
                bound[alias.asname or alias.name] = name
    for node in nodes:
        if isinstance(node, ast.Attribute):
            first, *rest = _dotted(node) or [""]
            if first in bound:
                found.append(Use(".".join([bound[first], *rest]), node.lineno, False))
        elif isinstance(node, ast.Name) and node.id not in bound and hasattr(builtins, node.id):
            found.append(Use(f"builtins.{node.id}", node.lineno, False))
    return found


def _longest_prefix(name: str, candidates: Iterable[str]) -> str | None:
    matching = [entry for entry in candidates if name == entry or name.startswith(f"{entry}.")]
    return max(matching, key=len, default=None)


def _is_in(name: str, places: Iterable[str]) -> bool:
    return _longest_prefix(name, places) is not None


def check_floors(modules: Iterable[Module], rooms: Table, tops: Collection[str]) -> list[str]:
    """Check that each room imports only the rooms that the table lets it."""
    complaints = []
    for module in modules:
        # A package's own __init__ at the top stands for the package alone, not for all the rooms in it.
        room = module.name if module.name in tops else _longest_prefix(module.name, set(rooms) - set(tops))
        if room not in rooms:
            complaints.append(f"{module.name}: this room is not in the table of rooms")
            continue
        for use in uses(module):
            ours = use.is_import and use.name.split(".")[0] in tops and not _is_in(use.name, {room} - set(tops))
            if ours and not _is_in(use.name, rooms[room]):
                complaints.append(f"{module.name}:{use.line}: room {room} may not import {use.name}")
    return complaints


def check_windows(modules: Iterable[Module], windows: Table, tops: Collection[str]) -> list[str]:
    """Check that what lies outside the house is reached only through the rooms that have a window onto it."""
    complaints = []
    for module in modules:
        seen = set()
        for use in uses(module):
            if use.name.split(".")[0] in tops:
                continue
            window = _longest_prefix(use.name, windows)
            known = window is not None or use.name.split(".")[0] in sys.stdlib_module_names
            if (known and (window is None or _is_in(module.name, windows[window]))) or (use.line, window) in seen:
                continue
            seen.add((use.line, window))
            reason = f"has no window onto {window}" if known else "uses what is no dependency"
            complaints.append(f"{module.name}:{use.line}: {reason}: {use.name}")
    return complaints


def check_labels(modules: Iterable[Module]) -> list[str]:
    """Check that every module has a docstring and every package a label: a sentence, Owns, Asks, Never."""
    complaints = []
    for module in modules:
        docstring = ast.get_docstring(module.tree)
        if not docstring:
            complaints.append(f"{module.name}: no docstring")
        elif module.is_package:
            complaints += [f"{module.name}: {flaw}" for flaw in _label_flaws(docstring)]
    return complaints


def _label_flaws(docstring: str) -> Iterator[str]:
    sentence, _, rest = docstring.partition("\n\n")
    sentence = " ".join(sentence.split())
    if not sentence.endswith(".") or ". " in sentence or not sentence[0].isupper():
        yield "the label does not begin with one sentence and a blank line"
    starts = [line.split()[0] for line in rest.split("\n\n")[0].splitlines() if line.split()[:1]]
    found = tuple(start for start in starts if start in LABEL_LINES)
    if found != LABEL_LINES or not starts or starts[0] != LABEL_LINES[0]:
        yield f"the label does not go on with {' '.join(LABEL_LINES)} (found: {' '.join(found) or 'none'})"


def check_sizes(modules: Iterable[Module]) -> list[str]:
    """Check that no file and no function has grown past what does one job."""
    complaints = []
    for module in modules:
        lines = len(module.source.splitlines())
        if lines > MAX_FILE_LINES:
            complaints.append(f"{module.name}: {lines} lines, more than {MAX_FILE_LINES}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    complaints.append(
                        f"{module.name}:{node.lineno}: {node.name} has {lines} lines, more than {MAX_FUNCTION_LINES}"
                    )
    return complaints


def check_names(modules: Iterable[Module]) -> list[str]:
    """Check that no module is named after nothing in particular."""
    return [
        f"{module.name}: a name that says nothing about the job"
        for module in modules
        if VAGUE_NAMES & set(module.name.lstrip("_").replace("._", ".").split("."))
    ]
