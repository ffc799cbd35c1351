"""The code blocks of a documentation page, run in their order as a reader would."""

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from spark_eos.admin import command
from tests.support.documents import ROOT, Block, Page

# Languages whose blocks are ignored, and those whose blocks are only parsed.
SHOWN = frozenset({"text", "mermaid", "console"})
PARSED: Mapping[str, Callable[[str], object]] = {
    "json": json.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "toml": tomllib.loads,
    "properties": lambda text: _properties(text),
}
RUN = frozenset({"python", "bash"})

ADDRESS = "localhost:9092"
CONTROL_ADDRESS = "localhost:9405"
# Folders in which pages keep data; each page gets its own.
FOLDERS = ("/data/", "/tmp/")
COMMAND_DEADLINE_S = 120
# How long a query that a page leaves running may take.
DRAIN_S = 20

# Hypothesis takes longer to import than most pages take to run, and no page uses it. Of anyio, which imports trio, one
# page shows the plugin.
_LEAN = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
_ANYIO = "anyio"
# Commands without a shell's signs run in this process: their imports take longer than most of them.
_PLAIN = re.compile(r"\s*(eos-kafka|python -m tests\.[\w.]+)(\s+[\w./:=,-]+)*\s*")
_MAKE = re.compile(r"^make\s+([a-z]+)\b.*$", re.MULTILINE)
_INSTALLS = re.compile(r"\b(pip3? install|npm install|apt(-get)? install)\b")


def is_test(block: Block) -> bool:
    """Return whether pytest runs the block."""
    return block.language == "python" and "def test_" in block.code


def runs(block: Block) -> bool:
    """Return whether the block is run by any means."""
    return block.language in RUN and block.not_run is None


def problems(block: Block) -> Iterator[str]:
    """Yield the problems of a block that show without running it."""
    known = SHOWN | RUN | PARSED.keys()
    if block.not_run is not None:
        if len(block.not_run.split()) < 3:
            yield "`not run` needs a reason"
        if block.language in SHOWN:
            yield f"a {block.language} block is never run: remove `not run`"
        return
    if block.language not in known:
        yield f"the language is {block.language!r}: use one of {', '.join(sorted(known))}, or say why it is not run"
    if block.language in PARSED:
        try:
            PARSED[block.language](block.code)
        except Exception as problem:  # each parser has its own exceptions
            yield f"not valid {block.language}: {problem}"
    if block.language == "bash":
        targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        for target in _MAKE.findall(block.code):
            if target not in targets:
                yield f"the Makefile has no target {target}"
        if _INSTALLS.search(block.code):
            yield "it installs something: mark it as not run"


def run_page(
    page: Page, folder: Path, address: str = "", names: Mapping[str, Any] | None = None, control: str = ""
) -> None:
    """Run the blocks of a page in `folder`, which is the working directory of this process.

    Args:
        page: The page.
        folder: An empty folder for its files.
        address: Where a broker listens, instead of `localhost:9092`.
        names: What the Python blocks see from the start.
        control: Where the broker is controlled, instead of `localhost:9405`.
    """
    # Functions of "__main__" reach Spark's workers by value, as those of a user's script do.
    namespace = {"__name__": "__main__", **(names or {})}
    # Consecutive tests share a pytest: it takes longer to start than most of them take.
    tests: list[str] = []
    for block in page.blocks:
        code = _replaced(block.code, folder, {ADDRESS: address, CONTROL_ADDRESS: control})
        if runs(block) and is_test(block):
            tests.append(_write_test(block, code, folder))
            continue
        if block.not_run is None and (block.title or runs(block)):
            _run_tests(page, tests, folder)
        if block.title and block.not_run is None:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, encoding="utf-8")
        if not runs(block):
            continue
        if block.language == "bash":
            _run_commands(page, block, code, folder)
        elif block.title != "conftest.py":
            # Empty lines before it, so that tracebacks show the page's own lines.
            exec(compile("\n" * (block.line - 1) + code, str(ROOT / page.name), "exec"), namespace)
    _run_tests(page, tests, folder)


