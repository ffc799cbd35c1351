"""Check which identity a worker process goes on with."""

import pytest

from broker_core.types import ProducerIdentity
from spark_eos.sink.pool import IdentityPool, next_identity, pool_of
from spark_eos.sink.ports import Description, Ending, TransactionState
from tests.spark_eos.sink_cluster import MemoryCluster

S = TransactionState
LAST = ProducerIdentity(7, 3)


def _described(state: TransactionState, producer_id: int = 7, epoch: int = 4) -> Description:
    return Description("id", state, ProducerIdentity(producer_id, epoch), 60_000, -1)


@pytest.mark.parametrize(("begun", "version", "description", "goes_on"), [
    (2, 2, _described(S.COMPLETE_COMMIT), True),
    (2, 2, _described(S.PREPARE_COMMIT), True),
    (1, 2, _described(S.COMPLETE_COMMIT), False),
    (2, 1, _described(S.COMPLETE_COMMIT), False),
    (1, 1, _described(S.COMPLETE_COMMIT, epoch=3), False),
    (2, 2, _described(S.COMPLETE_COMMIT, epoch=3), False),
    (2, 2, _described(S.COMPLETE_COMMIT, epoch=5), False),
    (2, 2, _described(S.COMPLETE_COMMIT, producer_id=8), False),
    (2, 2, _described(S.COMPLETE_ABORT), False),
    (2, 2, _described(S.PREPARE_ABORT), False),
    (2, 2, _described(S.EMPTY), False),
    (2, 2, _described(S.DEAD), False),
    (2, 2, None, False),
])
def test_only_a_committed_v2_transaction_lets_the_next_one_begin_at_once(
    begun: int, version: int, description: Description | None, goes_on: bool
) -> None:
    expected = ProducerIdentity(7, 4) if goes_on else None
    assert next_identity(LAST, begun, version, description) == expected


def test_an_epoch_near_exhaustion_is_never_gone_on_with() -> None:
    last = ProducerIdentity(7, 32765)
    assert next_identity(last, 2, 2, _described(S.COMPLETE_COMMIT, epoch=32766)) is None


def _pool(cluster: MemoryCluster) -> IdentityPool:
    return IdentityPool(cluster, "p", "q", "r", "w")


def _use(cluster: MemoryCluster, pool: IdentityPool, micro_batch: int = 0) -> tuple[str, ProducerIdentity]:
    taken = pool.take(60_000, micro_batch)
    assert cluster.ids[taken.transactional_id].identity == taken.identity
    cluster.prepare(taken.transactional_id)
    return taken.transactional_id, taken.identity


def _end(cluster: MemoryCluster, name: str, identity: ProducerIdentity, commit: bool) -> None:
    cluster.end_transactions([Ending(name, identity, commit, cluster.version)])


@pytest.mark.parametrize("version", [1, 2])
def test_a_steady_worker_keeps_one_id_and_never_repeats_an_identity(version: int) -> None:
    cluster = MemoryCluster(version=version)
    pool = _pool(cluster)
    seen = []
    for _ in range(5):
        name, identity = _use(cluster, pool)
        seen.append(identity)
        _end(cluster, name, identity, True)
    assert len(pool) == 1 and len(set(seen)) == 5
    assert cluster.calls.count("init p.q.r.w.0") == (1 if version == 2 else 5)


def test_an_open_transaction_is_left_alone_and_another_id_taken() -> None:
    cluster = MemoryCluster()
    pool = _pool(cluster)
    first, first_identity = _use(cluster, pool)
    second, _ = _use(cluster, pool)
    assert (first, second) == ("p.q.r.w.0", "p.q.r.w.1")
    assert cluster.ids[first].state is S.ONGOING
    _end(cluster, first, first_identity, True)
    assert _use(cluster, pool)[0] == first
    assert len(pool) == 2


@pytest.mark.parametrize("what", ["swept", "timed out"])
def test_after_anything_but_a_commit_the_owner_initialises_anew(what: str) -> None:
    cluster = MemoryCluster()
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    if what == "swept":
        _end(cluster, name, identity, False)
    else:
        cluster.time_out(name)
    _, following = _use(cluster, pool)
    assert following != identity and len(pool) == 1
    assert cluster.calls.count("init p.q.r.w.0") == 2


def test_an_id_whose_initialisation_was_not_answered_is_given_up() -> None:
    """It may be initialised late, and what it had begun meanwhile would be aborted."""
    cluster = MemoryCluster(lose_answer_of={"p.q.r.w.0", "p.q.r.w.1"})
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    assert name == "p.q.r.w.2" and len(pool) == 1
    _end(cluster, name, identity, False)
    cluster.lose_answer_of.add(name)
    assert _use(cluster, pool)[0] == "p.q.r.w.3" and len(pool) == 1
    assert [cluster.calls.count(f"init p.q.r.w.{number}") for number in range(4)] == [1, 1, 2, 1]


def test_an_exhausted_epoch_is_passed_over() -> None:
    cluster = MemoryCluster()
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    _end(cluster, name, identity, True)
    cluster.ids[name].identity = ProducerIdentity(identity.producer_id, 32765)
    _, following = _use(cluster, pool)
    assert following.producer_epoch == 0 and following.producer_id != identity.producer_id


def test_an_id_that_its_coordinator_does_not_know_is_left_alone() -> None:
    """It may have a transaction open all the same: a coordinator that has just moved does not know it for a moment."""
    cluster = MemoryCluster()
    pool = _pool(cluster)
    first, _ = _use(cluster, pool)
    cluster.forgotten.add(first)
    assert _use(cluster, pool)[0] == "p.q.r.w.1"
    assert cluster.ids[first].state is S.ONGOING


def test_a_pool_made_anew_never_meets_the_ids_of_the_one_before() -> None:
    cluster, same_broker = MemoryCluster(), MemoryCluster()
    same_broker.ids = cluster.ids
    first, _ = _use(cluster, pool_of(cluster, "p", "q", "r"))
    assert pool_of(cluster, "p", "q", "r") is pool_of(cluster, "p", "q", "r")
    second, _ = _use(same_broker, pool_of(same_broker, "p", "q", "r"))
    for number in range(64):
        pool_of(cluster, "p", f"job{number}", "r")
    third, _ = _use(cluster, pool_of(cluster, "p", "q", "r"))
    assert len({first, second, third}) == 3
    assert {cluster.ids[name].state for name in (first, second, third)} == {S.ONGOING}


def test_at_level_0_an_id_that_transactions_v2_have_used_is_left_alone() -> None:
    cluster = MemoryCluster()
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    _end(cluster, name, identity, True)
    cluster.version = 0
    other, identity = _use(cluster, pool)
    assert other == "p.q.r.w.1"
    _end(cluster, other, identity, True)
    assert _use(cluster, pool)[0] == other
    assert cluster.calls.count(f"init {name}") == 1
