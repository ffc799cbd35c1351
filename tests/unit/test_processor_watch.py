"""The processor time of a tree of processes, some of which end between two looks."""

import os
from collections.abc import Mapping

import pytest

from tests.support import slow
from tests.support.processes import Process, ProcessorWatch, Ticks

SECOND = os.sysconf("SC_CLK_TCK")
ROOT, DAEMON, WORKER = Process(1, 0), Process(2, 0), Process(3, 0)


def seconds(*looks: Mapping[Process, tuple[float, float]]) -> list[float]:
    """Return what each look but the first says."""
    readings = iter(looks)

    def read(_: int) -> dict[Process, Ticks]:
        return {
            process: Ticks(int(own * SECOND), int(waited * SECOND)) for process, (own, waited) in next(readings).items()
        }

    watch = ProcessorWatch(ROOT.pid, read)
    return [watch.look() for _ in looks[1:]]


def test_time_before_the_watch_does_not_count():
    assert seconds({ROOT: (100, 50)}, {ROOT: (101, 50)}, {ROOT: (103, 50), DAEMON: (4, 0)}) == [1, 7]


def test_an_ended_process_that_was_waited_for_counts_once():
    assert seconds({ROOT: (0, 0), DAEMON: (5, 2)}, {ROOT: (1, 10)}) == [4]


def test_a_process_that_lived_between_two_looks_counts_if_it_was_waited_for():
    assert seconds({ROOT: (0, 0)}, {ROOT: (0, 6)}) == [6]


def test_ended_processes_that_no_other_waited_for_take_nothing_away():
    # The daemon is killed, and its worker with it: the sum of the tree falls from 18 to 13 seconds.
    looks = ({ROOT: (1, 0), DAEMON: (2, 0), WORKER: (9, 0)}, {ROOT: (1, 0), DAEMON: (2, 0), WORKER: (15, 0)})
    assert seconds(*looks, {ROOT: (3, 2)}) == [6, 8]


def test_there_is_no_time_without_processes():
    assert seconds({}, {}) == [0]


def test_reports_of_quick_tests_share_a_look_at_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(slow, "ticks_of_descendants", lambda pid: looks.append(pid) or {})
    monkeypatch.setattr(slow, "_SAME_LOOK_S", 3_600.0)
    monkeypatch.setattr(slow.threading.Thread, "start", lambda _: None)
    slow._descendants.cache_clear()
    try:
        watch = slow.Watch()
        assert [watch.read()[1] >= 0 for _ in range(20)] == [True] * 20
    finally:
        slow._descendants.cache_clear()
    assert len(looks) == 2, "the one that the watch begins with, and one for all"