@contextmanager
def watched_queries() -> Iterator[None]:
    """At the end, wait until each started streaming query has processed its input, stop it, and raise its error."""
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    started: list[StreamingQuery] = []
    original = DataStreamWriter.start

    def start(*arguments: Any, **keywords: Any) -> StreamingQuery:
        query = original(*arguments, **keywords)
        started.append(query)
        return query

    DataStreamWriter.start = start  # type: ignore[method-assign]
    try:
        yield
        for query in started:
            _drain(query)
        for query in started:
            if query.exception() is not None:
                raise AssertionError(f"a streaming query of the page failed: {query.exception()}")
    finally:
        DataStreamWriter.start = original  # type: ignore[method-assign]
        for query in started:
            query.stop()


def _drain(query: Any) -> None:
    """Wait until a running query has no input left, or for a limited time if its source never ends."""

    def drain() -> None:
        try:
            query.processAllAvailable()
        except Exception:
            # query.exception() has it.
            return

    if query.isActive:
        waiting = threading.Thread(target=drain, daemon=True)
        waiting.start()
        waiting.join(DRAIN_S)


def _replaced(code: str, folder: Path, addresses: Mapping[str, str]) -> str:
    for shown, real in addresses.items():
        if real:
            code = code.replace(shown, real)
    for name in FOLDERS:
        code = re.sub(rf"(?<![\w.]){re.escape(name)}", f"{folder}{name}", code)
    return code


def _write_test(block: Block, code: str, folder: Path) -> str:
    name = block.title or f"test_line_{block.line}.py"
    (folder / name).write_text(code, encoding="utf-8")
    return name


def _run_tests(page: Page, names: list[str], folder: Path) -> None:
    """Run these files, if there are any, and forget them."""
    if names:
        lean = _LEAN if _ANYIO in page.text else (*_LEAN, "-p", f"no:{_ANYIO}")
        with _own_modules(folder), patch.dict(os.environ):
            status = pytest.main(["-q", *lean, "--rootdir", str(folder), *names])
        assert status == 0, f"{', '.join([page.name, *names])} ended with status {status}"
        names.clear()


@contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """Forget at the end what a block has imported from the page's folder: another page may have the same names."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def _run_commands(page: Page, block: Block, code: str, folder: Path) -> None:
    script, where = _MAKE.sub("", code), f"{page.name}:{block.line}"
    commands = [line for line in script.replace("\\\n", " ").splitlines() if line.strip()]
    if all(_PLAIN.fullmatch(each) for each in commands):
        for each in commands:
            status = _run_here(each.split())
            assert status == 0, f"{where}: {each} ended with status {status}"
    else:
        _check(where, ["bash", "-euo", "pipefail", "-c", script], folder)


def _run_here(words: Sequence[str]) -> object:
    """Run a command in this process, and return its exit status."""
    program, *arguments = words
    with patch.object(sys, "argv", arguments[1:]), patch.dict(os.environ):
        try:
            if program == "eos-kafka":
                return command.main(arguments)
            spec = find_spec(arguments[1])
            assert spec is not None, f"there is no module {arguments[1]}"
            module = import_module(f"{spec.name}.__main__" if spec.submodule_search_locations else spec.name)
            return module.main() or 0
        except SystemExit as ended:
            return ended.code or 0


def _check(what: str, command: list[str], folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_DEADLINE_S,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.returncode == 0, f"{what} ended with status {done.returncode}:\n{done.stdout}"


def _properties(text: str) -> list[str]:
    for line in text.splitlines():
        if line.strip() and not re.match(r"\s*([#!]|[^\s=:]+\s*[=:])", line):
            raise ValueError(f"no key and value: {line}")
    return text.splitlines()
