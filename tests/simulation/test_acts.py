"""Acts of users and operators around a query: a share of the seeds, and a sink whose checks are switched off."""

from collections.abc import Mapping
from typing import Any

import pytest

from spark_eos.sink.protocol import commit
from spark_eos.sink.protocol.decision_reader import DecisionScan
from tests.simulation.acts import play
from tests.support.short_form import chosen

_SEEDS_IN_ONE = 10


@pytest.mark.parametrize("first", chosen(range(1, 100, _SEEDS_IN_ONE), "tens of worlds with acts", of=5))
def test_seeds(first: int) -> None:
    for seed in range(first, first + _SEEDS_IN_ONE):
        assert play(seed).problems == [], f"python -m tests.simulation --acts --replay {seed}"


async def _nothing(*_: Any, **__: Any) -> Mapping[Any, Any]:
    return {}


@pytest.mark.parametrize(
    ("owner", "name", "seed", "acts", "shown"),
    [
        (DecisionScan, "used_ids", 4, ["prefix", "decision topic"], "is there 2 times"),
        (DecisionScan, "used_ids", 2, ["recreate decisions"], "is there 2 times"),
        (commit, "check_rows", 2, ["other rows"], "was reported, and .* are not there"),
    ],
)
def test_check_of_the_sink_that_is_switched_off_is_missed(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, seed: int, acts: list[str], shown: str
) -> None:
    only = ["death", *acts]
    assert play(seed, only).problems == []
    monkeypatch.setattr(owner, name, _nothing)
    with pytest.raises(AssertionError, match=shown):
        assert play(seed, only).problems == []
