"""`eos-kafka completion`: the shells themselves complete commands, options and values with its scripts."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark_eos.admin.command import ExitCode, main
from tests.support.terminal import DEADLINE_S, Terminal

SETTINGS = {
    "bash": "source {script}; PS1='prompt '",
    # The script is a function in a folder of $fpath.
    "zsh": "PS1='prompt '; fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D",
}
PLAIN = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i")}


def shell(name: str) -> str:
    """Return the path of a shell, or skip."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    name = request.param
    shell(name)
    assert main(["completion", name]) == ExitCode.DONE
    path = tmp_path / ("_eos-kafka" if name == "zsh" else name)
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(("name", "script"), [("bash", "bash"), ("zsh", "zsh")], indirect=["script"])
def test_tab_completes_commands_options_values_and_files(name: str, script: Path, tmp_path: Path) -> None:
    (tmp_path / "client.properties").touch()
    with Terminal(shell(name), *PLAIN[name], HOME=str(tmp_path)) as terminal:
        terminal.write(SETTINGS[name].format(script=script, folder=tmp_path) + "; echo rea''dy\n")
        terminal.read_until(lambda text: "ready" in text)
        terminal.write("eos-kafka ")
        for beginning, rest in (
            ("trans", "actions"),
            ("find-h", "anging"),
            ("--comm", "and-config"),
            (f"{tmp_path}/cli", "ent.properties"),
            ("--outp", "ut"),
            ("js", "on"),
        ):
            terminal.text = ""
            terminal.write(f"{beginning}\t")
            # Both shells write what is missing; zsh may draw the word again.
            terminal.read_until(lambda text, wanted=rest: wanted in text.replace("\b", ""))  # type: ignore[misc]


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes_commands_options_and_values(script: Path) -> None:
    for line, wanted in (
        ("eos-kafka trans", "transactions"),
        ("eos-kafka transactions find-h", "find-hanging"),
        ("eos-kafka transactions find-hanging --outp", "--output"),
        ("eos-kafka transactions find-hanging --output ", "json"),
    ):
        command = (shell("fish"), "--no-config", "-c", f"source {script}; complete -C '{line}'")
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        assert wanted in [each.split("\t")[0] for each in done.stdout.splitlines()], line


def test_missing_library_is_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == ExitCode.USAGE
    assert "not installed: shtab. Run `pip install '.[cli]'`" in capsys.readouterr().err
