"""The replay of a story in the simulation: the protocol's code and broker_core, step by step as the words say."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tests.explorer.broker import DifferenceError, Made, broker_beside, recorded
from tests.explorer.drivers import RunDriver
from tests.explorer.invariants import broken, unfinished
from tests.explorer.process import Processes
from tests.explorer.state import Bounds, Step, World
from tests.explorer.world import Rules

_LINE = re.compile(r"^ *\d+[ !] (.*)$", re.MULTILINE)


class Replayed(NamedTuple):
    """What happened in the simulation: the steps, the first that the story does not have, what is wrong at the end."""

    steps: tuple[str, ...]
    left_at: int | None
    wrong: str


def story_in(text: str) -> list[str]:
    """Return the steps of the story in a text, such as what a search prints."""
    return _LINE.findall(text)


def replay(bounds: Bounds, story: Sequence[str]) -> Replayed:
    """Play a story with a broker beside the model; raise `DifferenceError` where the broker answers otherwise.

    After the story's last step, and where other code has no such step, it goes on without faults, until nothing more
    must happen.
    """
    rules = Rules(Processes(RunDriver), bounds)
    world, steps, left_at = rules.first(), list[str](), None
    with recorded() as made, broker_beside(bounds) as broker:
        while True:
            words = story[len(steps)] if left_at is None and len(steps) < len(story) else None
            step = _step(rules, world, made, words)
            if step is None and words is not None:
                left_at = len(steps) + 1
                step = _step(rules, world, made, None)
            if step is None:
                return Replayed(tuple(steps), left_at, unfinished(world, bounds))
            steps.append(step.words)
            try:
                for each in made:
                    broker.make(each)
                broker.compare(step.world.model)
            except DifferenceError as error:
                raise DifferenceError(f"Step {len(steps)}, {step.words}: {error}") from error
            world = step.world
            wrong = step.wrong or broken(world, bounds)
            if wrong:
                return Replayed(tuple(steps), left_at, wrong)


def _step(rules: Rules, world: World, made: list[Made], words: str | None) -> Step | None:
    """Return the step with these words, or the first that must happen, with its requests to the model."""
    made.clear()
    for step in rules.steps(world):
        if step.words == words or (words is None and not (step.is_fault or step.is_optional)):
            return step
        made.clear()
    return None
