"""Strings of more than 32,767 bytes: both brokers close the connection and change nothing."""

from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.both_brokers import Kafka
from tests.support.clients import make_topic, unique
from tests.support.messages import consumer_join
from tests.support.raw_client import RawClient

LONGEST = 32_767
# Two bytes each, because the limit counts bytes and not characters.
TOO_LONG = "é" * (LONGEST // 2 + 1)


def join(group: str, instance_id: str | None = None) -> Any:
    form = m.JoinGroupRequest.JoinGroupRequestProtocol
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[form(name="range", metadata=b"")],
    )


@pytest.mark.parametrize(
    ("version", "make"),
    [
        (9, lambda group: join(group, TOO_LONG)),
        (1, lambda group: consumer_join(group, subscribed_topic_regex=TOO_LONG)),
        (1, lambda group: consumer_join(group, member_id=TOO_LONG)),
        (0, lambda group: m.DescribeTransactionsRequest(transactional_ids=[group, TOO_LONG])),
    ],
    ids=["instance id", "expression", "member id", "one of several"],
)
def test_string_that_is_too_long_closes_the_connection(kafka: Kafka, version: int, make: Any):
    group = unique("group")
    with RawClient(kafka.bootstrap_servers) as client:
        client.post(make(group), version)
        assert client.is_closed_by_peer()
    with RawClient(kafka.bootstrap_servers) as client:
        [coordinator] = client.send(m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators
        assert coordinator.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer = client.send(m.ListGroupsRequest(states_filter=[], types_filter=[]), 5)
        assert group not in {listed.group_id for listed in answer.groups}


def test_longest_regular_expression_is_evaluated(kafka: Kafka, client: RawClient):
    make_topic(kafka)
    answer = client.send(consumer_join(unique("group"), member_id="m" * 36, subscribed_topic_regex="x" * LONGEST), 1)
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
