"""The same transaction has the same verdict, and the same words, in every view."""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.types import TopicPartition
from spark_eos.admin.command import ExitCode, main
from spark_eos.admin.console.documents import Documents
from spark_eos.admin.console.pages import LiveLinks
from spark_eos.admin.timeline import take_timeline
from spark_eos.admin.timeline_page import summary_of
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.transactions.judge import find_open, name_blocker
from tests.support.both_brokers import Kafka as Plain
from tests.support.clients import make_topic, unique
from tests.support.hanging import hang, kafka_with_late_writes, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession

HOUR_MS = 3_600_000
LIVE, HANGS, FORGOTTEN = 0, 1, 2
WORDS = {LIVE: "live", HANGS: "hanging", FORGOTTEN: "hanging"}


@pytest.fixture(scope="module")
def address(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_with_late_writes(broker_kind, tmp_path_factory.mktemp("answers")) as address:
        yield address


@pytest.fixture(scope="module")
def topic(address: str) -> Iterator[str]:
    """Make a live transaction with an old record, one that hangs, and one that no coordinator has ever known."""
    with RawClient(address) as raw:
        topic = make_topic(Plain(address), partitions=3)
        open_up(RawSession(raw, unique("live")), topic, LIVE, age_ms=HOUR_MS)
        hang(RawSession(raw, unique("late")), topic, partition=HANGS)
        hang(RawSession(raw, unique("none")), topic, Identity(987_654_321, 3), partition=FORGOTTEN)
        yield topic


@pytest.fixture
def client(address: str) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions((address,))) as client:
        yield client


def test_every_view_has_the_same_verdict(
    address: str, topic: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen: dict[str, dict[int, str]] = {}
    main(["transactions", "--bootstrap-server", address, "--output", "json", "find-hanging", "--topic", topic])
    seen["find-hanging"] = {each["partition"]: each["verdict"] for each in json.loads(capsys.readouterr().out)}
    main(["watch", "--bootstrap-server", address, "--topic", topic, "--count", "1", "--output", "json"])
    lagging = json.loads(capsys.readouterr().out)["lagging"]
    seen["watch"] = {each["partition"]: each["open"][0]["verdict"] for each in lagging}
    seen["timeline"] = {}
    for number in WORDS:
        words = ["timeline", topic, "--partition", str(number), "--output", "json"]
        assert main(["--bootstrap-server", address, *words]) == ExitCode.DONE
        drawn = json.loads(capsys.readouterr().out)
        [seen["timeline"][number]] = [bar["verdict"] for bar in drawn["transactions"] if bar["is_blocking"]]
        assert f"The last stable offset of {topic}-{number} is" in drawn["summary"]
    documents = console(address, tmp_path)
    try:
        documents.collector.cycle()
        rows = documents.overview(topic)["lagging"]["rows"]
        seen["console"] = {row["partition"]: row["blocker"]["verdict"] for row in rows}
        pages = [documents.partition(topic, number, 1_000) for number in WORDS]
        seen["console's timeline"] = {
            page["timeline"]["partition"]: bar["verdict"]
            for page in pages
            for bar in page["timeline"]["transactions"]
            if bar["is_blocking"]
        }
    finally:
        documents.close()
    assert seen == dict.fromkeys(seen, WORDS)


def test_every_view_has_the_same_words(
    address: str, topic: str, client: KafkaClient, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = OperatorCommands.of(client.options)
    main(["doctor", "--topic", topic, "--read-only", "--bootstrap-server", address, "--output", "json"])
    doctor = [each for each in json.loads(capsys.readouterr().out) if each["check"] == f"readers of {topic}"]
    assert {each["verdict"] for each in doctor} == {"problem"}
    for finding in find_open(client, [TopicPartition(topic, number) for number in (HANGS, FORGOTTEN)]):
        place = finding.transaction.topic_partition
        words = finding.sentence(commands, time.time_ns() // 1_000_000)
        assert f"it hangs: {finding.why}. `{finding.command(commands)}` ends it." in words
        assert name_blocker(client, place) == words, "a warning of the source, and the rest of a decision topic"
        assert summary_of(take_timeline(client, place)).endswith(words)
        assert f"{place} is blocked. {words}" in [each["found"] for each in doctor]


def console(address: str, folder: Path) -> Documents:
    """Return the documents of a console that judges at once."""
    chosen = argparse.Namespace(
        bootstrap_server=address, command_config=None, decision_topic="d", requests_per_second=1_000, out=folder
    )
    return Documents(chosen, LiveLinks(), suspect_seconds=0)
