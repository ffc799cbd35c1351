"""Check the compiled build: `python -m tests.compiled`.

A copy of the project is compiled, the tests of compiled code run on it, and seeded worlds are played on both builds:
the traces of each world have to be the same. Tests that reach no compiled module would only repeat what `make test`
shows; so would the tests of what clients see on a socket, but for the server's own.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from tests.support import compiled, short_form

_SUITES = ("tests/unit/broker_core", "tests/integration/broker_core/server", "tests/unit/spark_eos")


def main(argv: Sequence[str] | None = None) -> int:
    """Compile, test and compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.compiled", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds to play (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (%(default)s)")
    parser.add_argument("--only-build", action="store_true", help="compile, and leave the rest to the next run")
    arguments = parser.parse_args(argv)
    problem = compiled.problem()
    if problem:
        print(f"The compiled build is not checked: {problem}")
        return 0
    compiled.update(optimization="0")
    if arguments.only_build:
        return 0
    files = [file for suite in _SUITES for file in compiled.files_that_reach_compiled_code(suite)]
    print(f"{len(files)} files of tests reach compiled code", flush=True)
    files = short_form.chosen(files, "files of tests on the compiled build", of=2, long_form="make compiled")
    tests = [sys.executable, "-m", "pytest", "-p", "tests.compiled.plugin", *files, "-n", "3", "--dist", "loadfile"]
    examples = os.environ | {"HYPOTHESIS_PROFILE": "brief"}
    if subprocess.run(tests, cwd=compiled.COPY, env=examples, check=False).returncode:
        return 1
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    worlds = short_form.chosen(seeds, "worlds on both builds", of=5, long_form="make compiled")
    for line in short_form.left_out():
        print(f"short form: {line}")
    return _compare(worlds)


def _compare(seeds: Sequence[int]) -> int:
    """Play the seeds in both folders at the same time, and report those whose traces differ."""
    command = [sys.executable, "-m", "tests.simulation.digests", "--unjudged", *map(str, seeds)]
    players = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        for folder in (compiled.ROOT, compiled.COPY)
    ]
    traces = [player.communicate()[0].splitlines() for player in players]
    if any(player.returncode for player in players):
        print("A world could not be played: see the error above.", file=sys.stderr)
        return 1
    different = [seed for seed, ours, built in zip(seeds, *traces, strict=True) if ours != built]
    print(f"{len(seeds)} worlds, from seed {seeds[0]}: {len(different)} have another trace when the broker is compiled")
    for seed in different:
        print(f"  python -m tests.simulation --replay {seed} --trace FILE, here and in {compiled.COPY}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
