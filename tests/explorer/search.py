"""The search: every state of a world, breadth first, with the invariants in each."""

import gc
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tests.explorer.drivers import RunDriver
from tests.explorer.invariants import broken, unfinished
from tests.explorer.process import Processes
from tests.explorer.state import Bounds, World
from tests.explorer.world import Rules


class Found(NamedTuple):
    """What a search found."""

    states: int
    steps: int
    depth: int
    seconds: float
    wrong: str = ""
    words: tuple[str, ...] = ()
    is_complete: bool = True
    terminal: int = 0
    nodes: int = 0


def explore(bounds: Bounds, seconds: float = float("inf")) -> Found:
    """Search the world of some bounds, with the protocol's code."""
    return search(Rules(Processes(RunDriver), bounds), seconds=seconds)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage: no state is in a cycle, and visits of all states took a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@without_collections()
def search(
    rules: Rules, *, limit: int = 10_000_000, seconds: float = 1e9, progress: Callable[[str], None] | None = None
) -> Found:
    """Visit every state; stop at the first that breaks an invariant."""
    began = time.process_time()
    first = rules.first()
    seen: dict[World, int] = {first: 0}
    parents, taken = array("l", [-1]), array("l", [-1])
    frontier = [(0, first)]
    depth = steps = terminal = 0

    def found(wrong: str = "", at: int = -1, last: int = -1, *, is_complete: bool = True) -> Found:
        spent = time.process_time() - began
        words = _in_words(rules, _numbers(parents, taken, at, last)) if wrong else ()
        nodes = len(rules.processes.nodes)
        return Found(len(parents), steps, depth, spent, wrong, words, is_complete, terminal, nodes)

    while frontier:
        following = []
        for at, world in frontier:
            must = False
            for number, step in enumerate(rules.steps(world)):
                steps += 1
                must = must or not (step.is_fault or step.is_optional)
                wrong = step.wrong
                if not wrong and seen.setdefault(step.world, len(parents)) < len(parents):
                    continue
                wrong = wrong or broken(step.world, rules.bounds)
                if wrong:
                    return found(wrong, at, number)
                following.append((len(parents), step.world))
                parents.append(at)
                taken.append(number)
            if not must:
                terminal += 1
                wrong = unfinished(world, rules.bounds)
                if wrong:
                    return found(wrong, at)
        if len(parents) > limit or time.process_time() - began > seconds:
            return found(is_complete=False)
        depth += 1
        frontier = following
        if progress is not None:
            progress(f"depth {depth}: {len(parents)} states, {len(frontier)} new, {len(rules.processes.nodes)} nodes")
    return found()


def _numbers(parents: "array[int]", taken: "array[int]", at: int, last: int) -> list[int]:
    """Return the way to a state: the numbers of the steps, each among those of the state before."""
    numbers = [last] if last >= 0 else []
    while parents[at] >= 0:
        numbers.append(taken[at])
        at = parents[at]
    return numbers[::-1]


def _in_words(rules: Rules, numbers: Sequence[int]) -> tuple[str, ...]:
    """Return the story of some steps, numbered."""
    world, lines = rules.first(), []
    for at, number in enumerate(numbers, 1):
        step = list(rules.steps(world))[number]
        sign = "!" if step.is_fault else " "
        lines.append(f"{at:3}{sign} {step.words}")
        world = step.world
    return tuple(lines)
