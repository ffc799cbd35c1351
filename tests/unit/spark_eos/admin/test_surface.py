"""What all commands have in common: the cluster they name, wrong options, and the confirmation of changes."""

import argparse
import io
import json
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from broker_core.types import TopicPartition
from spark_eos.admin.command import ExitCode, _parser, main, with_subcommand
from spark_eos.admin.parsers import (
    CONFIG_VARIABLE,
    PROFILE_VARIABLE,
    SERVER_VARIABLE,
    in_words_of_the_command,
    is_confirmed,
    options_of,
)
from spark_eos.admin.watch import document_of, follow
from spark_eos.admin.watch_model import Order, Watcher, WatchSnapshot
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer_scan import ActiveProducer
from spark_eos.errors import OptionError, UnreachableError
from spark_eos.transactions.findings import PartitionTransaction, hanging_finding
from spark_eos.transactions.standstills import Standstill

COMMANDS = (
    "watch",
    "timeline orders --out page.html",
    "doctor",
    "console",
    "decisions list",
    "decisions show --query q",
    "decisions complete --query q",
    "decisions abort --query q",
    "transactions list",
    "transactions describe --transactional-id i",
    "transactions describe-producers --topic t --partition 0",
    "transactions find-hanging --all-topics",
    "transactions abort --topic t --partition 0 --start-offset 1",
    "transactions force-terminate --transactional-id i",
)
CHANGES = [each for each in COMMANDS if each.split()[1:2] in (["complete"], ["abort"], ["force-terminate"])]


# The cluster.


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_takes_the_cluster_before_and_after_its_name(words: str) -> None:
    given = ["--bootstrap-server", "b:1", "--command-config", "f", "--timeout-seconds", "2.5"]
    named = words.split()
    for line in ([*given, *named], [*named, *given], [named[0], *given, *named[1:]]):
        chosen = _parser().parse_args(line)
        found = chosen.bootstrap_server, chosen.command_config, chosen.timeout_seconds
        assert found == ("b:1", "f", 2.5), line
    assert _parser().parse_args(named).bootstrap_server is None


def config(folder: Path, servers: str, name: str = "client") -> str:
    path = folder / f"{name}.properties"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"bootstrap.servers={servers}\nclient.id={name}\n")
    return str(path)


