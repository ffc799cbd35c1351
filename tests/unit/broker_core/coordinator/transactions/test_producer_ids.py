"""Producer ids come from durable blocks and are never assigned twice (rules A.14)."""

import pytest

from broker_core.coordinator.producer_ids import ProducerIds
from broker_core.errors import ErrorCode, KafkaError


class Blocks:
    """A source of blocks of ten ids that counts them and fails while `failing` is set."""

    def __init__(self) -> None:
        self.given = 0
        self.failing = False

    def __call__(self) -> tuple[int, int]:
        if self.failing:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "ordered by the test")
        self.given += 1
        return (self.given - 1) * 10, 10


# Rule A.14/2.
def test_ids_are_consecutive_across_blocks() -> None:
    ids = ProducerIds(Blocks())
    assert [ids.next() for _ in range(35)] == list(range(35))


def test_no_block_is_allocated_before_the_first_use() -> None:
    blocks = Blocks()
    ProducerIds(blocks)
    assert blocks.given == 0


# Rule A.14/3.
def test_next_block_is_allocated_at_nine_tenths_usage() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks)
    for _ in range(9):
        ids.next()
    assert blocks.given == 1
    ids.next()
    assert blocks.given == 2


# Rule A.14/2.
def test_rest_of_a_block_is_lost_at_restart_and_never_reused() -> None:
    blocks = Blocks()
    first = ProducerIds(blocks)
    given = {first.next() for _ in range(3)}
    second = ProducerIds(blocks)
    assert given.isdisjoint(second.next() for _ in range(20))


def test_allocator_failure_has_no_effect_while_ids_remain() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks)
    ids.next()
    blocks.failing = True
    assert [ids.next() for _ in range(9)] == list(range(1, 10))


# Rule A.14/4.
def test_missing_block_returns_a_retriable_error_and_the_retry_succeeds() -> None:
    blocks = Blocks()
    blocks.failing = True
    ids = ProducerIds(blocks)
    with pytest.raises(KafkaError) as refused:
        ids.next()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    blocks.failing = False
    assert ids.next() == 0


def test_empty_block_is_rejected() -> None:
    with pytest.raises(AssertionError):
        ProducerIds(lambda: (0, 0)).next()
