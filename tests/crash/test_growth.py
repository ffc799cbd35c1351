"""The verdict on samples of a long run, and the measurements of processes that they are made of."""

import math
import os
import socket

import pytest

from tests.crash.growth import CHECKPOINT, HEAP, IDS, KINDS, Sample, grown, memory_mib, size_kib, sockets, table
from tests.support.processes import tree

FLAT = [float(40 + number % 3) for number in range(12)]


def series(values: list[float], of: str = IDS.name) -> list[Sample]:
    return [{kind.name: 40.0 for kind in KINDS} | {of: value} for value in values]


@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.slack < math.inf])
def test_growth_of_each_kind_is_found(name: str) -> None:
    slack = next(kind.slack for kind in KINDS if kind.name == name)
    assert grown(series(FLAT, name)) == []
    assert grown(series(FLAT[::-1], name)) == []
    [found] = grown(series([value + number * slack / 2 for number, value in enumerate(FLAT)], name))
    assert found.startswith(f"{name} grew from ")


def test_a_single_sample_in_the_middle_of_something_is_no_growth() -> None:
    assert grown(series([*FLAT[:-1], 9_000.0])) == []
    assert grown(series([40.0, 9_000.0])) == []


def test_a_kind_that_cannot_be_measured_is_left_out() -> None:
    samples = [{CHECKPOINT.name: value} for value in FLAT]
    assert grown(samples) == []
    assert HEAP.name not in table(samples)
    assert f"| {CHECKPOINT.name} | 40 | 40 | 41 | 42 | 42 |" in table(samples)


def test_processes_are_measured(tmp_path) -> None:
    here = tree(os.getpid())
    before = sockets(here)
    with socket.socket(), socket.socket():
        assert sockets(here) == before + 2
    [own] = memory_mib(here[:1])
    held = bytearray(os.urandom(32 << 20))
    [more] = memory_mib(here[:1])
    assert 30 < more - own < 40
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "file.log").write_bytes(held[: 4 << 10])
    assert size_kib(tmp_path) == size_kib(tmp_path, "some/*.log") == 4
    assert size_kib(tmp_path / "missing") == 0
