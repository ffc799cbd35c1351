"""Transactions time out and unused ids expire (rules A.11)."""

from collections.abc import Sequence

import pytest

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.transactions.messages import InitProducerId
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity
from tests.support.broker_core.transaction_world import ID, World

E = ErrorCode


# Rules A.10/1, A.10/2 and A.11/1.
@pytest.mark.parametrize("level", [0, 1, 2])
def test_transaction_over_its_timeout_is_aborted_by_the_next_scan(level: int) -> None:
    world = World(level)
    held = world.identity()
    world.add(held)
    for _ in range(6):
        world.advance(10_000)
        assert world.state() == "Ongoing"
    world.advance(10_000)
    assert world.state() == "PrepareAbort"
    (order,) = world.run_markers()
    end = order.end
    assert (end.commit, end.producer.producer_epoch, end.transaction_version) == (False, 1, 2 if level == 2 else 0)
    if level == 2:
        assert world.end(held) == (E.INVALID_TXN_STATE, -1, -1)
        assert world.end(held, commit=False) == (E.NONE, 4000, 1)
        assert world.add(ProducerIdentity(4000, 1)) is E.NONE
    else:
        assert world.end(held) == (E.PRODUCER_FENCED, -1, -1)
        assert world.end(held, commit=False) == (E.PRODUCER_FENCED, -1, -1)


# Rules A.10/4 and A.11/2.
def test_refused_abort_is_retried_by_the_next_scan_with_one_epoch_bump(world: World) -> None:
    world.add(world.identity())
    world.journal.refuse_next = [E.NOT_ENOUGH_REPLICAS]
    world.advance(70_000)
    assert world.state() == "Ongoing"
    world.advance(10_000)
    assert world.state() == "PrepareAbort"
    assert world.image().producer_epoch == 1


def test_coordinator_schedules_scans(world: World) -> None:
    assert world.coordinator.next_deadline_ms() == world.now_ms + 10_000
    world.advance(10_000)
    assert world.coordinator.next_deadline_ms() == world.now_ms + 10_000
    assert world.instance().next_deadline_ms() is None


# Expiry


def idle(world: World, state: str) -> None:
    held = world.identity()
    if state != "Empty":
        world.add(held)
        world.end(held, commit=state == "CompleteCommit")
        world.run_markers()
    assert world.state() == state


# Rules A.5 more/3, A.11/3 and A.11/6.
@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_idle_id_expires_after_its_retention(state: str) -> None:
    world = World(transactional_id_expiration_ms=20_000_000)
    idle(world, state)
    held = world.image().identity
    world.advance(19_999_999)
    assert ID in world.coordinator.images()
    world.advance(3_600_000)
    assert world.coordinator.images() == {}
    assert world.history()[-1] is None
    assert world.add(held) is E.INVALID_PRODUCER_ID_MAPPING
    assert world.coordinator.describe(ID) is E.TRANSACTIONAL_ID_NOT_FOUND
    world.fail_over()
    assert world.coordinator.images() == {}
    assert world.init(ID, *held) == (E.NONE, 4001, 0)


# Rules A.11/1 and A.11/8.
def test_two_phase_and_prepared_transactions_do_not_time_out_nor_do_their_ids_expire() -> None:
    world = World(transactional_id_expiration_ms=1, transaction_two_phase_commit_enable=True)
    answer = world.coordinator.init_producer_id(InitProducerId(ID, 1, enable_2pc=True), world.now_ms)
    held = ProducerIdentity(*answer[1:])
    world.add(held)
    world.advance(10**12)
    assert world.state() == "Ongoing"
    world.end(held)
    world.advance(10**12)
    assert world.state() == "PrepareCommit"


# Rule A.11/4.
def test_refused_tombstone_removes_nothing() -> None:
    world = World(transactional_id_expiration_ms=1)
    world.identity()
    world.journal.refuse_next = [E.NOT_ENOUGH_REPLICAS]
    world.advance(3_600_000)
    assert ID in world.coordinator.images()
    world.advance(3_600_000)
    assert world.coordinator.images() == {}


# Rule A.11/5.
def test_tombstones_are_batched_up_to_the_message_size(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(transactional_id_expiration_ms=1, partition_count=1)
    world.journal.batch_limit_bytes = 300
    for number in range(20):
        world.identity(f"id-{number}")
    sizes = []
    append = world.journal.append

    def watched(
        partition: int, epoch: int, records: Sequence[JournalRecord], now_ms: int, producer: None = None
    ) -> int:
        sizes.append(61 + sum(len(record.key) + 30 for record in records))
        return append(partition, epoch, records, now_ms, producer)

    monkeypatch.setattr(world.journal, "append", watched)
    world.advance(3_600_000)
    assert world.coordinator.images() == {}
    assert len(sizes) > 1
    assert all(size <= 300 for size in sizes)
