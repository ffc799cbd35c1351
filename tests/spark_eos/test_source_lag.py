"""Check that a last stable offset that stands still becomes visible."""

import logging

import pytest

from broker_core.types import TopicPartition
from spark_eos.source.lag import LagWatch

T0 = TopicPartition("t", 0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_both_lags_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="spark_eos.source.lag"):
        LagWatch(1_000, str, Clock()).observe({T0: 5}, {T0: 5}, {T0: 25})
    assert "t-0: read up to 5, lag 0 to the last stable offset, 20 to the high watermark" in caplog.text


def test_a_standing_end_is_warned_of_once_and_again_after_it_moved(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = LagWatch(60_000, lambda tp: f"Blame {tp}", clock)

    def warnings_after(seconds: float, stable: int, high_watermark: int) -> int:
        clock.now += seconds
        caplog.clear()
        watch.observe({T0: stable}, {T0: stable}, {T0: high_watermark})
        return len([record for record in caplog.records if "Blame t-0" in record.getMessage()])

    assert warnings_after(0, 5, 25) == 0
    assert warnings_after(59, 5, 26) == 0
    assert warnings_after(1, 5, 27) == 1
    assert warnings_after(100, 5, 27) == 0
    assert warnings_after(1, 9, 27) == 0
    assert warnings_after(60, 9, 27) == 1


def test_an_idle_topic_is_no_standing_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = LagWatch(60_000, lambda tp: f"Blame {tp}", clock)
    for _ in range(3):
        watch.observe({T0: 5}, {T0: 5}, {T0: 5})
        clock.now += 100
    watch.observe({T0: 5}, {T0: 5}, {T0: 6})
    assert not caplog.records


def test_looking_is_due_now_and_then() -> None:
    clock = Clock()
    watch = LagWatch(60_000, lambda tp: f"Blame {tp}", clock)
    assert watch.is_due()
    assert not watch.is_due()
    clock.now += 10
    assert watch.is_due()
