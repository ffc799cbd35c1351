"""The arguments of `eos-kafka`, its properties file, and its name; no command connects."""

import os
import shlex
from argparse import Namespace
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from broker_core import __version__
from spark_eos.admin.command import ExitCode, _parser, main, with_subcommand
from spark_eos.admin.parsers import options_of, parse_properties
from spark_eos.admin.transactions_view import kafka_table
from spark_eos.errors import OptionError

ABORT = ("abort", "--topic", "t", "--partition", "0", "--producer-id")


def test_column_widths_match_java() -> None:
    wide = kafka_table(
        {"id": "Id", "n": "N"}, [{"id": "\N{GRINNING FACE}\N{GRINNING FACE}", "n": 7}, {"id": "abc", "n": 12}]
    )
    assert wide == "Id  \tN \t\n\N{GRINNING FACE}\N{GRINNING FACE}\t7 \t\nabc \t12\t"


def parsed(line: str) -> Any:
    program, *words = shlex.split(line)
    assert program == "eos-kafka"
    return _parser().parse_args(with_subcommand(words))


@pytest.mark.parametrize(
    "name",
    ["list", "describe", "describe-producers", "find-hanging", "abort", "force-terminate", "forceTerminateTransaction"],
)
def test_flags_of_kip_664_are_accepted(name: str) -> None:
    needed = {
        "describe": "--transactional-id i",
        "describe-producers": "--topic t --partition 1",
        "abort": "--topic t --partition 1 --start-offset 5",
        "force-terminate": "--transactional-id i",
        "forceTerminateTransaction": "--transactionalId i",
    }.get(name, "")
    wanted = parsed(f"eos-kafka transactions --bootstrap-server b:9092 {name} {needed}")
    for line in (
        f"--bootstrap-server b:9092 --{name} {needed}",
        f"--{name} {needed} --bootstrap-server b:9092",
        f"{needed} --{name} --bootstrap-server b:9092",
        f"{name} {needed} --bootstrap-server b:9092",
    ):
        assert parsed(f"eos-kafka transactions {line}") == wanted, line
    assert (wanted.bootstrap_server, wanted.output, wanted.command) == ("b:9092", "table", name)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("list", "--lst"),
        ("--list", "--describe"),
        ("describe",),
        ("abort", "--topic", "t"),
        ("abort", "--topic", "t", "--partition", "x", "--start-offset", "1"),
        ("list", "--output", "xml"),
        ("list", "--duration-filter", str(2**63)),
        ("describe-producers", "--topic", "t", "--partition", str(2**31)),
        ("find-hanging", "--broker-id", str(-(2**31) - 1)),
        ("find-hanging", "--topic", "t", "--partition", str(2**31)),
        (*ABORT, str(2**63), "--producer-epoch", "0", "--coordinator-epoch", "0"),
        (*ABORT, "1", "--producer-epoch", str(2**15), "--coordinator-epoch", "0"),
        (*ABORT, "1", "--producer-epoch", "0", "--coordinator-epoch", str(2**31)),
        ("list", "--transactional-id-pattern", "a\udcff"),
        ("describe", "--transactional-id", "x" * 2**15),
        ("describe-producers", "--topic", "t\udcff", "--partition", "0"),
        ("find-hanging", "--topic", "t\udcff"),
        ("force-terminate", "--transactional-id", "t\udcff"),
        ("find-hanging", "--all-topics", "--max-in-flight", "0"),
    ],
)
def test_wrong_usage_is_refused_with_distinct_messages(words: tuple[str, ...]) -> None:
    """A number or a name that no request can carry is refused, too: kafka-python would fail or wait forever."""
    with pytest.raises(SystemExit) as ended:
        main(["transactions", "--bootstrap-server", "127.0.0.1:1", *words])
    assert ended.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    "words",
    [
        ("transactions", "list", "--state", "t\udcff"),
        ("timeline", "t\udcff", "--out", "page.html"),
        ("watch", "--topic", "t\udcff"),
        ("doctor", "--topic", "t\udcff"),
        ("doctor", "--prefix", "t\udcff"),
        ("console", "--decision-topic", "t\udcff"),
        ("decisions", "list", "--prefix", "t\udcff"),
        ("decisions", "show", "--query", "t\udcff"),
        ("decisions", "complete", "--query", "q", "--reason", "t\udcff"),
        ("decisions", "complete", "--query", "q", "--watch-seconds", "1e308"),
        ("watch", "--interval", "0"),
        ("watch", "--interval", "inf"),
        ("watch", "--interval", "1e308"),
        ("watch", "--count", "0"),
        ("watch", "--max-in-flight", "0"),
        ("watch", "--sort", "x"),
        ("watch", "--timeout-seconds", "1e308"),
    ],
    ids=" ".join,
)
def test_text_and_times_that_nothing_can_carry_are_refused_by_every_command(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--bootstrap-server", "127.0.0.1:1"])
    assert ended.value.code == ExitCode.USAGE


def test_profile_without_a_home_directory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the user id may have neither a name nor HOME."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(OptionError, match=r"Cannot read the properties file: .*eos-kafka/prod\.properties"):
        options_of(Namespace(profile="prod"), environ={})


@pytest.mark.parametrize("arguments", [["--version"], ["-v"], ["transactions", "--version"], ["transactions", "-v"]])
def test_command_prints_its_version(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert (ended.value.code, capsys.readouterr().out) == (0, f"eos-kafka {__version__}\n")


def test_java_properties_are_parsed_as_java_parses_them() -> None:
    text = (
        "# a comment = ignored\n! another\n\nsecurity.protocol=SASL_SSL\n  sasl.mechanism : SCRAM-SHA-512\n"
        'sasl.jaas.config=org.Scram required \\\n    username="u" \\\n    password="p=1";\n'
        "client.id  spaced out  \npath=c\\\\d\\u0041\\t.\nempty=\nalone\nwith\\ space\\=name=v\nodd=end\\\\\nnext=1\n"
    )
    assert parse_properties(text) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'org.Scram required username="u" password="p=1";',
        "client.id": "spaced out",
        "path": "c\\dA\t.",
        "empty": "",
        "alone": "",
        "with space=name": "v",
        "odd": "end\\",
        "next": "1",
    }


def test_mark_of_an_editor_at_the_beginning_of_a_file_is_no_part_of_a_name(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=b:1\n", encoding="utf-8-sig")
    chosen = Namespace(command_config=str(config))
    options_of(chosen, environ={})
    assert chosen.bootstrap_server == "b:1"


def test_command_accepts_the_properties_file_of_java_clients(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nbootstrap.servers=other:1\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";\n'
    )
    options = options_of(Namespace(bootstrap_server="a:1,b:2", command_config=str(config)), environ={})
    assert options.bootstrap_servers == ("a:1", "b:2")
    assert (options.sasl_username, options.sasl_password) == ("u", "p")
    config.write_bytes(b"\xff")
    with pytest.raises(OptionError, match="Cannot read the properties file"):
        options_of(Namespace(bootstrap_server="a:1", command_config=str(config)), environ={})


def test_command_is_installed_under_its_name() -> None:
    settings = ConfigParser()
    settings.read(Path(__file__).parents[4] / "setup.cfg")
    scripts = settings["options.entry_points"]["console_scripts"].split("\n")[1:]
    targets = dict(script.split(" = ") for script in scripts)
    assert targets["eos-kafka"] == f"{main.__module__}:{main.__qualname__}"
