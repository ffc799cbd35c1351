"""What clients of a world resend, abort and delay."""

from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import TRANSACTION_STATE_TOPIC
from broker_core.wire import messages as m
from tests.simulation.client import Client, UnansweredError
from tests.simulation.plan import draw
from tests.simulation.producers import CLASSIC, UNPROTECTED, V2, recalled
from tests.simulation.world import World
from tests.support.simulated.faults import NO_FAULTS, FaultKind, NetworkConditions

E = ErrorCode
_SECOND_US = 1_000_000


def _initialisation(transactional_id: str) -> Any:
    return m.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=6_000, producer_id=-1, producer_epoch=-1
    )


def _coordinator(world: World, transactional_id: str) -> int:
    cluster = world.server.cluster
    place = cluster.controller.coordinator_partition_of(TRANSACTION_STATE_TOPIC, transactional_id)
    return cluster.metadata.leadership(place).leader


@pytest.mark.parametrize("is_answered", [True, False])
def test_only_an_unanswered_request_is_repeated_unchanged(is_answered: bool) -> None:
    world = World(draw(1))
    world.boot()
    client = Client(world, "client")
    left = [E.CONCURRENT_TRANSACTIONS, E.NONE]

    def attempt() -> tuple[Any, ErrorCode]:
        client.ask(_coordinator(world, "id"), _initialisation("id"), 4)
        code = left.pop(0)
        if code != E.NONE and not is_answered:
            raise UnansweredError("the client's view")
        return None, code

    world.run_fiber("client", lambda: client.until_answered("it", attempt))
    assert left == []
    assert world.faults.by_kind[FaultKind.DUPLICATED] == (not is_answered)


@pytest.mark.parametrize("is_recalled", [True, False])
def test_recalled_request_does_not_arrive_late(is_recalled: bool) -> None:
    world = World(draw(1))
    world.boot()
    client = Client(world, "client", recalled={m.InitProducerIdRequest.API_KEY} if is_recalled else ())

    def ask() -> None:
        world.network.conditions = NetworkConditions(latency_us=(2 * _SECOND_US, 2 * _SECOND_US))
        with pytest.raises(UnansweredError):
            client.ask(_coordinator(world, "id"), _initialisation("id"), 4)
        world.network.conditions = NO_FAULTS

    world.run_fiber("client", ask)
    world.scheduler.run(world.scheduler.now_us + 5 * _SECOND_US)
    known = {name for broker in world.server.cluster.brokers.values() for name in broker.transactions.images()}
    assert ("id" in known) != is_recalled
    assert world.faults.by_kind[FaultKind.LATE_REQUEST] == (not is_recalled)


def test_v1_client_recalls_only_requests_that_are_unprotected_when_late() -> None:
    assert recalled(V2, verifies=True) == recalled(V2, verifies=False) == frozenset()
    assert (
        recalled(CLASSIC, verifies=True) == UNPROTECTED == {m.EndTxnRequest.API_KEY, m.TxnOffsetCommitRequest.API_KEY}
    )
    # KIP-890, part 1, protects against a late batch of the old protocol.
    assert recalled(CLASSIC, verifies=False) == UNPROTECTED | {m.ProduceRequest.API_KEY}


def test_about_a_tenth_of_the_worlds_are_undisturbed_and_use_v2() -> None:
    plans = [draw(seed) for seed in range(1, 1_001)]
    undisturbed = [plan for plan in plans if plan.is_undisturbed]
    assert 70 <= len(undisturbed) <= 130
    for plan in undisturbed:
        assert {CLASSIC} & {*plan.workers, *(protocol for _, protocol in plan.producers)} == set()
        assert (plan.settings["transaction.version"], plan.changes_features, plan.has_query) == ("2", False, False)
    assert sum(plan.has_administrator and plan.changes_features for plan in plans) / len(plans) > 0.05
