"""What operators do to a query with Kafka's own tool.

`kafka-transactions.sh forceTerminateTransaction` sends InitProducerId for a transactional id (rule F.4/6), and Kafka
refuses it for no id.
"""

from collections.abc import Iterator

import pytest

from spark_eos.client import transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import LostTransactionError
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.messages import AlreadyCommitted, Place, Prepared, TaskMessage
from spark_eos.sink.prepared import TopicRows
from tests.support.spark_eos.driving import end_all
from tests.support.spark_eos.sink_world import World

TIMEOUT_MS = 60_000


@pytest.fixture(params=["kafka_address", "tv1_address"], ids=["V2", "V1"])
def world(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[World]:
    address = request.getfixturevalue(request.param)
    with KafkaClient(ClientOptions((address,))) as client:
        yield World(address, client)


def decided_and_terminated(world: World, *, is_partly_committed: bool) -> None:
    """Decide a micro-batch of two tasks; the operator ends the transaction of the second one before its commit."""
    first, second = (world.prepare("run1", split=split) for split in (0, 1))
    log = world.log()
    log.decide(world.decision(first, second), log.take_over())
    if is_partly_committed:
        assert end_all(world.cluster, [first.transaction], commit=True)
    terminate(world, second)


def terminate(world: World, prepared: Prepared) -> None:
    name = prepared.transaction.transactional_id
    transactions.init_producer_id(world.client, name, transaction_timeout_ms=TIMEOUT_MS)


def test_termination_before_any_commit_loses_nothing(world: World) -> None:
    decided_and_terminated(world, is_partly_committed=False)
    world.committer("run2").commit([world.prepare("run2", split=split) for split in (0, 1)], 0)
    assert world.visible() == ["row of 0"] * 2


@pytest.mark.parametrize("policy", OnLostTransaction)
def test_termination_after_a_commit_stops_the_query_until_the_rows_are_written_again(
    world: World, policy: OnLostTransaction
) -> None:
    decided_and_terminated(world, is_partly_committed=True)
    committer = world.committer("run2")
    committer.own.policy = policy
    known = AlreadyCommitted(Place(world.query, "run2", 0, 0), (TopicRows(world.topic, 1, 0),))
    messages: list[TaskMessage] = [known, world.prepare("run2", split=1)]
    if policy is OnLostTransaction.REWRITE:
        committer.commit(messages, 0)
    else:
        with pytest.raises(LostTransactionError, match=r"1 of its 2 transactions \(1 of 2 records\).*task 1: lost"):
            committer.commit(messages, 0)
        committer.abort(messages, 0)
    assert len(world.visible()) == (2 if policy is OnLostTransaction.REWRITE else 1)


def test_termination_before_the_decision_stops_the_query_once(world: World) -> None:
    prepared = world.prepare("run1")
    terminate(world, prepared)
    with pytest.raises(LostTransactionError, match="no row of the micro-batch is visible"):
        world.committer("run1").commit([prepared], 0)
    world.committer("run2").commit([world.prepare("run2")], 0)
    assert world.visible() == ["row of 0"]
