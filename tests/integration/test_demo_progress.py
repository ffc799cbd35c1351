"""The progress of the demo, on a terminal and in a log."""

import sys

import pytest

from examples.demo import progress
from tests.support.waiting import wait_until


@pytest.mark.parametrize("is_terminal", [True, False])
def test_long_step_is_shown_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(progress, "_TERMINAL_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_LOG_SECONDS", 0.01)
    calls: list[int] = []

    def describe() -> str:
        calls.append(1)
        return f"{len(calls)} of 9"

    with progress.shown(describe):
        wait_until(lambda: len(calls) > 2, "a few lines", deadline_s=60)
    shown = capsys.readouterr().out
    if is_terminal:
        assert "\n" not in shown and shown.startswith("\r\x1b[K    1 of 9, 0 s\r\x1b[K    2 of 9")
        assert shown.endswith("\r\x1b[K"), "the line is removed at the end"
    else:
        assert shown.startswith("    1 of 9, 0 s\n    2 of 9, 0 s\n") and "\x1b" not in shown
