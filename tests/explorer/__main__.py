"""`make explore`: visit every state of small worlds, and say how many there were."""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.explorer.search import Found, explore, retold_in_words
from tests.explorer.worlds import DEFAULT, world_named


def main(arguments: Sequence[str]) -> int:
    """Search the worlds that are asked for; return 1 if one breaks an invariant."""
    chosen = _parser().parse_args(arguments)
    changes: dict[str, Any] = {
        key: value for key in ("tasks", "drivers", "faults", "level") if (value := getattr(chosen, key)) is not None
    }
    if chosen.replay:
        name, _, numbers = chosen.replay.partition(":")
        bounds = world_named(name)._replace(**changes)
        print("\n".join(retold_in_words(bounds, [int(each) for each in numbers.split(",")])))
        return 0
    given = "".join(f"--{key} {value} " for key, value in changes.items())
    names = chosen.worlds or list(DEFAULT)
    began, states, worst = time.monotonic(), 0, 0
    with ProcessPoolExecutor(chosen.cores) as pool:
        results = [pool.submit(explore, world_named(name)._replace(**changes), chosen.seconds) for name in names]
        for name, result in zip(names, results, strict=True):
            found = result.result()
            print(_line(name, found), flush=True)
            states += found.states
            if found.wrong:
                worst = 1
                print(f"\n{found.wrong}\n" + "\n".join(found.words))
                numbers = ",".join(map(str, found.numbers))
                print(f"\nAgain: python -m tests.explorer {given}--replay {name}:{numbers}\n")
    print(f"{states} states in {time.monotonic() - began:.0f} s")
    return worst


def _line(name: str, found: Found) -> str:
    rate = found.states / max(found.seconds, 0.001)
    end = "" if found.is_complete else ", NOT all"
    return (
        f"{name}: {found.states} states{end}, {found.depth} steps deep, {found.terminal} ends, {found.nodes} states of "
        f"processes; {found.seconds:.0f} s of processor time, {rate:.0f} states a second"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.explorer", description=__doc__)
    parser.add_argument("worlds", nargs="*", help=f"of {', '.join(DEFAULT)}; all without one")
    parser.add_argument("--tasks", type=int, help="tasks with rows")
    parser.add_argument("--drivers", type=int, help="runs of the query")
    parser.add_argument("--faults", type=int, help="faults in one story")
    parser.add_argument("--level", type=int, help="the transaction.version at the beginning")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="processor time for one world")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--replay", help="WORLD:NUMBERS, as a search prints it")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
