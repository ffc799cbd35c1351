"""What a coordinator's description of a transactional id says about what is open in a partition."""

import pytest

from broker_core.types import TopicPartition
from spark_eos.client.inspection import TransactionDescription
from spark_eos.client.producer_scan import ActiveProducer
from spark_eos.transactions.findings import Owner, PartitionTransaction

PLACE = TopicPartition("t", 0)


def opened(place: TopicPartition, producer_id: int, epoch: int) -> PartitionTransaction:
    return PartitionTransaction(place, ActiveProducer(producer_id, epoch, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("state", "epoch", "will_end"),
    [
        ("Ongoing", 4, True),
        ("PrepareCommit", 4, True),
        ("PrepareAbort", 5, True),
        ("PrepareCommit", 5, True),
        ("Ongoing", 5, False),
        ("Ongoing", 3, False),
        ("PrepareAbort", 6, False),
    ],
)
def test_coordinator_ends_only_the_transaction_of_its_own_epoch(state: str, epoch: int, will_end: bool) -> None:
    owner = Owner(1, TransactionDescription("an-id", 0, state, 7, epoch, 60_000, 0, (PLACE,)))
    assert owner.will_end(opened(PLACE, 7, 4)) is will_end
    assert not owner.will_end(opened(PLACE, 8, epoch))
    assert not owner.will_end(opened(TopicPartition("t", 1), 7, epoch))


@pytest.mark.parametrize(
    ("state", "producer_id", "epoch", "has_committed"),
    [
        ("CompleteCommit", 7, 5, True),
        ("CompleteCommit", 7, 4, False),
        ("CompleteCommit", 8, 5, False),
        ("CompleteAbort", 7, 5, False),
    ],
)
def test_only_a_commit_of_the_next_epoch_has_committed_it(
    state: str, producer_id: int, epoch: int, has_committed: bool
) -> None:
    owner = Owner(1, TransactionDescription("an-id", 0, state, producer_id, epoch, 60_000, 0, ()))
    assert owner.has_committed(opened(PLACE, 7, 4).producer) is has_committed
