"""`python -m broker_core`: the documented commands work, keep their data, and explain what is not supported."""

import re
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest

from tests.support.broker_core.broker_command import DEADLINE_S, ROOT, running
from tests.support.broker_core.produce_consume import consume, produce

PROPERTIES = ROOT / "conf" / "broker.properties"


def ran(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments to its end."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


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


def test_data_is_kept_across_runs(tmp_path):
    arguments = ("--port", "0", "--data-dir", str(tmp_path / "logs"), "--config", str(PROPERTIES))
    with running(*arguments) as (process, address):
        produce(address, "t", [b"kept"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    with running(*arguments) as (process, address):
        assert consume(address, "t", 1) == [b"kept"]


def test_acknowledged_data_survives_a_kill(tmp_path):
    arguments = ("--port", "0", "--data-dir", str(tmp_path / "logs"))
    with running(*arguments) as (process, address):
        produce(address, "t", [b"%d" % n for n in range(100)])
        process.kill()
        process.wait(DEADLINE_S)
    with running(*arguments) as (_, address):
        assert consume(address, "t", 100) == [b"%d" % n for n in range(100)]


def test_second_process_does_not_use_the_folder_of_a_running_one(tmp_path):
    arguments = ("--port", "0", "--data-dir", str(tmp_path / "logs"))
    with running(*arguments) as (process, _):
        second = ran("-m", "broker_core", *arguments)
        assert second.returncode == 1
        assert f"broker_core cannot start: another broker uses {tmp_path / 'logs'}" in second.stderr
        assert "Traceback" not in second.stderr
        process.kill()
        process.wait(DEADLINE_S)
    with running(*arguments):
        pass


def test_several_brokers_listen_on_distinct_ports():
    with running("--port", "0", "--brokers", "2") as (_, address):
        assert len(set(address.split(","))) == 2


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("security.providers=secret", "security.providers='secret' protects a broker by Java code"),
        ("num.partitions=none", "num.partitions='none'"),
        ("num.partitions", "broker.properties: line 1"),
    ],
)
def test_invalid_settings_are_reported_in_one_line_with_an_address_below(tmp_path, settings, complaint):
    (tmp_path / "broker.properties").write_text(settings)
    answer = ran("-m", "broker_core", "--port", "0", "--config", str(tmp_path / "broker.properties"))
    assert answer.returncode == 1
    [said, address] = answer.stderr.splitlines()
    assert complaint in said
    assert address.startswith("See docs/reference/errors.md#")


def test_a_settings_file_may_have_the_encoding_that_kafka_reads(tmp_path):
    (tmp_path / "broker.properties").write_bytes(b"# caf\xe9\nnum.partitions=2\n")
    with running("--port", "0", "--config", str(tmp_path / "broker.properties")) as (_, address):
        produce(address, "t", [b"sent"])


def test_data_dir_that_is_a_file_is_reported_in_one_line(tmp_path):
    (tmp_path / "logs").write_text("")
    answer = ran("-m", "broker_core", "--port", "0", "--data-dir", str(tmp_path / "logs"))
    [said, _] = answer.stderr.splitlines()
    assert answer.returncode == 1
    assert f"{tmp_path / 'logs'} is not a folder: give a folder for the logs" in said


def test_occupied_port_is_reported_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        answer = ran("-m", "broker_core", "--port", port)
    assert (answer.returncode, len(answer.stderr.splitlines())) == (1, 1)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; give another address" in answer.stderr


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


@pytest.mark.parametrize(
    ("module", "library"), [("re2", "google-re2"), ("scramp", "scramp"), ("asn1crypto", "asn1crypto")]
)
def test_missing_extra_is_reported_in_one_line(module, library):
    program = f"import sys; sys.modules[{module!r}] = None; from broker_core.__main__ import main; sys.exit(main([]))"
    answer = ran("-c", program)
    assert (answer.returncode, len(answer.stderr.splitlines())) == (1, 1), answer.stderr
    assert f"the broker needs {library}" in answer.stderr
    assert "pip install '.[broker]'" in answer.stderr


def test_embedded_broker_names_the_missing_extra():
    program = "import sys; sys.modules['scramp'] = None; from broker_core import EmbeddedBroker"
    answer = ran("-c", program)
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].endswith("pip install '.[broker]' in a clone of eos-kafka")
