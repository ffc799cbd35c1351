"""Describe and list requests return the coordinator's state, filtered as requested (rules F.2, F.3)."""

from collections.abc import Collection

import pytest

from broker_core.coordinator.transactions.messages import DescribedTransaction
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity
from tests.support.broker_core.transaction_world import ID, T0, T1, World

E = ErrorCode


# Rules F.2/2, F.2/4 and F.2/6.
def test_describe_shows_stored_state_and_missing_markers(world: World, held: ProducerIdentity) -> None:
    world.add(held, T0, T1)
    start_ms = world.now_ms
    assert world.coordinator.describe(ID) == DescribedTransaction(
        ID, "Ongoing", 60_000, start_ms, 4000, 0, frozenset({T0, T1})
    )
    world.end(held)
    (order,) = world.coordinator.completion.take()
    world.coordinator.completion.answered(order, {T0: E.NONE}, world.now_ms)
    assert world.coordinator.describe(ID) == DescribedTransaction(
        ID, "PrepareCommit", 60_000, start_ms, 4000, 1, frozenset({T1})
    )
    world.coordinator.completion.answered(order, {T1: E.NONE}, world.now_ms)
    assert world.coordinator.describe(ID) == DescribedTransaction(
        ID, "CompleteCommit", 60_000, start_ms, 4000, 1, frozenset()
    )
    assert world.coordinator.describe("") is E.INVALID_REQUEST
    assert world.coordinator.describe("who") is E.TRANSACTIONAL_ID_NOT_FOUND


def listed(
    world: World, states: Collection[str], producer_ids: Collection[int], duration_ms: int, pattern: str | None
) -> list[str]:
    found = world.coordinator.list_transactions(states, producer_ids, duration_ms, pattern, world.now_ms)
    assert found.error is E.NONE
    return sorted(one.transactional_id for one in found.transactions)


# Rules F.3/2, F.3/3 and F.3/4.
def test_list_filters_transactions(world: World) -> None:
    ids = {name: world.identity(name) for name in ("a-1", "a-2", "b-1", ID)}
    world.add(ids[ID])
    world.now_ms += 1000
    assert listed(world, [], [], -1, None) == ["a-1", "a-2", "b-1", ID]
    assert listed(world, [], [], -1, "") == ["a-1", "a-2", "b-1", ID]
    assert listed(world, ["Ongoing"], [], -1, None) == [ID]
    assert listed(world, ["Ongoing", "Empty", "Bogus"], [], -1, None) == ["a-1", "a-2", "b-1", ID]
    assert listed(world, ["Bogus"], [], -1, None) == []
    assert listed(world, ["Dead"], [], -1, None) == []
    assert listed(world, [], [ids["a-2"].producer_id, 17], -1, None) == ["a-2"]
    assert listed(world, ["Ongoing"], [], 999, None) == [ID]
    assert listed(world, ["Ongoing"], [], 1000, None) == []
    assert listed(world, [], [], 1000, None) == ["a-1", "a-2", "b-1"]  # no start time passes
    assert listed(world, [], [], -1, "a-.*") == ["a-1", "a-2"]
    assert listed(world, [], [], -1, "a-") == []  # the pattern matches the whole id
    assert listed(world, [], [], -1, r"[ab]-1|my\\?-txn") == ["a-1", "b-1", ID]
    found = world.coordinator.list_transactions(["Bogus", "Empty", "empty"], [], -1, None, world.now_ms)
    assert found.unknown_states == ("Bogus", "empty")
    assert (ID, ids[ID].producer_id, "Ongoing") in world.coordinator.list_transactions(
        [], [], -1, None, world.now_ms
    ).transactions


@pytest.mark.parametrize("pattern", ["(", "[a", "a**", "(?=a)b", r"(a)\1", "(?<!x)a", "a++", "(?P=x)"])
def test_invalid_pattern_is_reported_regardless_of_other_filters(pattern: str, world: World) -> None:
    world.identity()
    for states in ([], ["Bogus"], ["Ongoing"]):
        answer = world.coordinator.list_transactions(states, [], -1, pattern, world.now_ms)
        assert answer.error is E.INVALID_REGULAR_EXPRESSION
        assert answer.transactions == ()
