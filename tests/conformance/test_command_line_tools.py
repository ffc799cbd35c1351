"""Kafka's command-line tools: each call that succeeds on Apache Kafka succeeds here, with the same output."""

import difflib
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest

from tests.support.guarded_kafka import guarded_kafka
from tests.support.java_tools import Ran, ToolRunner
from tests.support.raw_client import RawClient
from tests.support.tool_calls import DIFFERENCES, FILES, MEASURING, Call, calls, normalized
from tests.support.waiting import wait_until

_HMAC = re.compile(r"[A-Za-z0-9+/]{86}==")


def outcomes(kind: str, folder: Path) -> dict[str, Ran]:
    """Run all calls on a broker of this kind; return the outcome of each by its text."""
    node = folder / kind
    node.mkdir()
    found: dict[str, Ran] = {}
    token = ""
    with guarded_kafka(kind, node) as kafka, ToolRunner() as runner:
        # Kafka's test node has created its internal topics.
        with RawClient(kafka.bootstrap_servers) as client:
            for kind_of_key, key in enumerate(("x", "x", "group:AAAAAAAAAAAAAAAAAAAAAA:0")):
                client.send(FindCoordinatorRequest(key_type=kind_of_key, coordinator_keys=[key]), 6)
        for call in calls(kafka.bootstrap_servers, kafka.sasl_address, str(folder)):
            arguments = [argument.replace("$TOKEN", token) for argument in call.arguments]
            ran = runner.run(call.tool, *arguments, lines=call.lines)
            if ran.status != 0 and "--renew" in arguments:
                # Apache Kafka answers a creation before it knows the token everywhere.
                with suppress(AssertionError):
                    ran = wait_until(partial(_success, runner, call, arguments), "the token is renewed", deadline_s=10)
            created = _HMAC.search(ran.output) if "--create" in arguments else None
            token = created.group() if created else token
            if created or "--expire" in arguments:
                wait_until(
                    partial(_is_described, runner, arguments[-4:], token, created is not None),
                    "the broker knows of the token's creation or end",
                    deadline_s=10,
                )
            found[f"{len(found)}: {call.text}"] = ran
    return found


def _success(runner: ToolRunner, call: Call, arguments: list[str]) -> Ran | None:
    ran = runner.run(call.tool, *arguments, lines=call.lines)
    return ran if ran.status == 0 else None


def _is_described(runner: ToolRunner, connection: list[str], token: str, expected: bool) -> bool:
    """Return whether the broker, which learns of tokens after the controller, lists this one as expected."""
    described = runner.run("DelegationTokenCommand", "--describe", "--owner-principal", "User:user1", *connection)
    return described.status == 0 and (token in described.output) is expected


@pytest.mark.usefixtures("apache_asked_for")
def test_tools_print_the_same_as_on_apache_kafka(tmp_path: Path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    apache = outcomes("apache", tmp_path)
    ours = outcomes("broker_core", tmp_path)
    assert list(apache) == list(ours)
    assert len(apache) > 100
    different: list[str] = []
    for text, theirs in apache.items():
        command = text.partition(": ")[2]
        if command in DIFFERENCES:
            continue
        own = ours[text]
        if theirs.status != own.status:
            different.append(f"{text}: status {theirs.status} and {own.status}: {own.output}{own.errors[:500]}")
        elif command.split(" ")[0] not in MEASURING:
            lines = difflib.unified_diff(normalized(theirs.output), normalized(own.output), lineterm="", n=0)
            changed = list(lines)[2:]
            if changed:
                different.append("\n".join([text, *changed]))
    assert not different, "\n\n".join(different)
