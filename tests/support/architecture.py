"""The import graph of the packages, and checks of their layers, cycles, outside dependencies, sizes and names.

Each check takes modules (and tables) and returns complaints of one sentence each; an empty list means success.
`python -m tests.support.architecture` prints the graph's size and its cycles; `--edges` prints each import as well.
"""

import argparse
import ast
import builtins
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import networkx as nx

from tests.support.remembered import remembered

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker_core", "spark_eos")
TOPS = (*PACKAGES, "pyspark_eos_kafka")

# The guideline is 400.
MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 70
VAGUE_NAMES = frozenset({"common", "helper", "helpers", "misc", "tools", "util", "utils"})

Table = Mapping[str, Collection[str]]
Edge = tuple[str, str]


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, whether it is a package's `__init__`, its text."""

    name: str
    is_package: bool
    source: str

    @cached_property
    def uses(self) -> list["Use"]:
        """Return what the module imports (in functions and for type checkers too) and reaches through its imports."""
        return _uses(self.name, "package" if self.is_package else "module", self.source)

    @property
    def own_name(self) -> str:
        """Return the name that distinguishes a package's own file from the package."""
        return f"{self.name}.__init__" if self.is_package else self.name


class Use(NamedTuple):
    """One dotted name that a module imports, or reaches through an import."""

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


