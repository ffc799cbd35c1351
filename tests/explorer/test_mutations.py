"""The explorer sees: each single mutation of the protocol breaks an invariant in a small world."""

import pytest

from tests.explorer.invariants import INVARIANTS
from tests.explorer.mutations import MUTATIONS, Mutation, hunt_all, mutated
from tests.explorer.search import explore
from tests.explorer.worlds import FOR_MUTATIONS
from tests.support.short_form import chosen

FOUND = [each for each in MUTATIONS if each.worlds]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_mutation_changes_one_place(mutation: Mutation) -> None:
    compile(mutated(mutation), mutation.module, "exec")


def test_mutations_that_are_not_found_have_a_reason() -> None:
    assert len(FOUND) >= 25
    assert [each.name for each in MUTATIONS if bool(each.worlds) == bool(each.reason)] == []


@pytest.mark.parametrize(
    "world",
    chosen(
        sorted({name for each in FOUND for name in each.worlds.split()}),
        "worlds for mutations",
        of=9,
        long_form="pytest tests/explorer",
    ),
)
def test_world_is_whole_without_a_mutation(world: str) -> None:
    found = explore(FOR_MUTATIONS[world])
    assert not found.wrong, "\n".join((found.wrong, *found.words))


# The whole hunt takes a minute and a half of a processor.
@pytest.mark.timeout(1_200)
def test_each_mutation_is_found() -> None:
    mutations = chosen(FOUND, "mutations of the protocol", of=18, long_form="python -m tests.explorer.mutations")
    assert [each.mutation for each in hunt_all(mutations) if each.wrong.partition(":")[0] not in INVARIANTS] == []
