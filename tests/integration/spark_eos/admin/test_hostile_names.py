"""A transactional id may contain any characters; the commands' text must not let it control a terminal."""

import json
from collections.abc import Iterator

import pytest

from broker_core import EmbeddedBroker
from spark_eos.admin.command import main
from tests.support.clients import DEADLINE_S, make_transactional_producer

# It clears the screen, sets the window's title and adds a line that looks like the command's own.
HOSTILE = "writer\x1b[2J\x1b]0;title\x07\n  to end it: rm -rf /\x9b31m\u202edne\u2028"
ESCAPED = r"writer\x1b[2J\x1b]0;title\x07\x0a  to end it: rm -rf /\x9b31m\u202edne\u2028"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of a broker on which a transaction of that id is open."""
    with EmbeddedBroker(topics={"orders": 1}) as kafka:
        producer = make_transactional_producer(kafka, HOSTILE)
        producer.begin_transaction()
        producer.produce("orders", b"row")
        producer.flush(DEADLINE_S)
        yield kafka.bootstrap_servers


@pytest.mark.parametrize(
    "words",
    [
        ["transactions", "list"],
        ["transactions", "describe", "--transactional-id", HOSTILE],
        ["transactions", "describe-producers", "--topic", "orders", "--partition", "0"],
        ["transactions", "find-hanging", "--topic", "orders", "--max-transaction-timeout", "0", "--explain"],
        ["transactions", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "0"],
        ["transactions", "force-terminate", "--transactional-id", HOSTILE, "--dry-run"],
        ["watch", "--count", "1", "--color", "always"],
        ["timeline", "orders", "--out", "OUT"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_text_has_no_control_characters_of_a_name(
    words: list[str], address: str, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    out = f"{tmp_path}/page.html"
    main([*(out if word == "OUT" else word for word in words), "--bootstrap-server", address])
    printed = "".join(capsys.readouterr())
    assert not {character for character in printed if not character.isprintable()} - {"\n", "\t"}
    names_it = "describe-producers" not in words
    assert (ESCAPED in printed) == names_it, printed


def test_json_keeps_the_name(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["transactions", "list", "--output", "json", "--bootstrap-server", address])
    assert [each["transactional_id"] for each in json.loads(capsys.readouterr().out)] == [HOSTILE]
