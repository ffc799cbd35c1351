"""No transaction hangs on brokers that do not verify transactions, as before Kafka 3.6."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client import transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.factory import committer
from spark_eos.sink.naming import TaskId
from tests.support.spark_eos.brokers import SETTINGS
from tests.support.spark_eos.client_world import encoded
from tests.support.spark_eos.sink_world import PLACE, World
from tests.support.waiting import wait_until

RUN = "run1"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = SETTINGS | {"transaction.partition.verification.enable": "false"}
    with EmbeddedBroker(transaction_version=1, config=settings) as broker:
        yield broker


@pytest.fixture
def world(broker: EmbeddedBroker) -> Iterator[World]:
    with KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
        yield World(broker.bootstrap_servers, client)


class Loser:
    """An attempt whose rows Spark drops, in a worker that does not know it."""

    def __init__(self, world: World, run: str = RUN) -> None:
        self._place = TopicPartition(world.topic, PLACE)
        self.id = str(TaskId("p", world.query, run, "loser", 0))
        self._producer = TransactionalProducer(world.client)
        self._producer.begin(transactions.init_producer_id(world.client, self.id, transaction_timeout_ms=60_000))
        self.write("early")

    def write(self, row: str) -> None:
        self._producer.send(self._place, encoded([row]))
        self._producer.flush()

    def abort(self) -> None:
        self._producer.abort()


def _committer(world: World, *, may_hang: bool) -> Committer:
    made = world.committer(RUN)
    made.own.may_hang = may_hang
    return made


def _is_stable(broker: EmbeddedBroker, world: World) -> bool:
    partition = broker.partition(world.topic, PLACE)
    return partition.last_stable_offset == partition.high_watermark


@pytest.mark.parametrize("step", ["commit", "abort"])
def test_ending_a_live_losing_attempt_on_an_unverified_cluster_leaves_a_hanging_transaction(
    broker: EmbeddedBroker, world: World, step: str
) -> None:
    loser = Loser(world)
    _do(_committer(world, may_hang=False), world, step)
    assert broker.transaction(loser.id).state == "CompleteAbort"
    wait_until(lambda: _is_stable(broker, world), "the markers are written")
    loser.write("late")
    assert broker.transaction(loser.id).state == "CompleteAbort"
    assert not _is_stable(broker, world), "if this changes, brokers without verification need no rule of their own"


@pytest.mark.parametrize("step", ["commit", "abort"])
def test_live_losing_attempt_is_left_to_its_timeout_on_unverified_clusters(
    broker: EmbeddedBroker, world: World, step: str
) -> None:
    own, others = Loser(world), Loser(world, "run0")
    rows = _do(_committer(world, may_hang=True), world, step)
    for loser in (own, others):
        loser.write("late")
        assert broker.transaction(loser.id).state == "Ongoing"
        # The worker ends the transaction here; its timeout would end it as well.
        loser.abort()
    wait_until(lambda: _is_stable(broker, world), "nothing hangs")
    assert world.visible() == rows


def test_flushed_transactions_are_ended_on_unverified_clusters(broker: EmbeddedBroker, world: World) -> None:
    """An aborted micro-batch, and one that turns out to be decided, know which tasks have finished writing."""
    dropped = world.prepare(RUN)
    _committer(world, may_hang=True).abort([dropped], 0)
    assert world.state_of(dropped) == "CompleteAbort"
    first = world.committer("run0")
    first.commit([world.prepare("run0")], 0)
    again = world.prepare(RUN)
    _committer(world, may_hang=True).commit([again], 0)
    assert world.state_of(again) == "CompleteAbort"
    assert world.visible() == ["row of 0"]


def test_committer_is_as_cautious_as_the_preflight_result() -> None:
    options = SinkOptions(ClientOptions(("h:1",)), transaction_timeout_ms=60_000)
    for may_hang in (False, True):
        made = committer(ProcessState(REAL), replace(options, allow_hanging_transactions=may_hang), "q", RUN)
        assert made.own.may_hang is may_hang


def _do(committer: Committer, world: World, step: str) -> list[str]:
    """Commit or abort a micro-batch; return the rows that are visible afterwards."""
    winner = world.prepare(RUN)
    if step == "commit":
        committer.commit([winner], 0)
        return ["row of 0"]
    committer.abort([winner], 0)
    return []
