"""Describe and list requests return the coordinator's state, filtered as requested (rules F.2, F.3)."""

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity
from tests.support.broker_core.transaction_world import ID, T0, T1, World

E = ErrorCode


def described(world: World) -> tuple[object, ...]:
    found = world.coordinator.describe(ID)
    assert not isinstance(found, ErrorCode)
    return (found.state.label, found.timeout_ms, found.start_ms, *found.identity, found.partitions)


# Rules F.2/2, F.2/4 and F.2/6.
def test_describe_shows_stored_state_and_missing_markers(world: World, held: ProducerIdentity) -> None:
    world.add(held, T0, T1)
    start_ms = world.now_ms
    assert described(world) == ("Ongoing", 60_000, start_ms, 4000, 0, {T0, T1})
    world.end(held)
    (order,) = world.coordinator.completion.take()
    world.coordinator.completion.answered(order, {T0: E.NONE}, world.now_ms)
    assert described(world) == ("PrepareCommit", 60_000, start_ms, 4000, 1, {T1})
    world.coordinator.completion.answered(order, {T1: E.NONE}, world.now_ms)
    assert described(world) == ("CompleteCommit", 60_000, start_ms, 4000, 1, set())
    assert world.coordinator.describe("") is E.INVALID_REQUEST
    assert world.coordinator.describe("who") is E.TRANSACTIONAL_ID_NOT_FOUND