def test_cluster_comes_from_the_command_line_then_the_environment(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    profile = config(tmp_path / "eos-kafka", "profile:1", "test")
    file = config(tmp_path, "file:1")

    def found(chosen: dict[str, str], **variables: str) -> tuple[str, str | None, str | None]:
        given = argparse.Namespace(**chosen)
        options = options_of(given, environ=environ | variables)
        assert options.bootstrap_servers == (given.bootstrap_server,), "what printed commands repeat"
        return options.bootstrap_servers[0], given.command_config, options.client_id

    assert found({"profile": "test"}) == ("profile:1", profile, "test")
    assert found({}, **{PROFILE_VARIABLE: "test"}) == ("profile:1", profile, "test")
    assert found({"command_config": file}, **{PROFILE_VARIABLE: "test"}) == ("file:1", file, "client")
    for chosen, server, path in (
        ({"profile": "test"}, "profile:1", profile),
        ({"command_config": file}, "file:1", file),
    ):
        assert found(chosen, **{SERVER_VARIABLE: "env:1"})[:2] == (server, path), "both are of the command line"
        assert found(chosen | {"bootstrap_server": "line:1"}, **{SERVER_VARIABLE: "env:1"})[:2] == ("line:1", path)
    login = tmp_path / "login.properties"
    login.write_text("client.id=login\n")
    for chosen, variables in (({"command_config": str(login)}, {}), ({}, {CONFIG_VARIABLE: str(login)})):
        assert found(chosen, **variables, **{SERVER_VARIABLE: "env:1"}) == ("env:1", str(login), "login")
    assert found({"bootstrap_server": "line:1"}, **{SERVER_VARIABLE: "env:1"})[:2] == ("line:1", None)


@pytest.mark.parametrize(
    ("line", "variable", "words"),
    [
        ({"bootstrap_server": "local:1"}, "", "--bootstrap-server is local:1, which is not the cluster of .*prod"),
        ({}, "local:1", f"{SERVER_VARIABLE} is local:1, which is not the cluster of .*prod"),
        ({"bootstrap_server": "b:1,local:1"}, "", "which is not the cluster of"),
        ({"bootstrap_server": "b:1"}, "", None),
        ({"bootstrap_server": "local:1", "profile": "prod"}, "", None),
    ],
)
@pytest.mark.parametrize("source", [PROFILE_VARIABLE, CONFIG_VARIABLE])
def test_login_of_the_environment_is_for_its_own_cluster_only(
    line: dict[str, str], variable: str, words: str | None, source: str, tmp_path: Path
) -> None:
    path = config(tmp_path / "eos-kafka", "a:1, b:1", "prod")
    environ = {"XDG_CONFIG_HOME": str(tmp_path), source: "prod" if source == PROFILE_VARIABLE else path}
    environ |= {SERVER_VARIABLE: variable} if variable else {}
    if words is None:
        assert options_of(argparse.Namespace(**line), environ=environ).bootstrap_servers == (line["bootstrap_server"],)
        return
    with pytest.raises(OptionError, match=f"{words}.*bootstrap.servers=a:1, b:1.*give --profile or --command-config"):
        options_of(argparse.Namespace(**line), environ=environ)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("request.timeout.ms=abc", "Option 'request.timeout.ms' is 'abc'. The properties file is {}. "),
        ("security.protocl=SSL", "Unknown option 'security.protocl'. The properties file is {}. "),
        ("bootstrap.servers=b", "bootstrap.servers contains 'b', which has no port. The properties file is {}. "),
        (
            "kafka.security.protocol=SSL",
            "The properties file has 1 setting with the prefix of Spark's options, 'kafka.'. The file is {}. Write the "
            "names without the prefix, such as security.protocol.",
        ),
    ],
)
def test_wrong_setting_of_the_file_has_its_own_name(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (SERVER_VARIABLE, CONFIG_VARIABLE, PROFILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers=b:1\n{line}\n")
    assert main(["decisions", "list", "--command-config", str(path)]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(said.format(path))
    path.write_text("")
    assert main(["decisions", "list", "--command-config", str(path), "--bootstrap-server", "b"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("--bootstrap-server contains 'b', which has no port. Write")


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({}, "--bootstrap-server is missing"),
        ({"profile": "../x"}, "name of the profile"),
        ({"profile": "none"}, "Cannot read the properties file"),
        ({"profile": "a", "command_config": "b"}, "both given"),
    ],
)
def test_cluster_that_is_not_named_is_refused(chosen: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=words):
        options_of(argparse.Namespace(**chosen), environ={"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize("option", ["--bootstrap-server", "--command-config", "--profile"])
@pytest.mark.parametrize("value", ["", " "])
def test_empty_value_does_not_mean_the_cluster_of_the_environment(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, "b:1")
    with pytest.raises(SystemExit) as ended:
        main(["decisions", "abort", "--query", "q", option, value, "--timeout-seconds", "0.1"])
    assert ended.value.code == ExitCode.USAGE
    assert f"argument {option}: {value!r} is empty; if it comes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "transactions force-terminate --transactional-id ''",
        "transactions find-hanging --topic ''",
        "decisions show --query ''",
        "console --once --out ''",
        "transactions find-hanging --topic t --topic u",
        "transactions find-hanging --topic t --partition 0 --partition 1",
        "transactions describe --transactional-id t --transactional-id u",
        "transactions force-terminate --transactionalId t --transactional-id u",
        "transactions abort --topic t --partition 0 --start-offset 1 --start-offset 2",
        "timeline t --out p --partition 0 --partition 1",
        "decisions complete --query q --query r",
        "decisions complete --query q --decision-topic t --decision-topic u",
        "decisions complete --query q --bootstrap-server a:1",
        "--bootstrap-server a:1 decisions complete --query q",
        "decisions --bootstrap-server a:1 complete --query q",
        "watch --command-config a --command-config b",
        "--profile a watch --profile b",
    ],
)
def test_no_name_or_two_of_what_a_command_works_on_are_wrong_usage(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*shlex.split(words), "--bootstrap-server", "b:1", "--timeout-seconds", "0.1"])
    assert ended.value.code == ExitCode.USAGE
    assert ("is empty" if words.endswith("''") else "is given twice") in capsys.readouterr().err


def test_the_same_name_twice_is_one_name() -> None:
    words = "transactions find-hanging --topic t --partition 1 --topic t --partition 1"
    chosen = _parser().parse_args(words.split())
    assert (chosen.topic, chosen.partition) == ("t", 1)


def test_parser_does_not_remember_an_earlier_line() -> None:
    parser = _parser()
    assert [parser.parse_args(["timeline", "t", "--partition", n]).partition for n in "12"] == [1, 2]


def test_blank_variable_of_the_environment_is_as_if_it_were_not_set() -> None:
    for name in (SERVER_VARIABLE, PROFILE_VARIABLE, CONFIG_VARIABLE):
        with pytest.raises(OptionError, match="--bootstrap-server is missing"):
            options_of(argparse.Namespace(), environ={name: " "})


def test_timeout_is_of_every_command_and_each_has_its_own_default() -> None:
    def waits(longest_ms: int | None, **chosen: float) -> tuple[int, int]:
        given = argparse.Namespace(bootstrap_server="b:1", **chosen)
        options = options_of(given, longest_ms, environ={})
        return options.api_timeout_ms, options.request_timeout_ms

    assert waits(None) == (60_000, 30_000)
    assert waits(5_000) == (5_000, 5_000)
    assert waits(5_000, timeout_seconds=90) == (90_000, 30_000)


def test_messages_name_the_options_of_the_command_line() -> None:
    said = in_words_of_the_command(UnreachableError("No broker").default_remedy)
    assert "--bootstrap-server names a listener" in said
    assert "kafka." not in said
    assert in_words_of_the_command("Unknown option 'kafka.x'. Did you mean 'kafka.y'?") == (
        "Unknown option 'x'. Did you mean 'y'?"
    )
    topic = "The topic 'kafka.orders' does not exist"
    assert in_words_of_the_command(topic) == topic


# Wrong options.


@pytest.mark.parametrize(
    ("line", "usage", "near"),
    [
        ("--bootstrap-sever b:1 watch", "eos-kafka", "--bootstrap-server for --bootstrap-sever"),
        ("transactions find-hangin", "eos-kafka transactions", "find-hanging"),
        ("wacth", "eos-kafka", "watch"),
        ("watch --once", "eos-kafka watch", "--count 1"),
        ("watch --once --tpic t", "eos-kafka watch", "--count 1 for --once, --topic for --tpic"),
        ("decisions complete --qury q", "eos-kafka decisions complete", "--query for --qury"),
        ("watch --sort nme", "eos-kafka watch", "name"),
        ("--topic t watch", "eos-kafka", "--topic after the name of a command"),
    ],
)
def test_wrong_line_prints_the_usage_of_its_own_command_and_the_nearest_name(
    line: str, usage: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    said = capsys.readouterr().err
    assert ended.value.code == ExitCode.USAGE
    assert said.startswith(f"usage: {usage} ["), said
    assert said.endswith(f"; did you mean {near}?\n"), said


def mistyped() -> list[tuple[str, str, str]]:
    """Return each option that users see: its command, and its name without the second or last letter, and whole."""
    found, waiting = [], [_parser()]
    while waiting:
        parser = waiting.pop()
        inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        waiting += [each for action in inner for each in action.choices.values()]
        found += [
            (parser.prog, wrong, name)
            for action in parser._actions
            for name in action.option_strings
            if name.startswith("--") and action.help != argparse.SUPPRESS
            # An abbreviation is refused as well: one of --yes would carry out a change.
            for wrong in (name[:3] + name[4:], name[:-1])
            # Of --by one letter would be left.
            if len(wrong) > 3 and wrong not in parser._option_string_actions
        ]
    return found


def test_each_option_is_the_nearest_of_its_mistyped_name(capsys: pytest.CaptureFixture[str]) -> None:
    # Making a parser takes a hundred times as long as its parsing of a line.
    parser = _parser()
    for command, wrong, right in mistyped():
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(with_subcommand([*command.split()[1:], wrong]))
        said = capsys.readouterr().err
        assert ended.value.code == ExitCode.USAGE, (command, wrong)
        assert said.startswith(f"usage: {command} ["), said
        assert said.endswith((f"; did you mean {right}?\n", f"; did you mean {right} for {wrong}?\n")), said


def test_word_without_a_near_name_is_refused_without_a_guess(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--once"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --once\n")


def test_hidden_option_is_not_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["decisions", "complete", "--query", "q", "--dry-rn"])
    said = capsys.readouterr().err
    assert "unrecognized arguments: --dry-rn" in said
    assert "did you mean --dry-run" not in said


@pytest.mark.parametrize("line", CHANGES)
def test_hidden_option_is_not_in_the_help(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*line.split(), "--help"])
    said = capsys.readouterr().out
    assert "--yes" in said
    assert "--dry-run" not in said


# Changes.


@pytest.mark.parametrize("line", CHANGES)
def test_every_change_is_confirmed_by_the_same_rule(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    def confirmed(*more: str, answer: str | None = None) -> bool:
        chosen = _parser().parse_args([*line.split(), *more])
        return is_confirmed(chosen, None if answer is None else lambda: answer)

    assert confirmed("--yes")
    assert not confirmed(), "no terminal"
    assert "Repeat the command with --yes" in capsys.readouterr().err
    assert [confirmed(answer=each) for each in ("y\n", "YES\n", "n\n", "\n", "")] == [True, True, False, False, False]
    capsys.readouterr()

    def interrupt() -> str:
        raise KeyboardInterrupt

    assert not is_confirmed(_parser().parse_args(line.split()), interrupt)
    assert capsys.readouterr().err.endswith(
        "[y/N] \nNothing was changed. Repeat the command with --yes to carry this out.\n"
    )
    assert not confirmed("--yes", "--dry-run")
    assert "--dry-run is not needed any more" in capsys.readouterr().err


def test_command_that_is_interrupted_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(io.StringIO):
        def write(self, _: str) -> int:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdout", Interrupted())
    assert main(["completion", "bash"]) == 130
    assert capsys.readouterr().err == (
        "\nInterrupted. A change that was confirmed may be done in part: repeat the command\n"
    )


@pytest.mark.parametrize(("more", "looks", "fails"), [([], 0, True), ([], 1, False), (["--count", "2"], 1, True)])
def test_watch_that_is_interrupted_before_it_has_shown_what_was_asked_fails(
    more: list[str], looks: int, fails: bool
) -> None:
    class Interrupted(Watcher):
        def _look(self) -> WatchSnapshot:
            return WatchSnapshot(1_000)

    def show(_: argparse.Namespace, watcher: Watcher) -> None:
        for _ in range(looks):
            watcher.look()
        raise KeyboardInterrupt

    chosen = _parser().parse_args(["watch", "--bootstrap-server", "b:1", *more])
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        follow(chosen, Interrupted(KafkaClient(options_of(chosen)), None, 1), show)


# JSON.


def test_look_of_watch_is_one_json_object() -> None:
    place = TopicPartition("t", 0)
    finding = hanging_finding(PartitionTransaction(place, ActiveProducer(7, 1, 0, 5, -1, 3)), [])
    snapshot = WatchSnapshot(1_000, 4, (Standstill(place, 3, 9, 400, (finding,)),))
    found = json.loads(json.dumps(document_of(snapshot, Order.AGE)))
    [lagging] = found["lagging"]
    assert (lagging["topic"], lagging["lag"], lagging["seen_since_ms"]) == ("t", 6, 400)
    [opened] = lagging["open"]
    assert (opened["verdict"], opened["age_ms"], opened["start_offset"]) == ("hanging", None, 3)
