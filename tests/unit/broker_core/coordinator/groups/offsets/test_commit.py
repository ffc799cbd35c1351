"""Members that may commit offsets, plainly and in a transaction (rules E.1, E.4), and the offsets a fetch returns."""

import pytest

from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.offsets.store import FetchedOffset, OffsetCommit, OffsetsResult, OffsetToCommit
from broker_core.coordinator.groups.shard import APPEND_ERRORS, translate_append_error
from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, NONE, PRODUCER, T0, T1, U0, GroupWorld

ILLEGAL, UNKNOWN, FENCED = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS

# Callers. The group has the static member i-1 of instance i and the dynamic member c-2 in generation 2, or is empty.
NO_MEMBER = (-1, "", None)
STRANGER_OUTSIDE = (-1, "x", None)
STRANGER = (2, "x", None)
MEMBER = (2, "c-2", None)
STATIC = (2, "i-1", "i")
IMPOSTOR = (2, "c-2", "i")
UNKNOWN_INSTANCE = (2, "c-2", "x")
OLD_GENERATION = (1, "c-2", None)
NO_GENERATION = (-1, "c-2", None)


def world_in(state: GroupState | None) -> GroupWorld:
    """Return a world whose group is in this state; with None it does not exist."""
    world = GroupWorld()
    if state is None:
        return world
    static = world.join(group_instance_id="i").now.member_id
    other = world.join()
    world.join(static, group_instance_id="i")
    assert other.now.member_id == "c-2"
    if state is not GroupState.COMPLETING_REBALANCE:
        world.settle(2, {static: b"I", "c-2": b"C"})
    if state is GroupState.PREPARING_REBALANCE:
        world.join()
    if state is GroupState.EMPTY:
        world.pass_ms(100_000)
    assert world.group().state is state
    return world


PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE, EMPTY = GroupState.STABLE, GroupState.EMPTY
LIVE = (PREPARING, COMPLETING, STABLE)

# (states, caller, verdict outside a transaction, verdict inside)
RULES = [
    ((None, EMPTY), NO_MEMBER, NONE, NONE),
    ((None, EMPTY), STRANGER_OUTSIDE, NONE, NONE),
    ((None,), STRANGER, ILLEGAL, ILLEGAL),
    ((EMPTY,), STRANGER, UNKNOWN, UNKNOWN),
    (LIVE, NO_MEMBER, UNKNOWN, NONE),
    (LIVE, STRANGER_OUTSIDE, UNKNOWN, UNKNOWN),
    (LIVE, STRANGER, UNKNOWN, UNKNOWN),
    ((PREPARING, STABLE), MEMBER, NONE, NONE),
    ((PREPARING, STABLE), STATIC, NONE, NONE),
    ((COMPLETING,), MEMBER, IN_PROGRESS, NONE),
    ((COMPLETING,), STATIC, IN_PROGRESS, NONE),
    (LIVE, IMPOSTOR, FENCED, FENCED),
    (LIVE, UNKNOWN_INSTANCE, UNKNOWN, UNKNOWN),
    (LIVE, OLD_GENERATION, ILLEGAL, ILLEGAL),
    (LIVE, NO_GENERATION, ILLEGAL, ILLEGAL),
]
CASES = [(state, caller, plain, txn) for states, caller, plain, txn in RULES for state in states]


# Rules E.1/9, E.1/10, E.1/12, E.1/13, E.1/14, E.1/15, E.1/20, E.6/6 and E.6/7.
@pytest.mark.parametrize(("state", "caller", "plain", "txn"), CASES)
def test_commit_permission_table(
    state: GroupState | None, caller: tuple[int, str, str | None], plain: ErrorCode, txn: ErrorCode
):
    fields = dict(zip(("generation_id", "member_id", "group_instance_id"), caller, strict=True))
    for commit, verdict in ((world_in(state).commit, plain), (world_in(state).txn_commit, txn)):
        assert commit(**fields) is verdict
    world = world_in(state)
    assert world.commit(7, **fields) is plain
    assert world.fetch() == (7 if plain is NONE else -1)
    assert (GROUP in world.shard().groups) is (state is not None or plain is NONE)


