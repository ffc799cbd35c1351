"""`make explore`: visit every state of small worlds, and say how many there were."""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.explorer.mutations import MUTATIONS, mutate

if TYPE_CHECKING:
    from tests.explorer.search import Found
    from tests.explorer.state import Bounds

_COMMAND = ("python", "-m", "tests.explorer")


def main(arguments: Sequence[str]) -> int:
    """Search the worlds that are asked for, or replay a story; return 1 if one breaks an invariant."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.mutation:
        mutate(next(each for each in MUTATIONS if each.name == chosen.mutation))
    from tests.explorer.worlds import DEFAULT, world_named

    changes: dict[str, Any] = {
        key: value for key in ("tasks", "drivers", "faults", "level") if (value := getattr(chosen, key)) is not None
    }
    worlds = {name: world_named(name)._replace(**changes) for name in chosen.worlds or DEFAULT}
    if chosen.replay is None:
        given = [word for key, value in changes.items() for word in (f"--{key}", str(value))]
        given += ["--mutation", chosen.mutation] if chosen.mutation else []
        return _search(worlds, chosen.seconds, chosen.cores, given)
    if len(chosen.worlds) != 1:
        parser.error("--replay needs the name of the story's world")
    text = sys.stdin.read() if chosen.replay == "-" else Path(chosen.replay).read_text()
    return _replay(next(iter(worlds.values())), text)


def _search(worlds: "dict[str, Bounds]", seconds: float, cores: int, given: Sequence[str]) -> int:
    from tests.explorer.search import explore

    began, states, worst = time.monotonic(), 0, 0
    with ProcessPoolExecutor(cores) as pool:
        results = [pool.submit(explore, bounds, seconds) for bounds in worlds.values()]
        for name, result in zip(worlds, results, strict=True):
            found = result.result()
            print(_line(name, found), flush=True)
            states += found.states
            if found.wrong:
                worst = 1
                print(f"\n{found.wrong}\n" + "\n".join(found.words))
                again = shlex.join([*_COMMAND, name, *given, "--replay", "FILE"])
                print(f"\nIn the simulation, with this text in a file: {again}\n")
    print(f"{states} states in {time.monotonic() - began:.0f} s")
    return worst


def _replay(bounds: "Bounds", text: str) -> int:
    from tests.explorer.replay import replay, story_in

    story = story_in(text)
    if not story:
        print("This text has no step of a story, such as '  1  the driver of run 1: ...'", file=sys.stderr)
        return 2
    replayed = replay(bounds, story)
    for number, words in enumerate(replayed.steps, 1):
        if number == replayed.left_at:
            print("The story goes another way from here on; this is what happens without its faults:")
        print(f"{number:3} {words}")
    print(f"\nIn the simulation, with broker_core: {replayed.wrong or 'no invariant is broken'}")
    return 1 if replayed.wrong else 0


def _line(name: str, found: "Found") -> str:
    rate = found.states / max(found.seconds, 0.001)
    end = "" if found.is_complete else ", NOT all"
    return (
        f"{name}: {found.states} states{end}, {found.depth} steps deep, {found.terminal} ends, {found.nodes} states of "
        f"processes; {found.seconds:.0f} s of processor time, {rate:.0f} states a second"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.explorer", description=__doc__)
    parser.add_argument("worlds", nargs="*", help="of tests/explorer/worlds.py; all without one")
    parser.add_argument("--tasks", type=int, help="tasks with rows")
    parser.add_argument("--drivers", type=int, help="runs of the query")
    parser.add_argument("--faults", type=int, help="faults in one story")
    parser.add_argument("--level", type=int, help="the transaction.version at the beginning")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="processor time for one world")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--mutation", choices=[each.name for each in MUTATIONS], metavar="NAME", help="of mutations.txt"
    )
    parser.add_argument("--replay", metavar="FILE", help="play the story that a search has printed in the simulation")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