def _absolute(name: str, kind: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    base = parts[: len(parts) - node.level + (kind == "package")]
    return ".".join([*base, *([node.module] if node.module else [])])


def _dotted(node: ast.expr) -> list[str]:
    """Return the parts of `a.b.c`, or nothing when the chain does not start with a plain name."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        start = _dotted(node.value)
        return [*start, node.attr] if start else []
    return []


@remembered
def _uses(name: str, kind: str, source: str) -> list[Use]:
    """Return what the module imports (in functions and for type checkers too) and reaches through its imports."""
    found: list[Use] = []
    bound: dict[str, str] = {}
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.append(Use(alias.name, node.lineno, True))
                top = alias.name.split(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imported = f"{_absolute(name, kind, node)}.{alias.name}"
                found.append(Use(imported, node.lineno, True))
                bound[alias.asname or alias.name] = imported
    for node in nodes:
        if isinstance(node, ast.Attribute):
            first, *rest = _dotted(node) or [""]
            if first in bound:
                found.append(Use(".".join([bound[first], *rest]), node.lineno, False))
        elif isinstance(node, ast.Name) and node.id not in bound and hasattr(builtins, node.id):
            found.append(Use(f"builtins.{node.id}", node.lineno, False))
    return found


def _longest_prefix(name: str, candidates: Collection[str]) -> str | None:
    while name and name not in candidates:
        name = name.rpartition(".")[0]
    return name or None


def _is_in(name: str, packages: Collection[str]) -> bool:
    return _longest_prefix(name, packages) is not None


def import_graph(modules: Iterable[Module]) -> "nx.DiGraph[str]":
    """Return which file imports which; what is imported from a package is its `__init__`, named as the package."""
    modules = list(modules)
    names = {module.name for module in modules}
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(names)
    for module in modules:
        for use in module.uses:
            imported = _longest_prefix(use.name, names) if use.is_import else None
            if imported is not None and imported != module.name:
                graph.add_edge(module.name, imported)
    return graph


def _siblings(one: str, other: str) -> Edge:
    """Return what an import connects in the innermost common package: files, or packages taken as a whole."""
    first, second = [*one.split("."), "__init__"], [*other.split("."), "__init__"]
    common = next(place for place, parts in enumerate(zip(first, second, strict=False)) if parts[0] != parts[1])
    return ".".join(first[: common + 1]), ".".join(second[: common + 1])


def file_cycles(graph: "nx.DiGraph[str]") -> list[list[str]]:
    """Return each set of files with a cyclic import."""
    return sorted(sorted(cycle) for cycle in nx.strongly_connected_components(graph) if len(cycle) > 1)


def package_cycles(graph: "nx.DiGraph[str]") -> list[list[str]]:
    """Return each set of files and packages of one package with a cyclic import.

    A package inside another counts as one of its parts: files beside it may import it, and it may import files beside
    it, but the parts must not need each other. Without these cycles, there are none among the files either.
    """
    return file_cycles(nx.DiGraph(_siblings(*edge) for edge in graph.edges))


def check_cycles(modules: Iterable[Module]) -> list[str]:
    """Check that neither files nor packages have cyclic imports."""
    return [f"import each other: {', '.join(cycle)}" for cycle in package_cycles(import_graph(modules))]


def check_layers(modules: Iterable[Module], allowed: Table, tops: Collection[str]) -> list[str]:
    """Check that each package imports only the packages that the table allows."""
    complaints = []
    for module in modules:
        package = _longest_prefix(module.own_name, allowed)
        if package is None:
            complaints.append(f"{module.name}: this package is not in the table of layers")
            continue
        for use in module.uses:
            ours = use.is_import and use.name.split(".")[0] in tops and not _is_in(use.name, {package})
            if ours and not _is_in(use.name, allowed[package]):
                complaints.append(f"{module.name}:{use.line}: package {package} may not import {use.name}")
    return complaints


def check_outside(modules: Iterable[Module], users: Table, tops: Collection[str]) -> list[str]:
    """Check that only the packages in the table use libraries, clocks, randomness, files and sockets."""
    complaints = []
    for module in modules:
        seen = set()
        for use in module.uses:
            if use.name.split(".")[0] in tops:
                continue
            entry = _longest_prefix(use.name, users)
            is_known = entry is not None or use.name.split(".")[0] in sys.stdlib_module_names
            if (is_known and (entry is None or _is_in(module.own_name, users[entry]))) or (use.line, entry) in seen:
                continue
            seen.add((use.line, entry))
            reason = f"may not use {entry}" if is_known else "uses what is no dependency"
            complaints.append(f"{module.name}:{use.line}: {reason}: {use.name}")
    return complaints


@remembered
def _docstring(source: str) -> str | None:
    return ast.get_docstring(ast.parse(source))


def check_docstrings(modules: Iterable[Module]) -> list[str]:
    """Check that every module has a docstring, and that a package's docstring begins with its responsibility."""
    complaints = []
    for module in modules:
        docstring = _docstring(module.source)
        if not docstring:
            complaints.append(f"{module.name}: no docstring")
        elif module.is_package:
            sentence = " ".join(docstring.partition("\n\n")[0].split())
            if not sentence.endswith(".") or ". " in sentence or not sentence[0].isupper():
                complaints.append(f"{module.name}: the docstring does not begin with one sentence and a blank line")
    return complaints


def check_sizes(modules: Iterable[Module]) -> list[str]:
    """Check that no file and no function is longer than its limit."""
    complaints = []
    for module in modules:
        lines = len(module.source.splitlines())
        if lines > MAX_FILE_LINES:
            complaints.append(f"{module.name}: {lines} lines, more than {MAX_FILE_LINES}")
        for line, function, length in _functions(module.source):
            if length > MAX_FUNCTION_LINES:
                complaints.append(
                    f"{module.name}:{line}: {function} has {length} lines, more than {MAX_FUNCTION_LINES}"
                )
    return complaints


@remembered
def _functions(source: str) -> list[tuple[int, str, int]]:
    """Return the first line, the name and the length of each function."""
    return [
        (node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def check_names(modules: Iterable[Module]) -> list[str]:
    """Check that no module has a meaningless name."""
    return [
        f"{module.name}: a name that says nothing about the job"
        for module in modules
        if VAGUE_NAMES & set(module.name.lstrip("_").replace("._", ".").split("."))
    ]


def diagram(modules: Iterable[Module], package: str) -> str:
    """Return a Mermaid diagram of the imports among the parts of a package, without those that follow from others."""

    inside = [module for module in modules if module.name.startswith(f"{package}.")]
    graph: nx.DiGraph[str] = nx.DiGraph()
    for edge in import_graph(inside).edges:
        one, other = (name.split(".")[1] for name in edge)
        if one != other:
            graph.add_edge(one, other)
    lines = (f"    {one} --> {other}" for one, other in sorted(nx.transitive_reduction(graph).edges))
    return "\n".join(["flowchart TD", *lines])


def main() -> None:
    """Print the import graph: files, edges and cycles."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.architecture", allow_abbrev=False)
    parser.add_argument("packages", nargs="*", default=TOPS, help=f"packages below {ROOT.name}/ (all of them)")
    parser.add_argument("--edges", action="store_true", help="print each import of one file by another")
    parser.add_argument("--mermaid", action="store_true", help="print a diagram of each package's parts")
    arguments = parser.parse_args()
    if arguments.mermaid:
        for package in PACKAGES:
            print(diagram(read_modules(ROOT, package), package))
        return
    graph = import_graph(read_modules(ROOT, *arguments.packages))
    if arguments.edges:
        for importer, imported in sorted(graph.edges):
            print(f"{importer} -> {imported}")
    cycles, among_packages = file_cycles(graph), package_cycles(graph)
    print(
        f"{graph.number_of_nodes()} files, {graph.number_of_edges()} edges,"
        f" {len(cycles)} cycles of files, {len(among_packages)} of packages"
    )
    for cycle in (*cycles, *among_packages):
        print(f"  {len(cycle)} import each other: {', '.join(cycle)}")


if __name__ == "__main__":
    main()