# Rule E.1/18.
@pytest.mark.parametrize(
    ("metadata", "verdict"),
    [
        ("x" * 5, NONE),
        ("x" * 6, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (None, NONE),
        ("\U0001f600" * 2, NONE),
        ("\U0001f600" * 3, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
@pytest.mark.parametrize("transactional", [False, True])
def test_oversized_metadata_fails_its_partition_alone(metadata: str | None, verdict: ErrorCode, transactional: bool):
    world = GroupWorld(offset_metadata_max_bytes=5)
    offsets = {T0: OffsetToCommit(1, 3, metadata), T1: OffsetToCommit(2)}
    request = OffsetCommit(GROUP, offsets, producer=PRODUCER if transactional else None)
    verdicts = world.coordinator.commit_offsets(request, world.now_ms)
    if transactional:
        world.end(commit=True)
    assert verdicts == {T0: verdict, T1: NONE}
    fetched = world.coordinator.fetch_offsets(GROUP, [T0, T1]).offsets
    assert fetched[T1] == FetchedOffset(NONE, 2)
    assert fetched[T0] == (FetchedOffset(NONE, 1, 3, metadata or "") if verdict is NONE else FetchedOffset())


def test_metadata_too_long_for_a_record_is_refused_regardless_of_the_limit():
    world = GroupWorld(offset_metadata_max_bytes=10**6)
    offsets = {T0: OffsetToCommit(1, metadata="x" * 32_768)}
    assert world.coordinator.commit_offsets(OffsetCommit(GROUP, offsets), 0) == {
        T0: ErrorCode.OFFSET_METADATA_TOO_LARGE
    }


# Rule E.1/6.
@pytest.mark.parametrize(("group_id", "plain", "txn"), [("", NONE, ErrorCode.INVALID_GROUP_ID), ("g", NONE, NONE)])
def test_only_commits_without_a_member_may_use_an_empty_group_id(group_id: str, plain: ErrorCode, txn: ErrorCode):
    world = GroupWorld()
    assert world.txn_commit(group_id=group_id) is txn
    assert world.commit(5, group_id=group_id) is plain
    assert world.coordinator.fetch_offsets(group_id, [T0]).offsets[T0].offset == 5


SOURCES = {
    13: 14,
    3: 15,
    19: 15,
    7: 15,
    6: 16,
    56: 16,
    4: -1,
    10: -1,
    18: -1,
    14: 14,
    15: 15,
    16: 16,
    47: 47,
    48: 48,
    49: 49,
    51: 51,
    120: 120,
}


# Rules E.4/1, E.4/2, E.4/3, E.4/4 and E.4/5.
@pytest.mark.parametrize(("source", "answer"), SOURCES.items())
def test_log_errors_are_translated_for_the_client(source: int, answer: int):
    assert translate_append_error(ErrorCode(source)) is ErrorCode(answer)
    for name in ("commit", "txn_commit"):
        world = GroupWorld()
        world.journal.refuse_next.append(ErrorCode(source))
        assert getattr(world, name)() is ErrorCode(answer)
        assert GROUP not in world.shard().groups


# Rule E.4/5.
def test_other_errors_are_not_translated():
    changed = {code.value for code in ErrorCode if translate_append_error(code) is not code}
    assert changed == {code.value for code in APPEND_ERRORS} == {3, 4, 6, 7, 10, 13, 18, 19, 56}


# Rule A.13 receiver/5.
@pytest.mark.parametrize(
    ("source", "answer"), [(6, 6), (56, 6), (3, 6), (19, 6), (13, 6), (47, 47), (52, 52), (10, -1)]
)
def test_refused_marker_returns_an_error_for_the_transaction_coordinator(source: int, answer: int, world: GroupWorld):
    world.txn_commit(7)
    world.journal.refuse_next.append(ErrorCode(source))
    assert world.end(commit=True) is ErrorCode(answer)
    assert world.fetch(require_stable=True) == -ErrorCode.UNSTABLE_OFFSET_COMMIT


# Rule E.3/3.
def test_fetch_of_an_uncommitted_partition_is_not_an_error(world: GroupWorld):
    assert world.coordinator.fetch_offsets("unknown", [T0]) == OffsetsResult(NONE, {T0: FetchedOffset()})
    assert world.coordinator.fetch_offsets("unknown", None) == OffsetsResult(NONE, {})


def test_fetch_of_all_partitions_lists_committed_offsets(world: GroupWorld):
    world.commit(1, T0)
    world.commit(2, U0)
    world.txn_commit(3, U0)
    world.txn_commit(4, T1)
    every = world.coordinator.fetch_offsets(GROUP, None).offsets
    assert every == {T0: FetchedOffset(NONE, 1), U0: FetchedOffset(NONE, 2)}
    stable = world.coordinator.fetch_offsets(GROUP, None, require_stable=True).offsets
    assert stable == {T0: FetchedOffset(NONE, 1), U0: FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)}


def test_commit_of_several_partitions_is_one_append(world: GroupWorld):
    offsets = {T0: OffsetToCommit(1), T1: OffsetToCommit(2), U0: OffsetToCommit(3)}
    world.journal.refuse_next.append(ErrorCode.MESSAGE_TOO_LARGE)
    verdicts = world.coordinator.commit_offsets(OffsetCommit(GROUP, offsets), 0)
    assert set(verdicts.values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert world.journal.partitions.get(0, []) == []


def test_commit_without_partitions_records_nothing(world: GroupWorld):
    assert world.coordinator.commit_offsets(OffsetCommit(GROUP, {}), 0) == {}
    assert world.journal.partitions.get(0, []) == []
