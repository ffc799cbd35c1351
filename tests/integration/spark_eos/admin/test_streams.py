"""The standard streams of a command: closed by the shell, full, or of an encoding that lacks a name's characters."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from broker_core import EmbeddedBroker
from spark_eos.admin.command import ExitCode, main
from spark_eos.admin.transactions_view import described
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import init_producer_id
from spark_eos.options.client import ClientOptions

NAME = "名前-1"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker(topics={"orders": 1}) as kafka:
        with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
            init_producer_id(client, NAME, transaction_timeout_ms=60_000)
        yield kafka.bootstrap_servers


def printed_into(stdout: int, *words: str, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    """Print into this file, with the buffer that Python has by default."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "spark_eos.admin", *words]
    ended = subprocess.run(command, stdout=stdout, stderr=stderr, text=True, env=buffered, timeout=60)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("words", [("--help",), ("watch", "--bootstrap-server")], ids=["help", "watch"])
def test_output_without_a_reader_ends_the_command_without_a_traceback(words: tuple[str, ...], address: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert printed_into(writer, *words, *([address] if len(words) > 1 else [])) == (141, "")
    finally:
        os.close(writer)


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("is_joined", [True, False], ids=["2>&1 |", "2>"])
def test_confirmed_change_is_made_without_a_reader_of_its_words(form: str, is_joined: bool, address: str) -> None:
    """As `eos-kafka ... --yes 2>&1 | head -1` does, before the change."""
    words = ("transactions", "force-terminate", "--transactional-id", NAME, "--bootstrap-server", address)
    with KafkaClient(ClientOptions((address,))) as client:
        before = described(client, NAME)[1]
        reader, writer = os.pipe()
        os.close(reader)
        try:
            stdout = writer if is_joined else subprocess.DEVNULL
            code, _ = printed_into(stdout, *words, "--yes", "--output", form, stderr=writer)
        finally:
            os.close(writer)
        assert described(client, NAME)[1].producer_epoch == before.producer_epoch + 1
    assert code == (141 if is_joined and form == "json" else ExitCode.DONE)


def test_output_onto_a_full_disk_is_a_failure() -> None:
    with open("/dev/full", "wb") as full:
        code, said = printed_into(full.fileno(), "--help")
    assert code == ExitCode.FAILED
    assert said.startswith("The output could not be written, and is incomplete: ") and said.count("\n") == 1


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_stream_that_the_shell_has_closed_changes_nothing_else(
    name: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has None in place of a closed stream: `eos-kafka ... 2>&-`."""
    monkeypatch.setattr(sys, name, None)
    reach = ["--bootstrap-server", address]
    assert main(["transactions", "find-hanging", "--all-topics", *reach]) == ExitCode.DONE
    assert main(["transactions", "force-terminate", "--transactional-id", NAME, *reach]) == ExitCode.NOTHING_DONE
    getattr(sys, name).close()


def test_name_beyond_the_encoding_of_the_output_is_printed_as_escapes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", output)
    assert main(["transactions", "list", "--bootstrap-server", address]) == ExitCode.DONE
    assert rb"\u540d\u524d-1" in output.buffer.getvalue()  # type: ignore[attr-defined]
