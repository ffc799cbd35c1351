"""Acts of users and operators around a query: a share of the seeds, and a query whose checks are switched off."""

from collections.abc import Mapping
from typing import Any

import pytest

from spark_eos.sink.naming import TaskId
from spark_eos.sink.protocol import commit
from spark_eos.sink.protocol.decision_reader import DecisionScan
from spark_eos.source.data_loss import RewrittenLogs
from spark_eos.source.offsets import SourceOffset
from tests.simulation.acts import COPYING, READING, WRITING, Scene, play
from tests.support.short_form import chosen

_SEEDS_IN_ONE = 10


_TENS = [
    *((WRITING, "--acts", first) for first in range(1, 100, _SEEDS_IN_ONE)),
    *((READING, "--reads", first) for first in range(1, 300, _SEEDS_IN_ONE)),
    *((COPYING, "--copies", first) for first in range(1, 50, _SEEDS_IN_ONE)),
]


@pytest.mark.parametrize(("scene", "option", "first"), chosen(_TENS, "tens of worlds with acts", of=8))
def test_seeds(scene: Scene, option: str, first: int) -> None:
    for seed in range(first, first + _SEEDS_IN_ONE):
        assert play(seed, scene=scene).problems == [], f"python -m tests.simulation {option} --replay {seed}"


@pytest.mark.parametrize(
    ("scene", "seed"),
    [
        # A write was renamed together with decisionTopic, and its micro-batch was written again.
        (WRITING, 700_181),
        # The decisions were gone, and a query went on under the name that it has in foreachBatch.
        (WRITING, 256),
        # After a loss of power, a topic that was made again had the records of the one before.
        (WRITING, 704_033),
        # An end at a leader that had been replaced was believed, because it lay beyond what was read.
        (READING, 703_339),
    ],
)
def test_seeds_that_failed(scene: Scene, seed: int) -> None:
    """Worlds that had none of the newer acts."""
    assert play(seed, scene=scene._replace(newer_share=0)).problems == []


def _nothing(*_: Any, **__: Any) -> Mapping[Any, Any]:
    return {}


async def _nothing_later(*_: Any, **__: Any) -> Mapping[Any, Any]:
    return {}


def _any_key(*_: object) -> bool:
    return True


async def _names_only(scan: DecisionScan, used: Mapping[TaskId, bool], *_: object) -> None:
    """Find that the old names have pointers, and follow none."""
    scan._pointed.update(task.query for task in used)


@pytest.mark.parametrize(
    ("scene", "owner", "name", "without", "seed", "acts", "shown"),
    [
        (WRITING, DecisionScan, "used_ids", _nothing_later, 23, ["prefix", "decision topic"], "is there 2 times"),
        (WRITING, DecisionScan, "follow_pointers", _names_only, 177, ["name", "decision topic"], "is there 2 times"),
        (WRITING, DecisionScan, "used_ids", _nothing_later, 2, ["recreate decisions"], "is there 2 times"),
        (WRITING, commit, "check_rows", _nothing_later, 2, ["other rows"], "was reported, and .* are not there"),
        (READING, RewrittenLogs, "check", _nothing, 1, ["lose records", "policy"], "it never read"),
        (READING, SourceOffset, "is_other_topic", _nothing, 20, ["recreate output"], "it never read"),
        (COPYING, SourceOffset, "is_other_topic", _nothing, 3, ["recreate output"], "it never read"),
        (WRITING, DecisionScan, "_is_of_query", _any_key, 2, ["neighbour", "lose pointers"], "nothing .* explains"),
    ],
)
def test_check_that_is_switched_off_is_missed(
    monkeypatch: pytest.MonkeyPatch,
    scene: Scene,
    owner: object,
    name: str,
    without: object,
    seed: int,
    acts: list[str],
    shown: str,
) -> None:
    only = ["death", *acts]
    assert play(seed, only, scene=scene).problems == []
    monkeypatch.setattr(owner, name, without)
    with pytest.raises(AssertionError, match=shown):
        assert play(seed, only, scene=scene).problems == []
