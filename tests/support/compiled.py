"""A copy of the project in .cache/compiled whose hot path is compiled, as a build with `EOS_KAFKA_COMPILED=1` does it.

A build takes longer than all tests on it. So it is kept until one of the sources that it depends on changes.

Python would prefer extension modules to the sources beside them, whatever the sources say by then. So they are never
built in the project's own folder.
"""

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import networkx as nx

from tests.support.architecture import import_graph, read_modules

ROOT = Path(__file__).parents[2]
COPY = ROOT / ".cache" / "compiled"
_COPIED = (
    *("setup.py", "setup.cfg", "pyproject.toml", "Makefile", "README.md", "pyspark_eos_kafka.py"),
    *("broker_core", "spark_eos", "stubs", "tests", "examples", "docs", "conf"),
)
_BUILT = (".so", ".pyd")
_CACHED = "__pycache__"


def problem() -> str | None:
    """Return why the copy cannot be compiled on this machine, or None."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "there is no C compiler"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.exists() else f"{header} is missing; the package python3-dev, or the like, has it"


def update(*, optimization: str = "1") -> Path:
    """Copy what has changed, compile unless the last build was of the same sources, and return the copy's folder.

    `optimization` is the level of the C compiler. Without any, "0", the build takes a minute less, as tests want it.
    """
    for name in _COPIED:
        _copy(Path(name))
    wanted = f"{build_digest(COPY)} -O{optimization}"
    stamp = COPY / "build" / "digest"
    if not stamp.exists() or stamp.read_text() != wanted:
        for suffix in _BUILT:
            for built in COPY.rglob(f"*{suffix}"):
                built.unlink()
        shutil.rmtree(COPY / "build", ignore_errors=True)
        _compile(optimization)
        stamp.write_text(wanted)
    # The jars of Apache Kafka, and what else was fetched.
    cache = COPY / ".cache"
    if not cache.is_symlink():
        cache.symlink_to(ROOT / ".cache", target_is_directory=True)
    return COPY


def compiled_modules(root: Path) -> set[str]:
    """Return the names of the modules that a build compiles: those that setup.py lists."""
    [listed] = [
        node.value
        for node in ast.parse((root / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "MODULES"
    ]
    return {f"broker_core.{path.replace('/', '.')}" for path in ast.literal_eval(listed)}


def files_that_reach_compiled_code(suite: str) -> list[str]:
    """Return the files of a suite whose tests reach a compiled module by imports; the others would repeat themselves.

    A module of the client counts as compiled code if it imports some itself: of the broker it uses the format of
    batches and messages only, and most of it none of that.
    """
    compiled = compiled_modules(ROOT)
    graph = import_graph(read_modules(ROOT, "broker_core", "spark_eos", "tests"))
    client = [name for name in graph if name.startswith("spark_eos") and not compiled.intersection(graph[name])]
    graph.remove_edges_from([edge for name in client for edge in list(graph.edges(name))])
    chosen = [
        name
        for name in set().union(*(nx.ancestors(graph, module) for module in compiled))
        if name.startswith(f"{suite.replace('/', '.')}.") and name.rpartition(".")[2].startswith("test_")
    ]
    return sorted(f"{name.replace('.', '/')}.py" for name in chosen)


def build_digest(root: Path) -> str:
    """Return a digest of what a build depends on: compiled sources, what they import, and the compiler's version."""
    found = hashlib.sha256(f"{sys.version} {version('mypy')}".encode())
    modules = {module.name: module for module in read_modules(root, "broker_core")}
    graph = import_graph(modules.values())
    used = set().union(*({name, *nx.descendants(graph, name)} for name in compiled_modules(root)))
    for name in sorted(used):
        found.update(f"{name}\n{modules[name].source}".encode())
    found.update((root / "setup.py").read_bytes())
    return found.hexdigest()


def _compile(optimization: str) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=COPY,
        env=dict(os.environ) | {"EOS_KAFKA_COMPILED": "1", "EOS_KAFKA_OPTIMIZATION": optimization},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"The compiled build failed:\n{done.stdout[-5000:]}")


def _copy(name: Path) -> None:
    """Copy a file or folder of the project, where it differs, and remove what the project no longer has."""
    source, target = ROOT / name, COPY / name
    if source.is_file():
        content = source.read_bytes()
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(source, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    own = {path.name for path in source.iterdir() if path.name != _CACHED}
    for path in target.iterdir():
        if path.name not in own | {_CACHED} and path.suffix not in _BUILT:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    for each in sorted(own):
        _copy(name / each)
