"""Leaders and coordinators of an embedded cluster move from any thread while clients continue without errors."""

from collections.abc import Iterator

import pytest

from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode, KafkaError

BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        listeners={},
        brokers=3,
        topics={"t": 1},
        config={"transaction.state.log.num.partitions": "3"},
    ) as kafka:
        yield kafka


def test_leader_is_moved_to_the_given_broker(kafka: EmbeddedBroker) -> None:
    for broker in BROKERS:
        kafka.move_leader(("t", 0), broker)
        assert kafka.leader(("t", 0)) == broker


@pytest.mark.parametrize("key", [{"transactional_id": "some"}, {"group": "some"}])
def test_coordinator_is_moved_to_the_given_broker(kafka: EmbeddedBroker, key: dict[str, str]) -> None:
    for broker in BROKERS:
        kafka.move_coordinator(broker, **key)
        assert kafka.coordinator(**key) == broker


def test_unknown_broker_or_partition_is_an_error_and_moves_nothing(kafka: EmbeddedBroker) -> None:
    leader, coordinator = kafka.leader(("t", 0)), kafka.coordinator(group="some")
    with pytest.raises(KafkaError) as refused:
        kafka.move_leader(("t", 0), 9)
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        kafka.move_coordinator(9, group="some")
    for unknown in (("t", 1), ("t", -1), ("none", 0)):
        with pytest.raises(KafkaError) as refused:
            kafka.move_leader(unknown, 1)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (kafka.leader(("t", 0)), kafka.coordinator(group="some")) == (leader, coordinator)


@pytest.mark.parametrize("key", [{}, {"transactional_id": "a", "group": "b"}])
def test_coordinator_move_takes_either_an_id_or_a_group(kafka: EmbeddedBroker, key: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either a transactional_id or a group"):
        kafka.move_coordinator(1, **key)
    with pytest.raises(ValueError, match="either a transactional_id or a group"):
        kafka.coordinator(**key)


def test_move_from_a_fault_action_is_immediate_without_deadlock(kafka: EmbeddedBroker) -> None:
    wanted = next(broker for broker in BROKERS if broker != kafka.leader(("t", 0)))

    def move(_: object) -> int:
        kafka.move_leader(("t", 0), wanted)
        return kafka.leader(("t", 0))

    assert kafka._call(move) == wanted == kafka.leader(("t", 0))


def test_move_to_a_broker_that_is_stopped_says_so() -> None:
    with EmbeddedBroker(brokers=2, topics={"t": 1}, listeners={}) as kafka:
        kafka.broker(2).stop()
        with pytest.raises(KafkaError, match=r"broker 2 does not run: .*kafka\.broker\(2\)\.start\(\).*another broker"):
            kafka.move_leader(("t", 0), 2)
        with pytest.raises(KafkaError, match=r"broker 2 does not run: .*kafka\.broker\(2\)\.start\(\).*another broker"):
            kafka.move_coordinator(2, group="some")
