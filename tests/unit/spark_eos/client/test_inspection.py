"""What the description of a transaction says about what is open in a partition."""

import pytest

from broker_core.types import TopicPartition
from spark_eos.client.inspection import TransactionDescription


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
    place = TopicPartition("t", 0)
    described = TransactionDescription("an-id", 0, state, 7, epoch, 60_000, 0, (place,))
    assert described.will_end(place, 7, 4) is will_end
    assert not described.will_end(place, 8, epoch)
    assert not described.will_end(TopicPartition("t", 1), 7, epoch)
