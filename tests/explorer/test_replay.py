"""Stories of the explorer happen in the simulation too: the same requests, the same answers, the same end."""

import contextlib
import io
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.explorer.__main__ import main
from tests.explorer.broker import DifferenceError, Made, broker_beside
from tests.explorer.drivers import RunDriver
from tests.explorer.model import GROUPS, Model, initialized
from tests.explorer.mutations import MUTATIONS, Hunt, Mutation, hunt
from tests.explorer.process import Processes
from tests.explorer.replay import replay, story_in
from tests.explorer.state import Bounds
from tests.explorer.world import Rules
from tests.explorer.worlds import FOR_MUTATIONS
from tests.support.short_form import chosen

_BY_NAME = {each.name: each for each in MUTATIONS}


def _hunted_and_replayed(mutation: Mutation) -> tuple[Hunt, int | None, str]:
    """Find the story of a mutation and replay it, both with the mutated protocol, in a process of its own."""
    found = hunt(mutation)
    # Imported again, with the mutation.
    from tests.explorer.replay import replay, story_in
    from tests.explorer.worlds import FOR_MUTATIONS

    again = replay(FOR_MUTATIONS[found.world], story_in("\n".join(found.words)))
    return found, again.left_at, again.wrong


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("lost decision is reported committed", "kept"),
        # With an answer that is outdated, one that is lost, and a second driver.
        ("early commit is believed", "reason"),
        ("no answer means decided", "whole"),
        ("any decision is the own one", "whole"),
    ],
)
def test_mutation_breaks_the_same_invariant_in_the_simulation(name: str, invariant: str) -> None:
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        found, left_at, wrong = pool.apply(_hunted_and_replayed, [_BY_NAME[name]])
    assert wrong.startswith(f"{invariant}: ")
    assert (left_at, wrong) == (None, found.wrong)
    # The protocol as it is goes another way, or the same way to a good end.
    assert replay(FOR_MUTATIONS[found.world], story_in("\n".join(found.words))).wrong == ""


def test_printed_story_is_replayed_by_the_command(tmp_path: Path) -> None:
    mutated, file = ["lost", "--mutation", "nothing is verified"], tmp_path / "story"
    code, text = _command(*mutated)
    file.write_text(text)
    assert (code, "\nchecked: " in text) == (1, True)
    assert "python -m tests.explorer lost --mutation 'nothing is verified' --replay FILE\n" in text
    code, text = _command(*mutated, "--replay", str(file))
    assert (code, "In the simulation, with broker_core: checked: " in text) == (1, True)
    code, text = _command("lost", "--replay", str(file))
    assert (code, text.splitlines()[-1]) == (0, "In the simulation, with broker_core: no invariant is broken")


def _command(*arguments: str) -> tuple[int, str]:
    """Run the command in a process of its own, which a mutation changes; forked, it has imported everything."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(_printed, arguments).result()


def _printed(arguments: Sequence[str]) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = main(arguments)
    return code, printed.getvalue()


def test_answer_that_is_not_the_model_s_is_named() -> None:
    model, opened = initialized(Model(level=2, data=((),)), min(GROUPS))
    with broker_beside(Bounds(tasks=1)) as broker:
        broker.make(Made("initialized", (Model(level=2), min(GROUPS)), (model, opened)))
        broker.compare(model)
        again, opened = initialized(model, min(GROUPS))
        with pytest.raises(DifferenceError, match="^InitProducerId of .*driver: the broker answers .*, and the model "):
            broker.make(Made("initialized", (model, min(GROUPS)), (again, opened._replace(transaction_version=1))))
        with pytest.raises(DifferenceError, match="^the coordinators: the broker answers"):
            broker.compare(model)


def _story(bounds: Bounds, random: Random) -> list[str]:
    """Return what happens by chance in a world, until nothing more can happen."""
    rules = Rules(Processes(RunDriver), bounds)
    world, words = rules.first(), list[str]()
    while steps := list(rules.steps(world)):
        calm = [each for each in steps if not each.is_fault]
        step = random.choice(calm if calm and random.random() < 0.8 else steps)
        words.append(step.words)
        world = step.world
    return words


@pytest.mark.parametrize(
    "world", chosen(list(FOR_MUTATIONS), "worlds beside a broker", of=8, long_form="pytest tests/explorer")
)
def test_broker_answers_as_the_model_does(world: str) -> None:
    for seed in range(2):
        story = _story(FOR_MUTATIONS[world], Random(seed))
        replayed = replay(FOR_MUTATIONS[world], story)
        assert (list(replayed.steps), replayed.left_at, replayed.wrong) == (story, None, "")
