"""The large runs at a small scale, to keep them working."""

import re

import pytest

from tests.benchmarks.large_runs import RUNS, open_scene


@pytest.mark.parametrize("what", RUNS)
def test_large_run_works_at_small_scale(what, capsys, monkeypatch):
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    with open_scene("broker_core") as scene:
        RUNS[what](scene, 0.001)
    sizes = re.findall(r"now: ([\d,]+) transactional ids", capsys.readouterr().out)
    assert sizes
    # The first line comes after all tasks have run once: from then on the driver's own id is the only new one.
    assert int(sizes[-1]) <= int(sizes[0]) + 1
