"""`broker-core --control-port`: the command prints both addresses, serves, and explains what cannot be."""

import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from broker_core.__main__ import main
from tests.support.broker_core.broker_command import DEADLINE_S, ROOT, refusal, said_without
from tests.support.broker_core.control_client import ControlClient
from tests.support.broker_core.produce_consume import consume, produce


@contextmanager
def running(*arguments):
    command = [sys.executable, "-m", "broker_core", "--port", "0", "--control-port", "0", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            first, second = process.stdout.readline(), process.stdout.readline()
            address = re.search(r"listening on ([^\s,]+(?:,[\d.:]+)*)", first)[1]
            yield process, address, ControlClient(re.search(r"controlled at (\S+)", second)[1]), first
        finally:
            process.kill()


def test_broker_of_the_command_is_controlled_and_ends_cleanly(tmp_path):
    settings = tmp_path / "broker.properties"
    # In the encoding that Kafka reads.
    settings.write_bytes(b"# caf\xe9\nnum.partitions=3\nno.such.setting=1\n")
    arguments = ("--data-dir", str(tmp_path / "logs"), "--brokers", "2", "--clock", "virtual")
    with running(*arguments, "--config", str(settings), "--metrics-port", "0") as (process, address, client, first):
        assert client.get("about")["bootstrap_servers"] == address
        assert len(set(address.split(","))) == 2
        produce(address, "t", [b"kept"])
        assert client.get("topics") == {"topics": {"t": 3}}
        before = client.get("clock")["now_ms"]
        assert client.post("advance", seconds=60)["now_ms"] == before + 60_000
        client.post("crash")
        client.post("restart")
        assert [each["value"] for each in client.get("records", topic="t")["records"]] == ["kept"]
        with urlopen(re.search(r"metrics at (\S+/metrics)", first)[1], timeout=DEADLINE_S) as answer:
            assert b"broker_core" in answer.read()
        # A request that waits does not delay the end.
        host, port = client.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as waiting:
            waiting.sendall(b"GET /wait_for_records?topic=t&count=9&timeout=600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.get("topics")
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
    with running(*arguments[:2]) as (_, address, client, _):
        assert consume(address, "t", 1) == [b"kept"]


def test_port_in_use_is_reported_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refusal(capsys, "--port", "0", "--control-port", port)
    assert f"cannot serve the control port on 127.0.0.1:{port}" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--control-port", "65536"), "65536"),
        (("--clock", "virtual"), "--clock virtual needs --control-port"),
        (("--control-host", "0.0.0.0"), "--control-host needs --control-port"),
        (("--control-name", "broker"), "--control-name needs --control-port"),
    ],
)
def test_options_that_cannot_be_used_are_reported_in_one_line(capsys, arguments, words):
    assert words in refusal(capsys, "--port", "0", *arguments)


def test_level_that_does_not_exist_is_reported_with_the_levels(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--log-level", "LOUD"])
    assert ended.value.code == 2
    # Python 3.12 prints the choices without quotes.
    assert "choose from DEBUG, INFO, WARNING, ERROR" in capsys.readouterr().err.replace("'", "")


def test_libraries_of_the_extra_are_imported_only_with_the_option_and_a_missing_one_is_reported():
    program = (
        "import broker_core.embedded; from broker_core.__main__ import main\n"
        "unused = {'fastapi', 'starlette', 'pydantic', 'uvicorn', 'anyio'} - {library}\n"
        "assert said or not unused & sys.modules.keys(), 'an unused library is imported'\n"
        "assert main(['--port', '0', '--control-port', '0']) == 1"
    )
    found = said_without(program, "fastapi", "uvicorn")
    for library, text in found.items():
        [said] = [line for line in text.splitlines() if not line.startswith("See docs/reference/errors.md#")]
        assert f"control needs {library}" in said
        assert "pip install '.[control]'" in said
