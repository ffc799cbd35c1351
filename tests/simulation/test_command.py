"""The command reports what failed and how to reproduce it, and which faults never occurred."""

import re
import shlex
from collections import Counter

import pytest

from tests.simulation import __main__ as command
from tests.simulation.broken import BROKEN
from tests.support.simulated.faults import FaultKind

_NAME = "aborted list left out"


def _replay_words(output: str) -> list[str]:
    """Return the words that follow the module's name in the printed command."""
    [line] = re.findall(r"Replay it with: (.+)", output)
    words = shlex.split(line)
    assert words[:3] == ["python", "-m", "tests.simulation"]
    return words[3:]


def _problems(output: str) -> list[str]:
    return re.findall(r"^seed \d+: (?!\d+ events).+$", output, re.MULTILINE)


def test_first_failing_seed_is_printed_with_its_replay_command(capsys: pytest.CaptureFixture[str]) -> None:
    broken = BROKEN[_NAME]
    with broken.breakage():
        assert command.main(["--seeds", "3", "--first", str(broken.seed)]) == 1
        output = capsys.readouterr().out
        words = _replay_words(output)
        assert words == ["--replay", str(broken.seed)]
        assert f"1 seed from {broken.seed} on" in output
        assert "1 failed" in output
        assert command.main(words) == 1
        again = capsys.readouterr().out
    assert _problems(output) == _problems(again) != []
    assert len(again.splitlines()) > 100, "with its trace"
    assert command.main(words) == 0, "the correct broker does not fail"


def test_seed_that_exposes_a_broken_broker_is_printed_with_its_replay_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = BROKEN[_NAME]
    assert command.main(["--broken", _NAME, "--seeds", str(broken.seed)]) == 0
    output = capsys.readouterr().out
    assert f"{_NAME}: seed {broken.seed} shows it: {broken.kind}" in output
    words = _replay_words(output)
    assert command.main(words) == 1
    assert any(str(broken.kind) in problem for problem in _problems(capsys.readouterr().out))


def test_broken_broker_exposed_by_no_seed_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unmet = BROKEN[_NAME]._replace(kind=None, line="no world ever reports this")
    monkeypatch.setitem(BROKEN, _NAME, unmet)
    assert command.main(["--broken", _NAME, "--seeds", "1"]) == 1
    assert "no seed from 1 to 1 shows it" in capsys.readouterr().out


@pytest.mark.parametrize(("played", "is_complete"), [(199, True), (200, False)])
def test_fault_that_never_occurred_is_named_and_fails_a_long_run(
    played: int, is_complete: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = Counter({fault: 1 for fault in FaultKind if fault is not FaultKind.REORDERED})
    assert command._print_faults(faults, played) == is_complete
    assert f"Never occurred: {FaultKind.REORDERED.value}\n" in capsys.readouterr().out


def test_no_fault_is_reported_missing_when_all_occurred(capsys: pytest.CaptureFixture[str]) -> None:
    assert command._print_faults(Counter(dict.fromkeys(FaultKind, 1)), 200)
    assert "Never occurred" not in capsys.readouterr().out


def test_command_fails_when_a_fault_never_occurred(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ENOUGH_SEEDS", 2)
    assert command.main(["--seeds", "2"]) == 1
    assert "0 failed" in (output := capsys.readouterr().out)
    assert "Never occurred" in output
