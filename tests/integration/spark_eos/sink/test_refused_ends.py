"""The right to end transactions is taken away under a query: the error names it, and what is decided is not lost."""

from collections.abc import Iterator

import pytest

from broker_core import EmbeddedBroker, Error
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import AuthorizationError, TransactionError
from spark_eos.options.client import ClientOptions
from spark_eos.sink.messages import Prepared
from tests.support.clocks import AheadClock, runtime_by
from tests.support.spark_eos.sink_world import World

REFUSAL = Error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
NAMES_RIGHT = "not allowed to use the transactional id.*Grant WRITE and DESCRIBE on all transactional ids"


class ShortPauses(AheadClock):
    """Clocks that go some seconds ahead with each pause of the settlement."""

    def sleep(self, seconds: float) -> None:
        self.ahead_seconds += 25 * seconds


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def world(kafka: EmbeddedBroker) -> Iterator[World]:
    options = ClientOptions((kafka.bootstrap_servers,))
    with KafkaClient(options, runtime_by(ShortPauses())) as client:
        yield World(kafka.bootstrap_servers, client)


@pytest.fixture
def prepared(world: World) -> list[Prepared]:
    return [world.prepare("run1", split=split, timeout_ms=900_000) for split in range(2)]


@pytest.mark.parametrize("refused", [0, 1])
def test_error_of_a_decided_micro_batch_names_the_right(
    kafka: EmbeddedBroker, world: World, prepared: list[Prepared], refused: int
) -> None:
    with (
        kafka.fault(api="EndTxn", transactional_id=prepared[refused].transaction.transactional_id, action=REFUSAL),
        pytest.raises(TransactionError, match=f"is decided, but could not be completed: .*{NAMES_RIGHT}"),
    ):
        world.committer("run1").commit(prepared, 0)
    world.committer("run2").commit([world.prepare("run2", split=split) for split in range(2)], 0)
    assert world.visible() == ["row of 0"] * 2


def test_right_that_is_gone_for_a_moment_stops_no_query(
    kafka: EmbeddedBroker, world: World, prepared: list[Prepared]
) -> None:
    name = prepared[0].transaction.transactional_id
    with kafka.fault(api="EndTxn", transactional_id=name, action=REFUSAL, times=3) as fault:
        world.committer("run1").commit(prepared, 0)
    assert fault.hits == 3
    assert world.visible() == ["row of 0"] * 2


def test_sweep_does_not_say_that_it_ended_what_it_may_not_end(
    kafka: EmbeddedBroker, world: World, prepared: list[Prepared], caplog: pytest.LogCaptureFixture
) -> None:
    name = world.prepare("run1", split=7).transaction.transactional_id
    with kafka.fault(api="EndTxn", transactional_id=name, action=REFUSAL):
        world.committer("run1").commit(prepared, 0)
    assert "aborted orphan" not in caplog.text
    assert "are swept later: EndTxn for transactional id" in caplog.text
    assert kafka.transaction(name).state == "Ongoing"


def test_all_others_are_ended_before_the_refusal_is_raised(
    kafka: EmbeddedBroker, world: World, prepared: list[Prepared]
) -> None:
    opened = [each.transaction.opened for each in prepared]
    with kafka.fault(api="EndTxn", transactional_id=opened[0].transactional_id, action=REFUSAL):
        with pytest.raises(AuthorizationError, match=opened[0].transactional_id):
            world.cluster.end_transactions(opened, commit=True)
        assert world.state_of(prepared[1]) == "CompleteCommit"
