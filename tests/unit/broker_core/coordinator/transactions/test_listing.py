"""Describe and list requests return the coordinator's state, filtered as requested (rules F.2, F.3)."""

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
