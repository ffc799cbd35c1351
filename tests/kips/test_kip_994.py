"""KIP-994, Minor Enhancements to ListTransactions and DescribeTransactions APIs: transactions by their age."""

import pytest

from tests.support.broker_core.kip_world import NONE, Session, World
from tests.support.raw_session import Identity


@pytest.fixture
def aged(world: World) -> Session:
    """Return three ids: one with a transaction 60 s old, one with 10 s, and one without any transaction."""
    for name, pause_ms in (("old", 50_000), ("young", 10_000)):
        session = world.session(name)
        session.write(session.init(timeout_ms=900_000)[1])
        world.pass_ms(pause_ms)
    idle = world.session("idle")
    idle.init()
    return idle


# Rule F.3/3.
@pytest.mark.parametrize(
    ("duration_ms", "listed"),
    [
        (-1, {"old", "young", "idle"}),
        (0, {"old", "young", "idle"}),
        (9_999, {"old", "young", "idle"}),
        (10_000, {"old", "idle"}),
        (59_999, {"old", "idle"}),
        (60_000, {"idle"}),
    ],
)
def test_only_transactions_running_longer_are_listed(aged: Session, duration_ms: int, listed: set[str]):
    """ListTransactions, duration filter: only longer durations pass; a negative filter passes everything.

    In Kafka an id without any transaction passes every filter.
    """
    assert set(aged.list(duration_ms=duration_ms)) == listed


def test_duration_narrows_the_other_filters(aged: Session):
    """ListTransactions: an id must match all filters."""
    assert set(aged.list(states=["Ongoing"], duration_ms=10_000)) == {"old"}
    young = aged.list()["young"][0]
    assert aged.list(producer_ids=[young], duration_ms=10_000) == {}


def test_age_of_a_completed_transaction_keeps_growing(world: World, aged: Session):
    """ListTransactions: the last start time stays until the next transaction begins or the id is initialized again."""
    old = world.session("old")
    described = old.describe()
    assert old.end(Identity(described.producer_id, described.producer_epoch), commit=True, version=5)[0] == NONE
    assert set(aged.list(duration_ms=59_999)) == {"old", "idle"}
    assert set(aged.list(duration_ms=60_000)) == {"idle"}
    old.init()
    assert set(aged.list(duration_ms=60_000)) == {"old", "idle"}
