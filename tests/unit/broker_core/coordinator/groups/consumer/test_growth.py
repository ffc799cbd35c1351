"""A join costs little for each member that is there already, whatever the assignor."""

import pytest

from broker_core.coordinator.groups.consumer.assignors import ASSIGNORS
from tests.support.broker_core.consumer_group_world import ConsumerWorld
from tests.support.function_calls import count_calls

FEW = 40
# One call makes the assignor's view of a member; the assignor `range` needs another one to order it.
CALLS_FOR_A_MEMBER = 2


def calls_to_join(count: int, assignor: str) -> int:
    """Return how many functions in Python the join of one more member calls."""
    world = ConsumerWorld(group_consumer_assignment_interval_ms=0)
    for number in range(count):
        world.enter(f"m{number}", server_assignor=assignor)
    answers = []
    calls = count_calls(lambda: answers.append(world.enter("one more", server_assignor=assignor)))
    assert answers[0].member_epoch == world.consumers.target_epoch.epoch == world.consumers.epoch.epoch
    return calls


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_join_calls_few_functions_for_each_member(assignor: str):
    more = calls_to_join(3 * FEW, assignor) - calls_to_join(FEW, assignor)
    assert more <= CALLS_FOR_A_MEMBER * 2 * FEW
