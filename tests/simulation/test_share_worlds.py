"""Worlds of share groups: a share of the seeds, and brokers that are broken on purpose."""

import re
from collections.abc import Callable, Iterable
from functools import cache

import pytest

from broker_core.features.share_groups.partitions import acknowledgment
from broker_core.features.share_groups.partitions.in_flight import InFlight, RecordState
from broker_core.features.share_groups.partitions.share_partition import SharePartition
from broker_core.features.share_groups.states.coordinator import ShareShard
from broker_core.features.share_groups.states.state import SharePartitionKey
from tests.simulation.share_plan import draw_shares
from tests.simulation.world import Outcome as Played
from tests.simulation.world import play
from tests.support.short_form import chosen
from tests.support.simulated.faults import FaultKind

_SEEDS = 40
_SEEDS_IN_ONE = 20
Patch = Callable[[pytest.MonkeyPatch], None]


@cache
def played(seed: int) -> Played:
    """Play a world once for the tests that look at it."""
    return play(seed, shares=True)


@pytest.mark.parametrize("first", chosen(range(1, _SEEDS, _SEEDS_IN_ONE), "twenties of worlds of share groups", of=2))
def test_share_seeds(first: int) -> None:
    for seed in range(first, first + _SEEDS_IN_ONE):
        assert played(seed).problems == [], f"python -m tests.simulation --shares --replay {seed}"


# Seeds that once failed.
@pytest.mark.parametrize(
    ("seed", "story"),
    [
        (52, "the broker deleted states from the log before the snapshots that replaced them were durable"),
        (264, "the judge took a late acknowledgment for durable that had no effect"),
    ],
)
def test_share_seeds_that_once_failed_pass(seed: int, story: str) -> None:
    assert play(seed, shares=True).problems == [], story


def test_same_seed_gives_the_same_trace_of_a_share_world() -> None:
    assert play(3, shares=True).digest == played(3).digest != played(4).digest


def test_share_worlds_meet_crashes_moves_and_redeliveries() -> None:
    found = [played(seed) for seed in range(1, 9)]
    occurred = {kind for outcome in found for kind, count in outcome.faults.by_kind.items() if count}
    assert occurred >= {FaultKind.POWER_LOST, FaultKind.KILLED, FaultKind.LEADER_MOVED, FaultKind.COORDINATOR_MOVED}
    assert occurred >= {FaultKind.CLIENT_KILLED, FaultKind.CLIENT_PAUSED}
    assert {len(draw_shares(seed).share_groups) for seed in range(1, 9)} == {1, 2}


def _answer_without_recording(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "_write", lambda _self, _changes: None)


def _release_what_is_done(patch: pytest.MonkeyPatch) -> None:
    """Release accepted records too when a member closes its session."""

    def release(self: SharePartition, member_id: str) -> None:
        changes = [
            self.finish(first, last, each, RecordState.AVAILABLE)
            for first, last, each in self.batches.parts()
            if each.state is RecordState.ACKNOWLEDGED or each.member_id == member_id
        ]
        self.commit(changes)

    patch.setattr(SharePartition, "release_member", release)


def _deliver_without_limit(patch: pytest.MonkeyPatch) -> None:
    def finish(self: InFlight, state: RecordState, delivery_limit: int) -> None:
        self.state, self.member_id, self.lock_until_ms = state, "", None

    patch.setattr(InFlight, "finish", finish)


def _skip_released(patch: pytest.MonkeyPatch) -> None:
    """Let a released record end."""
    patch.setitem(acknowledgment._STATES, 2, RecordState.ARCHIVED)  # type: ignore[index]


def _forget_states_at_load(patch: pytest.MonkeyPatch) -> None:
    """Load only the latest record of a share partition, as if updates were snapshots."""

    def replay(self: ShareShard, key: SharePartitionKey, update: object) -> None:
        self.states[key] = self.states[key]._replace(start_offset=getattr(update, "start_offset", 0))

    patch.setattr(ShareShard, "_replay_update", replay)


# With the first seed that shows it: where worlds are drawn in another way, all are searched.
BROKEN: Iterable[tuple[Patch, int, str]] = [
    (_answer_without_recording, 1, r"after it was accepted|is not recorded"),
    (_release_what_is_done, 85, r"after it was accepted"),
    (_deliver_without_limit, 3, r"above \d"),
    (_skip_released, 1, r"though it was not acknowledged"),
    (_forget_states_at_load, 1, r"after it was accepted|released before"),
]


@pytest.mark.parametrize(("breakage", "first", "shown"), BROKEN)
def test_share_worlds_detect_a_broken_broker(breakage: Patch, first: int, shown: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        breakage(patch)
        for seed in (first, *range(1, 101)):
            if any(re.search(shown, problem) for problem in play(seed, shares=True).problems):
                return
    pytest.fail("no seed shows it")
