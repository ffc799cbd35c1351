"""`python -m broker_core`: the documented commands work, keep their data, and explain what is not supported."""

import re
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest

from broker_core.__main__ import main
from tests.support.broker_core.broker_command import DEADLINE_S, ROOT, refusal, running, said_without
from tests.support.broker_core.produce_consume import consume, produce

PROPERTIES = ROOT / "conf" / "broker.properties"


def started(*arguments: str) -> "tuple[subprocess.Popen[str], int]":
    """Start Python with these arguments and read the port of the broker."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"listening on 127.0.0.1:(\d+)", line)
    assert found, line
    return process, int(found[1])


def test_data_survives_a_kill_and_a_stop_and_belongs_to_one_process(tmp_path, capsys):
    arguments = ("--port", "0", "--data-dir", str(tmp_path / "logs"), "--config", str(PROPERTIES))
    with running(*arguments) as (process, address):
        produce(address, "t", [b"%d" % n for n in range(100)])
        used = f"broker_core cannot start: another broker uses {tmp_path / 'logs'}"
        assert refusal(capsys, *arguments).startswith(used)
        process.kill()
        process.wait(DEADLINE_S)
    with running(*arguments) as (process, address):
        assert consume(address, "t", 100) == [b"%d" % n for n in range(100)]
        produce(address, "t", [b"kept"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    with running(*arguments) as (_, address):
        assert consume(address, "t", 1) == [b"kept"], "the offsets of the group are kept, too"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("security.providers=secret", "security.providers='secret' protects a broker by Java code"),
        ("num.partitions=none", "num.partitions='none'"),
        ("num.partitions", "broker.properties: line 1"),
    ],
)
def test_invalid_settings_are_reported_in_one_line(tmp_path, capsys, settings, complaint):
    (tmp_path / "broker.properties").write_text(settings)
    assert complaint in refusal(capsys, "--port", "0", "--config", str(tmp_path / "broker.properties"))


@pytest.mark.parametrize("option", ["--data-dir", "--config"])
def test_empty_path_does_not_mean_the_current_folder(tmp_path, capsys, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    # Without brokers the command ends in any case.
    with pytest.raises(SystemExit) as ended:
        main([option, "", "--brokers", "0"])
    assert ended.value.code == 2
    assert f"argument {option}: '' is empty; if it comes from a variable" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_data_dir_that_is_a_file_is_reported_in_one_line(tmp_path, capsys):
    (tmp_path / "logs").write_text("")
    said = refusal(capsys, "--port", "0", "--data-dir", str(tmp_path / "logs"))
    assert f"{tmp_path / 'logs'} is not a folder: give a folder for the logs" in said


def test_occupied_port_is_reported_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refusal(capsys, "--port", port)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; give another address" in said


@pytest.mark.parametrize("control", [(), ("--control-port", "0")], ids=["alone", "controlled"])
def test_files_that_cannot_be_closed_are_reported_in_one_line(tmp_path, control):
    folder = tmp_path / "logs"
    process, port = started(
        "-m", "broker_core", "--port", "0", "--data-dir", str(folder), "--log-level", "ERROR", *control
    )
    with process:
        produce(f"127.0.0.1:{port}", "t", [b"lost"])
        shutil.rmtree(folder)
        folder.write_text("")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, len(errors.splitlines())) == (1, 1), errors
    assert "the files of the broker were not closed cleanly: [Errno 20] Not a directory" in errors


@pytest.mark.parametrize("control", ["", "'--control-port', '0'"], ids=["alone", "controlled"])
def test_error_that_ends_a_running_broker_is_not_one_of_its_start(control):
    program = (
        "import sys\nfrom broker_core.broker.cluster import Cluster\nfrom broker_core.__main__ import main\n"
        "def broken(*_):\n    raise OSError(5, 'the disk is gone')\n"
        f"Cluster.settle_overlapping = broken\nsys.exit(main(['--port', '0', {control}]))"
    )
    process, port = started("-c", program)
    with process, socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
        # ApiVersions 0, with null as the client's id.
        client.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "the broker stops because of an unexpected error" in errors
    assert errors.splitlines()[-1] == "OSError: [Errno 5] the disk is gone"
    assert errors.count("Traceback") == 1


def test_missing_extra_is_reported_in_one_line():
    names = {"re2": "google-re2", "scramp": "scramp", "asn1crypto": "asn1crypto"}
    found = said_without("from broker_core.__main__ import main; assert main([]) == 1", *names)
    for module, library in names.items():
        [said] = found[module].splitlines()
        assert f"the broker needs {library}" in said
        assert "pip install '.[broker]'" in said
    [raised] = said_without("from broker_core import EmbeddedBroker", "scramp").values()
    assert raised.endswith("pip install '.[broker]' in a clone of eos-kafka")
