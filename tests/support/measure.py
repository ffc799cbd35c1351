"""The size of the product and its repetition, counted: `python -m tests.support.measure [TREE ...]`.

One column for each tree, this one by default. A count of files for each setting, option or API tells in how many files
of the product its name stands: how many a change of it has to look at. Names of one word are left out, because they
are words of prose too; an API counts where its request or response is named.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import quantiles
from typing import Final

from broker_core.broker.apis import APIS
from broker_core.settings.catalog import SETTINGS
from spark_eos.options import catalog
from tests.support.architecture import PACKAGES, ROOT, Module, import_graph, read_modules
from tests.support.prose import LIMITS, measure
from tests.support.remembered import remembered

SHORT_FILE_LINES: Final = 100
OPTIONS: Final = {each.name for each in (*catalog.SINK_OPTIONS, *catalog.SOURCE_OPTIONS)} | catalog.SETTINGS.keys()
_NAME: Final = re.compile(r"[A-Za-z][\w-]*(?:\.[\w-]+)*")
MESSAGE: Final = re.compile(r"\b([A-Z]\w+?)(?:Request|Response)\b")
_SEVERAL_WORDS: Final = re.compile(r"[.A-Z]")
_DATA: Final = (".py", ".pyi", ".json", ".toml", ".csv")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def files_naming(names: Iterable[str], texts: Iterable[str], pattern: re.Pattern[str] = _NAME) -> dict[str, int]:
    """Return in how many of the texts each name stands.

    >>> files_naming(["a.b", "a.b.c"], ["x = 'a.b'", "'a.b.c' and a.b."])
    {'a.b': 2, 'a.b.c': 1}
    """
    found = Counter(name for text in texts for name in set(pattern.findall(text)))
    return {name: found[name] for name in names if _SEVERAL_WORDS.search(name)}


@remembered
def any_types(source: str) -> list[int]:
    """Return the lines that use `Any`, once for each use, without its imports."""
    names = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name) and node.id == "Any")
    return sorted(node.lineno for node in names)


def forwarding_methods(source: str) -> Iterator[str]:
    """Yield the methods that only call a method of an attribute, with the arguments that they get."""
    for owner in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        yield from (
            f"{owner.name}.{each.name}" for each in owner.body if isinstance(each, _Function) and _forwards(each)
        )


def _forwards(method: _Function) -> bool:
    body = method.body[1:] if ast.get_docstring(method) else method.body
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return | ast.Expr) else None
    if isinstance(call, ast.Await):
        call = call.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if not re.fullmatch(r"self(\.\w+)+\.\w+", ast.unparse(call.func)):
        return False
    given = {each.arg for each in (*method.args.posonlyargs, *method.args.args[1:], *method.args.kwonlyargs)}
    passed = [*call.args, *(each.value for each in call.keywords)]
    return {each.id for each in passed if isinstance(each, ast.Name)} == given and len(passed) == len(given)


def _comment_lines(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})


def _spread(counts: Collection[int]) -> str:
    cuts = quantiles(counts, n=10)
    return f"{cuts[4]:g} / {cuts[8]:g} / {max(counts)}"


def _repetition(counts: Mapping[str, int]) -> str:
    values = counts.values()
    mean = sum(values) / len(counts)
    return (
        f"{mean:.2f}; {sum(each > 1 for each in values)} in 2 or more, {sum(each > 3 for each in values)} in 4 or more"
    )


def counts(root: Path) -> dict[str, str]:
    """Return each measurement of a tree by its name."""
    modules = list(read_modules(root, *PACKAGES))
    functions = [node for each in modules for node in ast.walk(ast.parse(each.source)) if isinstance(node, _Function)]
    documented = sum(ast.get_docstring(each) is not None for each in functions)
    lines = sum(len(each.source.splitlines()) for each in modules)
    comments = sum(_comment_lines(each.source) for each in modules)
    texts = [
        path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in _DATA
    ]
    return {
        "files": str(len(modules)),
        "lines": str(lines),
        "functions": str(len(functions)),
        "lines of a function: median / p90 / most": _spread([_length(each) for each in functions]),
        "files for each broker setting": _repetition(files_naming(SETTINGS, texts)),
        "files for each option": _repetition(files_naming(OPTIONS, texts)),
        "files for each API": _repetition(files_naming(APIS, texts, MESSAGE)),
        "uses of `Any`": str(sum(len(any_types(each.source)) for each in modules)),
        f"files below {SHORT_FILE_LINES} lines with one importer": str(len(single_importer_files(modules))),
        "methods that forward": str(sum(len(list(forwarding_methods(each.source))) for each in modules)),
        "class names defined twice or more": str(len(repeated_classes(modules))),
        "functions with a docstring": f"{documented / len(functions):.0%}",
        "comment lines for each line": f"{comments / lines:.3f}",
        **{f"pronoun chains for 1,000 words in {place}": _chains(root, place) for place in LIMITS},
    }


def _length(node: _Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _chains(root: Path, place: str) -> str:
    found, words = measure(place, root)
    return f"{1_000 * len(found) / words:.2f}"


def single_importer_files(modules: Collection[Module]) -> list[str]:
    """Return the short files that one file imports: candidates for a place next door."""
    graph = import_graph(modules)
    return sorted(
        each.name
        for each in modules
        if not each.is_package and len(each.source.splitlines()) < SHORT_FILE_LINES and graph.in_degree(each.name) == 1
    )


def repeated_classes(modules: Iterable[Module]) -> list[str]:
    """Return the names of classes that are defined more than once."""
    names = Counter(
        node.name for each in modules for node in ast.walk(ast.parse(each.source)) if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def main() -> None:
    """Print a table with a column for each tree, or the names behind one count."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.measure", allow_abbrev=False)
    parser.add_argument("trees", nargs="*", type=Path, metavar="TREE", help="roots of repositories (this one)")
    parser.add_argument("--list", action="store_true", help="print the files, methods and classes behind the counts")
    arguments = parser.parse_args()
    trees = [each.resolve() for each in arguments.trees or [ROOT]]
    if arguments.list:
        modules = list(read_modules(trees[0], *PACKAGES))
        forwarding = [f"{each.name}: {name}" for each in modules for name in forwarding_methods(each.source)]
        print(*single_importer_files(modules), *forwarding, *repeated_classes(modules), sep="\n")
        return
    columns = [counts(tree) for tree in trees]
    print(f"| what |{'|'.join(f' {each.name} ' for each in trees)}|\n|{'---|' * (1 + len(trees))}")
    for name in columns[0]:
        print(f"| {name} |{'|'.join(f' {column[name]} ' for column in columns)}|")


if __name__ == "__main__":
    main()
