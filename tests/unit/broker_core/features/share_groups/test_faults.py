"""Faults for the requests of share groups, which name no partition again that their session has (KIP-932)."""

import pytest

from broker_core.broker.fault_injection import BEFORE, Error, Fault, FaultInjector
from broker_core.broker.request_log import RequestLog
from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from broker_core.wire.api_names import ApiName
from tests.support.broker_core.share_moves_world import GROUP, MEMBER, TOPIC, ShareMovesWorld

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def injector() -> FaultInjector:
    return FaultInjector(RequestLog(100), lambda _, action: action())


@pytest.fixture
def world(injector: FaultInjector) -> ShareMovesWorld:
    return ShareMovesWorld(interceptor=injector).join()


def add(injector: FaultInjector, api: ApiName, **wanted: object) -> Fault:
    fault = Fault(injector.remove, api=api, when=BEFORE, action=Error(STORAGE), times=None, nth=None, **wanted)
    injector.add(fault)
    return fault


def fetch_of_session(world: ShareMovesWorld, epoch: int, *, forgets: bool = False) -> ErrorCode:
    form = m.ShareFetchRequest.ForgottenTopic
    request = m.ShareFetchRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=epoch,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=500,
        batch_size=500,
        topics=[],
        forgotten_topics_data=[form(topic_id=world.topic_id, partitions=[0])] if forgets else [],
    )
    return ErrorCode(world.client(world.leader()).ask(request, 2).error_code)


def test_fault_matches_the_topics_of_a_share_session(world: ShareMovesWorld, injector: FaultInjector) -> None:
    assert not world.fetch().error
    fault = add(injector, "ShareFetch", topic=TOPIC, partition=0)
    assert fetch_of_session(world, 1) is STORAGE
    assert fetch_of_session(world, 1, forgets=True) is ErrorCode.NONE
    assert fetch_of_session(world, 2) is ErrorCode.NONE
    assert fault.hits == 1


def test_fault_of_another_partition_leaves_a_share_session_alone(
    world: ShareMovesWorld, injector: FaultInjector
) -> None:
    assert not world.fetch().error
    add(injector, "ShareFetch", topic=TOPIC, partition=1)
    assert fetch_of_session(world, 1) is ErrorCode.NONE


@pytest.mark.parametrize("wanted", [{"group": GROUP}, {"topic": TOPIC}, {"topic": TOPIC, "partition": 0}])
def test_fault_matches_an_acknowledgment(
    world: ShareMovesWorld, injector: FaultInjector, wanted: dict[str, object]
) -> None:
    assert not world.fetch().error
    fault = add(injector, "ShareAcknowledge", **wanted)
    assert world.acknowledge(0, 4) is STORAGE
    fault.remove()
    assert world.acknowledge(0, 4) is ErrorCode.NONE
