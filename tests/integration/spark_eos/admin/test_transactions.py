"""`eos-kafka transactions` on a broker: its output, its refusals, its exit codes."""

import csv
import io
import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.broker_version_data import BrokerVersionData

from broker_core import Drop, EmbeddedBroker
from broker_core.types import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_partition
from spark_eos.admin import transactions_end, transactions_view
from spark_eos.admin.command import ExitCode, _parser, main, with_subcommand
from spark_eos.admin.transactions_view import described
from spark_eos.admin.transactions_view import is_listed as is_in_table
from spark_eos.client.inspection import TransactionListing
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.client.transaction_admin import all_topics, partitions_of
from spark_eos.errors import UnsupportedError
from spark_eos.options.client import ClientOptions
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.naming import TaskId
from spark_eos.transactions import judge
from spark_eos.transactions.findings import HangingFinding, HangingVerdict, unknown_finding
from spark_eos.transactions.judge import find_open
from tests.support.clients import make_topic, unique
from tests.support.hanging import HANGING_SETTINGS, hang, kafka_with_late_writes, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession, record_batch
from tests.support.spark_eos.source_data import send_plain
from tests.support.spark_eos.source_query import running
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

ANY_AGE = ("--max-transaction-timeout", "-1")
ENDS = ("abort", "force-terminate", "forceTerminateTransaction")


class Kafka:
    """A broker that accepts late writes, and the command run on it."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap_servers, self.name = address, "broker_core"
        self.capsys = capsys
        self.out = self.err = ""

    def run(self, *words: str) -> int:
        """Run one command, and confirm its plan; its output is in `out` and `err`."""
        self.capsys.readouterr()
        confirmed = ("--yes",) if words[0] in ENDS and "--dry-run" not in words else ()
        code = main(["transactions", "--bootstrap-server", self.bootstrap_servers, *words, *confirmed])
        self.out, self.err = self.capsys.readouterr()
        return code

    def json(self, *words: str) -> Any:
        """Run one command and return the JSON that it prints."""
        self.run(*words, "--output", "json")
        return json.loads(self.out)

    def csv(self, *words: str) -> list[dict[str, str]]:
        """Run one command and return the rows of the CSV that it prints."""
        self.run(*words, "--output", "csv")
        return list(csv.DictReader(io.StringIO(self.out, newline="")))

    def run_advice(self, topic: str) -> None:
        """Run the command that the last one has recommended for a topic."""
        [line] = [line for line in self.err.splitlines() if "to end it: " in line and f"--topic {topic} " in line]
        assert self.run_printed(line.partition("to end it: ")[2]) == ExitCode.DONE

    def run_printed(self, line: str) -> int:
        """Run a command from the output as a shell does, and confirm its plan."""
        program, *words = shlex.split(line)
        assert program == "eos-kafka"
        self.capsys.readouterr()
        code = main([*words, "--yes"])
        self.out, self.err = self.capsys.readouterr()
        return code


@pytest.fixture(scope="module")
def address(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_with_late_writes(broker_kind, tmp_path_factory.mktemp("hanging")) as address:
        yield address


@pytest.fixture
def kafka(address: str, capsys: pytest.CaptureFixture[str]) -> Kafka:
    return Kafka(address, capsys)


@pytest.fixture
def session(address: str) -> Iterator[RawSession]:
    with RawClient(address) as client:
        yield RawSession(client, unique("id"))


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return make_topic(kafka)


def cells(line: str) -> list[str]:
    return [cell.rstrip() for cell in line.split("\t")]


def abort(topic: str, *more: str) -> tuple[str, ...]:
    """Return the words that abort a transaction in partition 0 of a topic."""
    return ("abort", "--topic", topic, "--partition", "0", *more)


def by_producer(identity: Identity, id_off: int = 0, epoch_off: int = 0, coordinator_epoch: int = 0) -> tuple[str, ...]:
    """Return the options that name a transaction by its producer, or by one beside it."""
    producer_id, epoch = identity.producer_id + id_off, identity.producer_epoch + epoch_off
    return f"--producer-id={producer_id}", f"--producer-epoch={epoch}", f"--coordinator-epoch={coordinator_epoch}"


def now_ms() -> int:
    return int(time.time() * 1000)


def client_of(address: str) -> KafkaClient:
    return KafkaClient(ClientOptions(tuple(address.split(","))))


# Output


def test_list_prints_the_table_of_kafka_transactions(kafka: Kafka, session: RawSession) -> None:
    identity = session.init()[1]
    assert kafka.run("list", "--transactional-id-pattern", session.transactional_id) == ExitCode.DONE
    wide = len(session.transactional_id)
    assert kafka.out == (
        f"{'TransactionalId'.ljust(wide)}\tCoordinator\tProducerId\tTransactionState\t\n"
        f"{session.transactional_id}\t1          \t{str(identity.producer_id).ljust(10)}\tEmpty           \t\n"
    )
    assert kafka.json("list", "--transactional-id-pattern", session.transactional_id) == [
        {
            "transactional_id": session.transactional_id,
            "coordinator_id": 1,
            "producer_id": identity.producer_id,
            "state": "Empty",
        }
    ]


def test_csv_has_the_fields_of_the_json(kafka: Kafka, session: RawSession) -> None:
    topic = make_topic(kafka, partitions=2)
    identity = open_up(session, topic, 0, 1)
    name = session.transactional_id
    for words in (
        ("list", "--transactional-id-pattern", name),
        ("describe-producers", "--topic", topic, "--partition", "0"),
        ("find-hanging", "--topic", topic, *ANY_AGE),
        ("abort", "--topic", topic, "--partition", "0", "--start-offset", "0", "--force", "--dry-run"),
        ("force-terminate", "--transactional-id", name, "--dry-run"),
    ):
        objects = kafka.json(*words)
        objects = objects if isinstance(objects, list) else [objects]
        rows = kafka.csv(*words)
        assert [set(row) for row in rows] == [set(each) for each in objects] != [], words
        for row, each in zip(rows, objects, strict=True):
            told = {key: without_age(text_of(value)) for key, value in each.items()}
            assert {key: without_age(value) for key, value in row.items()} == told, words
    [described] = kafka.csv("describe", "--transactional-id", name)
    assert described["topic_partitions"] == f"{topic}-0 {topic}-1"
    assert described["producer_id"] == str(identity.producer_id)
    assert kafka.csv("find-hanging", "--topic", make_topic(kafka)) == []
    assert kafka.out.startswith("topic,partition,producer_id,"), "the header is there without rows, too"


def without_age(text: str) -> str:
    """Leave out how long ago something was, which grows between two commands."""
    return re.sub(r"\d+ s ago", "some time ago", text)


def text_of(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def report_unknown_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make brokers report a state that only a newer Kafka has."""
    outcome = KafkaClient.outcome

    def newer(self: KafkaClient, *request: Any) -> Any:
        response = outcome(self, *request)
        for state in getattr(response, "transaction_states", ()):
            state.transaction_state = "PreparedTransaction"
        return response

    monkeypatch.setattr(KafkaClient, "outcome", newer)


def test_unknown_transaction_state_is_listed_and_a_clear_error_for_the_sink(
    kafka: Kafka, session: RawSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.init()
    report_unknown_states(monkeypatch)
    for command in (
        ("list", "--transactional-id-pattern", session.transactional_id),
        ("describe", "--transactional-id", session.transactional_id),
    ):
        assert kafka.run(*command) == ExitCode.DONE, kafka.err
        assert "PreparedTransaction" in kafka.out
    with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        with pytest.raises(UnsupportedError, match=f"{session.transactional_id}.*'PreparedTransaction'.*Upgrade"):
            KafkaCluster(client, "decisions").describe_transactions([session.transactional_id])


def test_unknown_transaction_state_is_printed_by_searches(
    kafka: Kafka, session: RawSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, topic: str
) -> None:
    open_up(session, topic)
    report_unknown_states(monkeypatch)
    [found] = kafka.json("find-hanging", "--topic", topic, *ANY_AGE)
    assert (found["verdict"], found["state"]) == ("live", "PreparedTransaction")
    assert "the transaction is in state PreparedTransaction" in found["why"]
    for words in (
        ["timeline", topic, "--out", str(tmp_path / "page.html")],
        ["watch", "--topic", topic, "--count", "1"],
    ):
        assert main([*words, "--bootstrap-server", kafka.bootstrap_servers]) == ExitCode.DONE
    assert "PreparedTransaction" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("api", "first", "has_verdict"),
    [("DescribeProducers", "2.8", False), ("ListTransactions", "3.0", True), ("DescribeTransactions", "3.0", True)],
)
def test_old_brokers_are_reported_with_what_they_lack(
    kafka: Kafka,
    session: RawSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    api: str,
    first: str,
    has_verdict: bool,
    topic: str,
) -> None:
    """Commands that do without the API go on; the others fail with its name and the first version."""
    open_up(session, topic)
    version = BrokerVersionData.api_version

    def older(self: Any, request: Any, *arguments: Any, **bounds: Any) -> Any:
        name = (request if isinstance(request, type) else type(request)).__name__
        if name.startswith(api):
            raise IncompatibleBrokerVersion(f"{name} is not served")
        return version(self, request, *arguments, **bounds)

    monkeypatch.setattr(BrokerVersionData, "api_version", older)
    assert kafka.run("find-hanging", "--topic", topic, *ANY_AGE) == ExitCode.FAILED
    assert api in kafka.err and f"Kafka {first}" in kafka.err
    page = tmp_path / "page.html"
    assert main(["timeline", topic, "--out", str(page), "--bootstrap-server", kafka.bootstrap_servers]) == ExitCode.DONE
    said = capsys.readouterr().out
    assert f"open since offset 0.{' Its coordinator could not be queried: ' + api if has_verdict else ''}" in said
    assert (
        main(["watch", "--topic", topic, "--count", "1", "--bootstrap-server", kafka.bootstrap_servers])
        == ExitCode.DONE
    )
    said = capsys.readouterr().out
    assert f"{topic}-0: last stable offset 0, lag 1" in said
    assert api in said and (": unknown" in said) == has_verdict


def test_list_accepts_a_duration_and_a_pattern(kafka: Kafka, session: RawSession) -> None:
    open_up(session, make_topic(kafka))
    only = ("--transactional-id-pattern", session.transactional_id)
    for duration, is_listed in (("-1", True), ("0", True), ("3600000", False)):
        listed = kafka.json("list", "--duration-filter", duration, *only)
        assert [each["transactional_id"] for each in listed] == [session.transactional_id] * is_listed, duration
    assert kafka.json("list", "--transactional-id-pattern", session.transactional_id[:-1]) == [], "a full match"
    assert kafka.run("list", "--transactional-id-pattern", "(") == ExitCode.FAILED
    assert "INVALID_REGULAR_EXPRESSION (128)" in kafka.err
    assert kafka.err.startswith("The pattern '(' is not a valid regular expression for Kafka. ")
    assert "RequestError" not in kafka.err
    assert "BrokerError" not in kafka.err


@pytest.mark.parametrize(
    ("option", "first"),
    [(("--duration-filter", "0"), "Kafka 3.8"), (("--transactional-id-pattern", "a.*"), "Kafka 4.1")],
)
def test_filter_that_brokers_lack_is_an_error_with_their_first_version(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, option: tuple[str, str], first: str
) -> None:
    def older(_: KafkaClient, request: Any, *, min_version: int = 0, **rest: Any) -> int:
        if min_version > 0:
            raise UnsupportedError("The broker does not serve it")
        return 0

    monkeypatch.setattr(KafkaClient, "api_version", older)
    assert kafka.run("list", *option) == ExitCode.FAILED
    assert f"{first} is the first that does" in kafka.err
    assert kafka.run("list") == ExitCode.DONE


def test_list_filters_by_broker_state_and_producer_id(kafka: Kafka, session: RawSession, topic: str) -> None:
    identity = open_up(session, topic)
    name = session.transactional_id

    def ids(*words: str) -> list[str]:
        return [each["transactional_id"] for each in kafka.json("list", *words)]

    assert name in ids("--broker", "1")
    assert name in ids("--state", "Ongoing", "--state", "Empty")
    assert name not in ids("--state", "Empty")
    assert ids("--producer-id", str(identity.producer_id)) == [name]
    assert name not in ids("--producer-id", str(identity.producer_id + 1_000_000))
    assert kafka.run("list", "--broker-id", "99") == ExitCode.USAGE
    assert kafka.run("list", "--state", "Ongoin") == ExitCode.USAGE
    assert "does not know the transaction state Ongoin" in kafka.err
    assert "PrepareCommit" in kafka.err


def test_describe_shows_an_open_transaction(kafka: Kafka, session: RawSession) -> None:
    topic = make_topic(kafka, partitions=2)
    identity = open_up(session, topic, 1)
    assert kafka.run("describe", "--transactional-id", session.transactional_id) == ExitCode.DONE
    head, row, end = kafka.out.split("\n")
    names = (
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
        "CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions"
    )
    assert (cells(head), end) == ([*names.split(), ""], "")
    found = dict(zip(cells(head), cells(row), strict=True))
    assert found["TopicPartitions"] == f"{topic}-1"
    assert (found["TransactionState"], found["TransactionTimeoutMs"]) == ("Ongoing", "60000")
    assert 0 <= int(found["TransactionDurationMs"]) < 60_000
    shown = kafka.json("describe", "--transactional-id", session.transactional_id)
    assert shown["topic_partitions"] == [{"topic": topic, "partition": 1}]
    assert (shown["producer_id"], shown["producer_epoch"]) == identity
    assert now_ms() - 60_000 < shown["start_time_ms"] <= now_ms()


@pytest.mark.parametrize(("hours", "is_wrong"), [(1, True), (-1, True), (0, False)])
def test_describe_says_that_a_clock_is_wrong(
    kafka: Kafka, session: RawSession, topic: str, hours: int, is_wrong: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator's may be an hour ahead or behind; a duration beyond the timeout is not the transaction's."""
    open_up(session, topic)
    chosen = parsed(f"eos-kafka transactions describe --transactional-id {session.transactional_id}")
    with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        transactions_view.describe(chosen, client, now_ms() + hours * 3_600_000)
    assert ("The clocks of this machine and of broker 1 differ" in capsys.readouterr().err) == is_wrong


def test_describe_prints_none_without_a_start_time(kafka: Kafka, session: RawSession) -> None:
    session.init()
    assert kafka.run("describe", "--transactional-id", session.transactional_id) == ExitCode.DONE
    assert cells(kafka.out.split("\n")[1])[6:] == ["None", "None", "", ""]
    shown = kafka.json("describe", "--transactional-id", session.transactional_id)
    assert (shown["start_time_ms"], shown["duration_ms"], shown["topic_partitions"]) == (None, None, [])


def test_describe_producers_shows_producers_of_a_partition(kafka: Kafka, session: RawSession, topic: str) -> None:
    identity = open_up(session, topic)
    for more in ((), ("--broker-id", "1")):
        assert kafka.run("describe-producers", "--topic", topic, "--partition", "0", *more) == ExitCode.DONE
        head, row, _ = kafka.out.split("\n")
        names = (
            "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp CurrentTransactionStartOffset"
        )
        assert cells(head) == [*names.split(), ""]
        assert [*cells(row)[:4], cells(row)[5]] == [*map(str, identity), "-1", "0", "0"]
    session.end(identity, commit=True, version=5)
    wait_until(lambda: session.describe().transaction_state == "CompleteCommit", "the marker is written")
    [known] = kafka.json("describe-producers", "--topic", topic, "--partition", "0")
    assert (known["start_offset"], known["coordinator_epoch"]) == (None, 0)
    kafka.run("describe-producers", "--topic", topic, "--partition", "0")
    assert cells(kafka.out.split("\n")[1])[5] == "None"


# Hanging transactions


def test_hanging_transaction_is_explained_and_its_command_ends_it(
    kafka: Kafka, session: RawSession, topic: str
) -> None:
    identity = hang(session, topic)
    assert kafka.run("find-hanging", "--topic", topic) == ExitCode.DONE, "younger than 15 minutes"
    assert kafka.out.count("\n") == 1
    assert "leaves out 1 hanging transaction: the last record is not older than 15 min" in kafka.err
    assert "it hangs" in kafka.err
    assert kafka.run("find-hanging", "--topic", topic, *ANY_AGE) == ExitCode.HANGING_FOUND
    head, row, _ = kafka.out.split("\n")
    names = "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)"
    assert cells(head) == [*names.split(), ""]
    assert [*cells(row)[:6], cells(row)[7]] == [topic, "0", *map(str, identity), "0", "2", "0"]
    for part in (f"{topic}-0 has an open transaction of producer id {identity.producer_id}", "begins at offset 2",
                 f"broker 1 coordinates '{session.transactional_id}': state CompleteCommit",
                 "no marker will end it"):  # fmt: skip
        assert part in kafka.err
    [line] = [line for line in kafka.err.splitlines() if "to end it: " in line]
    command = line.partition("to end it: ")[2]
    [shown] = kafka.json("find-hanging", "--topic", topic, *ANY_AGE)
    assert (shown["hanging"], shown["command"], shown["state"]) == (True, command, "CompleteCommit")
    assert main(shlex.split(command)[1:]) == ExitCode.NOTHING_DONE, "its plan is not confirmed"
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 2
    assert kafka.run_printed(command) == ExitCode.DONE
    assert kafka.out == "", "Kafka's tool prints nothing"
    assert "About to write an abort marker" in kafka.err
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 4
    assert kafka.run("find-hanging", "--topic", topic, *ANY_AGE) == ExitCode.DONE


def test_query_reads_on_when_the_hanging_transaction_is_aborted(kafka: Kafka, session: RawSession, topic: str) -> None:
    hang(session, topic)
    send_plain(kafka.bootstrap_servers, topic, ["behind"])
    with running(kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest") as query:
        assert (query.texts(), query.texts()) == (["in time"], []), "it waits for the last stable offset"
        assert kafka.run("find-hanging", "--topic", topic, *ANY_AGE) == ExitCode.HANGING_FOUND
        kafka.run_advice(topic)
        assert query.texts() == ["behind"]


def test_plan_is_confirmed_at_a_terminal(kafka: Kafka, session: RawSession, topic: str) -> None:
    hang(session, topic)
    where = ("--topic", topic, "--partition", "0", "--start-offset", "2")
    words = ("transactions", "abort", *where, "--bootstrap-server", kafka.bootstrap_servers)
    for answer, code, stable in (("n", ExitCode.NOTHING_DONE, 2), ("y", ExitCode.DONE, 4)):
        with Terminal(sys.executable, "-m", "spark_eos.admin", *words) as terminal:
            terminal.read_until(lambda text: "Carry this out? [y/N]" in text)
            assert "About to write an abort marker" in terminal.text
            terminal.write(f"{answer}\n")
            assert terminal.wait() == code, terminal.text
        assert session.fetch(topic, 0, isolation=1).last_stable_offset == stable


def test_live_transaction_is_explained_and_not_counted_as_hanging(
    kafka: Kafka, session: RawSession, topic: str
) -> None:
    identity = open_up(session, topic)
    assert kafka.run("find-hanging", "--topic", topic, *ANY_AGE) == ExitCode.DONE
    assert "it does not hang" not in kafka.err
    assert kafka.run("find-hanging", "--topic", topic, "--explain", *ANY_AGE) == ExitCode.DONE
    assert "it does not hang" in kafka.err and "belongs to an ongoing transaction" in kafka.err
    [live] = kafka.json("find-hanging", "--topic", topic, *ANY_AGE)
    assert (live["hanging"], live["verdict"], live["producer_id"]) == (False, "live", identity.producer_id)
    assert kafka.run_printed(live["command"]) == ExitCode.DONE, "force-terminate"
    assert session.describe().transaction_state == "Empty"
    open_up(session, topic)
    [young] = kafka.json("find-hanging", "--topic", topic, "--max-transaction-timeout", "1")
    assert (young["verdict"], young["state"]) == ("live", "Ongoing"), "the age of a record is no verdict"


def test_producer_unknown_to_every_coordinator_is_hanging(kafka: Kafka, session: RawSession, topic: str) -> None:
    """A producer id without a transactional id is what remains when the transactional id expires."""
    hang(session, topic, Identity(987_654_321, 3))
    with client_of(kafka.bootstrap_servers) as client:
        [found] = find_open(client, [TopicPartition(topic, 0)])
    assert (found.verdict, found.owners) == (HangingVerdict.HANGING, ())
    assert "no broker lists a transactional id with producer id 987654321" in found.coordinator_says
    assert "can see all transactional ids" in found.why
    done = kafka.json(*abort(topic, "--start-offset", "0"))
    assert (done["producer_id"], done["producer_epoch"]) == (987_654_321, 3)
    assert done["coordinator_epoch"] == 0, "the partition knows none, and says -1"


def test_transaction_exactly_at_the_age_limit_is_not_reported(address: str, topic: str, session: RawSession) -> None:
    hang(session, topic)
    place = TopicPartition(topic, 0)
    with client_of(address) as client:
        [found] = find_open(client, [place])
    limit_ms = found.transaction.producer.last_timestamp_ms + 60_000
    assert [is_in_table(found, 60_000, limit_ms + more_ms) for more_ms in (0, 1)] == [False, True]
    assert found.age_ms(limit_ms) is None, "a time that a client chose is no age"


def test_hanging_transaction_with_records_from_the_future_is_found(
    address: str, topic: str, session: RawSession, capsys: pytest.CaptureFixture[str]
) -> None:
    hang(session, topic, age_ms=-30 * 60_000)
    found = main(["transactions", "--bootstrap-server", address, "find-hanging", "--topic", topic])
    written = capsys.readouterr()
    assert found == ExitCode.HANGING_FOUND
    assert written.out.split()[-1] == "None", "its age is unknown"
    assert "which is in the future and says nothing about its age" in written.err


def test_transaction_that_ends_during_the_search_is_not_hanging(
    address: str, topic: str, session: RawSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = open_up(session, topic)
    asked = judge.list_by_broker

    def end_first(*arguments: Any, **filters: Any) -> Any:
        session.end_until_done(identity, commit=True, version=5)
        wait_until(lambda: session.describe().transaction_state == "CompleteCommit", "the marker is written")
        return asked(*arguments, **filters)

    monkeypatch.setattr(judge, "list_by_broker", end_first)
    with client_of(address) as client:
        [found] = find_open(client, [TopicPartition(topic, 0)])
    assert found.verdict is HangingVerdict.ENDED


def test_id_unlisted_while_its_coordinator_moves_is_not_hanging(
    address: str, topic: str, session: RawSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_up(session, topic)
    with client_of(address) as client:
        listed = judge.list_by_broker
        is_asked: list[bool] = []

        def answer(client: KafkaClient, **filters: Any) -> list[TransactionListing]:
            is_asked.append(True)
            return [] if len(is_asked) == 1 else listed(client, **filters)

        monkeypatch.setattr(judge, "list_by_broker", answer)
        [found] = find_open(client, [TopicPartition(topic, 0)])
    assert found.verdict is HangingVerdict.LIVE


def test_broker_search_covers_all_topics(kafka: Kafka, session: RawSession) -> None:
    topic = make_topic(kafka, partitions=3)
    hang(session, topic, partition=2)
    assert kafka.run("find-hanging", "--broker-id", "1", *ANY_AGE) == ExitCode.HANGING_FOUND
    assert [topic, "2"] in [cells(line)[:2] for line in kafka.out.splitlines()]
    assert kafka.run("find-hanging", "--topic", topic, "--partition", "1", *ANY_AGE) == ExitCode.DONE
    with client_of(kafka.bootstrap_servers) as client:
        assert {topic, "__transaction_state"} <= set(all_topics(client))
        assert len(partitions_of(client, ["__transaction_state"])) == 5
        assert partitions_of(client, [topic], broker_id=2) == []


def test_hidden_transaction_that_is_young_conceals_no_hanging_one(
    kafka: Kafka, session: RawSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, hidden = make_topic(kafka, partitions=2), "hidden-by-the-test"
    hang(session, topic, partition=0, age_ms=3_600_000)
    find = transactions_view.find_open

    def hide_live(*arguments: Any, **more: Any) -> list[HangingFinding]:
        found = find(*arguments, **more)
        return [each if each.hangs else unknown_finding(each.transaction, hidden, is_hidden=True) for each in found]

    with RawClient(kafka.bootstrap_servers) as client:
        open_up(RawSession(client, unique("short")), topic, 1)
        monkeypatch.setattr(transactions_view, "find_open", hide_live)
        assert kafka.run("find-hanging", "--topic", topic) == ExitCode.HANGING_FOUND
        assert [cells(line)[:2] for line in kafka.out.splitlines()[1:]] == [[topic, "0"]]
        assert "1 hanging transaction, 1 other open one" in kafka.err
        assert kafka.run("find-hanging", "--topic", topic, *ANY_AGE) == ExitCode.FAILED, "it would be listed"
        assert "Cannot tell whether the transaction" in kafka.err


def test_live_transaction_whose_coordinator_is_offline_is_not_called_hanging(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No broker lists it, and its coordinator commits it when it is back."""
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 2}) as cluster:
        kafka, name = Kafka(cluster.bootstrap_servers, capsys), unique("live")
        with RawClient(cluster.bootstrap_servers) as client:
            session = RawSession(client, name)
            open_up(session, "t", age_ms=3_600_000)
            state = TopicPartition(TRANSACTION_STATE_TOPIC, coordinator_partition(name, 5))
            with cluster.without_leader(tuple(state)):
                assert kafka.run("find-hanging", "--topic", "t") == ExitCode.FAILED
                assert f"no leader has the partitions {state.partition} of the coordinators' topic" in kafka.err
                assert kafka.run(*abort("t", "--start-offset", "0")) == ExitCode.FAILED
                assert "Cannot tell whether the transaction" in kafka.err
                with client_of(cluster.bootstrap_servers) as client:
                    [found] = find_open(client, [TopicPartition("t", 0)])
                assert "may be offline" in found.sentence(OperatorCommands(("b:1",)), now_ms())
                assert kafka.run("list") == ExitCode.DONE
                assert f"The list lacks the ids in the partitions {state.partition} of __transaction_state" in kafka.err
                assert "operator who may see every id" not in found.sentence(OperatorCommands(("b:1",)), now_ms())
            [found] = kafka.json("find-hanging", "--topic", "t")
            assert found["verdict"] == "live"


def test_broker_that_lists_no_transactions_hides_only_its_own_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    # Each is in another partition of the coordinators' topic, which has five.
    names = [
        next(each for each in map("id-{}".format, count()) if coordinator_partition(each, 5) == n) for n in range(3)
    ]
    with EmbeddedBroker(brokers=2, config=HANGING_SETTINGS, topics={"t": 3}) as cluster:
        address = cluster.bootstrap_servers.split(",")[0]
        kafka = Kafka(address, capsys)
        for number, name in enumerate(names):
            cluster.move_leader(("t", number), 1)
            cluster.move_coordinator(1, transactional_id=name)
        with RawClient(address) as client:
            hang(RawSession(client, names[0]), "t", age_ms=3_600_000)
            for number in (1, 2):
                open_up(RawSession(client, names[number]), "t", number)
        cluster.move_coordinator(2, transactional_id=names[2])
        search = ("find-hanging", "--topic", "t", "--timeout-seconds", "2")
        with cluster.fault(broker=2, api="ListTransactions", action=Drop()):
            assert kafka.run(*search, "--explain") == ExitCode.HANGING_FOUND
            assert [cells(line)[:2] for line in kafka.out.splitlines()[1:]] == [["t", "0"]]
            assert "t-1 at offset 0: it does not hang" in kafka.err
            assert "did not list their transactional ids in time: 2" in kafka.err
            assert kafka.run(*abort("t", "--start-offset", "2", "--timeout-seconds", "2")) == ExitCode.FAILED
            assert "ListTransactions was not answered by every broker" in kafka.err
        assert [each["verdict"] for each in kafka.json(*search)] == ["hanging", "live", "live"]


def test_search_of_all_topics_reports_partitions_that_it_could_not_check(
    kafka: Kafka, session: RawSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(kafka, partitions=2)
    identity = hang(session, topic, partition=1)
    assert kafka.run("find-hanging", "--all-topics", *ANY_AGE) == ExitCode.HANGING_FOUND
    assert [topic, "1", str(identity.producer_id)] in [cells(line)[:3] for line in kafka.out.splitlines()]
    kafka.run_advice(topic)
    gone = TopicPartition("deleted-meanwhile", 0)
    monkeypatch.setattr(transactions_view, "partitions_of", lambda *given: [*partitions_of(*given)[:1], gone])
    assert kafka.run("find-hanging", "--all-topics", *ANY_AGE) == ExitCode.FAILED
    assert "Checked 1 partition: 0 hanging transactions, 0 other open ones.\n" in kafka.err
    assert f"Not checked: {gone} (UNKNOWN_TOPIC_OR_PARTITION (3)).\n" in kafka.err
    assert kafka.run("find-hanging", "--all-topics", "--topic", topic) == ExitCode.USAGE


def test_search_of_a_topic_goes_on_without_a_partition_that_has_no_leader(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is searched after a broker was lost, which is what makes transactions hang."""
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 2}) as cluster:
        with RawClient(cluster.bootstrap_servers) as client:
            hang(RawSession(client, unique("late")), "t", partition=1)
        tool = Kafka(cluster.bootstrap_servers, capsys)
        search = ("find-hanging", "--topic", "t", *ANY_AGE, "--timeout-seconds", "1")
        with cluster.without_leader(("t", 0)):
            assert tool.run(*search) == ExitCode.HANGING_FOUND
            assert "Not checked: t-0 (" in tool.err
            tool.run_advice("t")
            assert tool.run(*search) == ExitCode.FAILED
            assert tool.run(*search, "--partition", "0") == ExitCode.FAILED
            assert "Check that the partition has a leader" in tool.err


def test_topic_that_is_deleted_during_a_search_does_not_end_it() -> None:
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"gone": 1, "stays": 1}) as cluster:
        gone, stays = (TopicPartition(topic, 0) for topic in ("gone", "stays"))
        with RawClient(cluster.bootstrap_servers) as client:
            for place in (gone, stays):
                hang(RawSession(client, unique("late")), place.topic)
        unreadable: dict[TopicPartition, str] = {}
        with client_of(cluster.bootstrap_servers) as client:
            delete = lambda *_: cluster.delete_topic("gone")  # noqa: E731
            [found] = find_open(client, [gone, stays], report=delete, unreadable=unreadable)
        assert (found.transaction.topic_partition, found.hangs) == (stays, True)
        assert unreadable == {gone: "UNKNOWN_TOPIC_OR_PARTITION (3)"}


def test_broker_that_stops_during_a_search_of_its_replicas_does_not_end_it() -> None:
    """The second look is at the leaders: a follower may be late, too."""
    with EmbeddedBroker(brokers=2, config=HANGING_SETTINGS, topics={"t": 1}) as cluster:
        cluster.move_leader(("t", 0), 1)
        with RawClient(cluster.bootstrap_servers.split(",")[0]) as client:
            session = RawSession(client, "late")
            cluster.move_coordinator(1, transactional_id="late")
            hang(session, "t")
        with client_of(cluster.bootstrap_servers) as client:
            stop = lambda *_: cluster.broker(2).stop()  # noqa: E731
            [found] = find_open(client, [TopicPartition("t", 0)], 2, report=stop)
        assert found.hangs


def test_transaction_at_another_epoch_than_the_coordinators_hangs(
    kafka: Kafka, session: RawSession, topic: str
) -> None:
    """A later transaction of the same producer lists the partition, before it has written to it."""
    late = hang(session, topic)
    later = session.init_until_done()
    assert later.producer_id == late.producer_id and later.producer_epoch > late.producer_epoch
    session.add_until_done(later, topic, 0)
    [found] = kafka.json("find-hanging", "--topic", topic, *ANY_AGE)
    assert found["hanging"] is True
    assert found["producer_epoch"] == late.producer_epoch
    assert f"at epoch {later.producer_epoch}, which is not this one" in found["why"]
    assert kafka.run("find-hanging", "--topic", topic, *ANY_AGE) == ExitCode.HANGING_FOUND
    kafka.run_advice(topic)
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 4
    assert session.end_until_done(later, commit=True, version=4)[0] == 0


@pytest.mark.parametrize("level", [1, 2])
def test_commit_of_a_later_owner_proves_nothing_about_a_late_write_of_v1(
    capsys: pytest.CaptureFixture[str], level: int
) -> None:
    """The application was restarted, which raises the epoch by one, and has committed since."""
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 1, "other": 1}, transaction_version=level) as kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            session = RawSession(client, "late")
            # With a first record at this level: at the lower one, the level is all that shows V1.
            late = hang(session, "t", session.init_until_done(version=4) if level == 1 else None)
            later = session.init_until_done(version=4)
            assert later.producer_epoch == late.producer_epoch + 1
            session.add_until_done(later, "other", 0)
            assert session.end_until_done(later, commit=True, version=3)[0] == 0
            wait_until(lambda: session.describe().transaction_state == "CompleteCommit", "the marker is written")
        tool = Kafka(kafka.bootstrap_servers, capsys)
        [found] = tool.json("find-hanging", "--topic", "t", *ANY_AGE)
        assert found["hanging"] is True
        assert "committed" not in found["why"]
        assert "--commit" not in found["command"]
        where = abort("t", "--start-offset", str(found["start_offset"]))
        assert tool.run(*where, "--commit") == ExitCode.NOTHING_DONE
        assert "There is no evidence that the transaction" in tool.err
        assert tool.run(*where, "--yes") == ExitCode.DONE


@pytest.mark.parametrize(("place", "is_shown"), [(("t", 1), True), (("other", 0), False)])
def test_records_of_a_later_owner_show_v1_on_a_cluster_of_v2(
    capsys: pytest.CaptureFixture[str], place: tuple[str, int], is_shown: bool
) -> None:
    """The late write is the first one to its partition; librdkafka uses V1 on each cluster."""
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 2, "other": 1}) as kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            session = RawSession(client, "late")
            hang(session, "t", session.init_until_done(version=4))
            later = session.init_until_done(version=4)
            session.add_until_done(later, *place)
            assert session.produce(place[0], record_batch([b"later"], later, 0), version=9, partition=place[1])[0] == 0
            assert session.end_until_done(later, commit=True, version=3)[0] == 0
            wait_until(lambda: session.describe().transaction_state == "CompleteCommit", "the marker is written")
        tool = Kafka(kafka.bootstrap_servers, capsys)
        [found] = tool.json("find-hanging", "--topic", "t", *ANY_AGE)
        assert found["hanging"] is True
        assert ("--commit" in found["command"]) is not is_shown
        assert ("look into the application's log first" in found["why"]) is not is_shown
        assert tool.run(*abort("t", "--start-offset", "0", *([] if is_shown else ["--commit"]))) == ExitCode.DONE
        assert ("look into the application's log first" in tool.err) is not is_shown


def test_abort_before_its_first_record_does_not_show_v2(capsys: pytest.CaptureFixture[str]) -> None:
    """A client of V1 that adds a partition and aborts before it writes leaves a marker of its epoch without records."""
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 2, "other": 1}, clock="virtual") as kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            session = RawSession(client, "late")
            hang(session, "t", session.init_until_done(version=4))
            later = session.init_until_done(version=4)
            session.add_until_done(later, "t", 1)
            assert session.end_until_done(later, commit=False, version=3)[0] == 0
            wait_until(lambda: session.describe().transaction_state == "CompleteAbort", "the marker is written")
            kafka.clock.advance(seconds=1)
            session.add_until_done(later, "other", 0)
            assert session.produce("other", record_batch([b"later"], later, 0), version=9)[0] == 0
            assert session.end_until_done(later, commit=True, version=3)[0] == 0
            wait_until(lambda: session.describe().transaction_state == "CompleteCommit", "the marker is written")
        [found] = Kafka(kafka.bootstrap_servers, capsys).json("find-hanging", "--topic", "t", *ANY_AGE)
        assert "look into the application's log first" in found["why"]


def test_topic_of_many_hanging_transactions_is_searched_once_for_their_protocol() -> None:
    """A partition without a leader, which was not asked for, is not waited for."""
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 6, "other": 1}) as kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            session = RawSession(client, "late")
            first = session.init_until_done(version=4)
            for partition in range(5):
                hang(session, "t", first, partition=partition)
            later = session.init_until_done(version=4)
            session.add_until_done(later, "other", 0)
            assert session.end_until_done(later, commit=True, version=3)[0] == 0
            wait_until(lambda: session.describe().transaction_state == "CompleteCommit", "the marker is written")
        with kafka.without_leader(("t", 5)), client_of(kafka.bootstrap_servers) as client:
            before = len(kafka.requests())
            found = find_open(client, [TopicPartition("t", partition) for partition in range(5)])
            asked = [each.api for each in kafka.requests()[before:]]
        assert [each.hangs for each in found] == [True] * 5
        # Two looks at what is open, and one at the whole topic.
        assert asked.count("DescribeProducers") == 3


def test_list_covers_several_brokers_and_follows_coordinator_moves(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(brokers=3, config=HANGING_SETTINGS, topics={"t": 3}) as cluster:
        kafka = Kafka(cluster.bootstrap_servers, capsys)
        names = [f"id-{number}" for number in range(6)]
        for number, name in enumerate(names):
            cluster.move_coordinator(1 + number % 3, transactional_id=name)
        for name in names:
            home = cluster.bootstrap_servers.split(",")[cluster.coordinator(transactional_id=name) - 1]
            with RawClient(home) as client:
                assert RawSession(client, name).init()[0] == 0
        found = {each["transactional_id"]: each["coordinator_id"] for each in kafka.json("list")}
        assert found == {name: cluster.coordinator(transactional_id=name) for name in names}
        assert len(set(found.values())) > 1
        with client_of(cluster.bootstrap_servers) as client:
            for broker in (1, 2, 3):
                cluster.move_coordinator(broker, transactional_id="id-0")
                cluster.move_leader(("t", 0), broker)
                assert described(client, "id-0")[0] == broker
                assert ProducerScan(client).run([TopicPartition("t", each) for each in range(3)]) == {
                    TopicPartition("t", each): [] for each in range(3)
                }


# Refusals


def test_abort_refuses_a_live_transaction_unless_forced(kafka: Kafka, session: RawSession, topic: str) -> None:
    identity = open_up(session, topic)
    by_offset = abort(topic, "--start-offset", "0")
    for words in (by_offset, abort(topic, *by_producer(identity, coordinator_epoch=-1))):
        assert kafka.run(*words) == ExitCode.NOTHING_DONE
        assert f"in the transaction of '{session.transactional_id}', state Ongoing" in kafka.err
        assert session.fetch(topic, 0, isolation=1).last_stable_offset == 0
    way_out = kafka.err.partition("If its producer is dead, `")[2].partition("`")[0]
    assert parsed(way_out).transactional_id == session.transactional_id
    assert kafka.run(*by_offset, "--force", "--dry-run") == ExitCode.NOTHING_DONE
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 0
    assert kafka.run(*by_offset, "--force") == ExitCode.DONE
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 2


def test_abort_by_producer_ends_a_hanging_transaction(kafka: Kafka, session: RawSession, topic: str) -> None:
    identity = hang(session, topic)
    words = by_producer(identity)
    assert kafka.run(*abort(topic, words[0])) == ExitCode.USAGE
    assert "missing: --producer-epoch, --coordinator-epoch." in kafka.err
    assert kafka.json(*abort(topic, *words)) == {
        "topic": topic,
        "partition": 0,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
        "coordinator_epoch": 0,
        "done": True,
    }
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 4


@pytest.mark.parametrize(
    ("id_off", "epoch_off", "coordinator_epoch"),
    [(1, 0, 0), (0, 1, 0), (0, 0, -1)],
    ids=["another producer id", "an epoch that no broker has assigned", "an outdated coordinator epoch"],
)
def test_abort_by_producer_refuses_what_is_not_open(
    kafka: Kafka, session: RawSession, id_off: int, epoch_off: int, coordinator_epoch: int, topic: str
) -> None:
    identity = hang(session, topic)
    named = by_producer(identity, id_off, epoch_off, coordinator_epoch)
    assert kafka.run(*abort(topic, *named)) == ExitCode.NOTHING_DONE
    assert f"{topic}-0 has no open transaction of producer id" in kafka.err
    assert f"producer id {identity.producer_id}, epoch {identity.producer_epoch}, coordinator epoch 0" in kafka.err
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 2


@pytest.mark.parametrize(
    ("target", "lacking", "says"),
    [
        (ProducerScan, "run", "cannot report what is open in"),
        (judge, "list_by_broker", "cannot report whether the transaction is live"),
    ],
)
def test_abort_on_old_brokers_needs_force(
    kafka: Kafka,
    session: RawSession,
    monkeypatch: pytest.MonkeyPatch,
    target: object,
    lacking: str,
    says: str,
    topic: str,
) -> None:
    identity = hang(session, topic)

    def older(*_: Any, **__: Any) -> Any:
        raise UnsupportedError("The brokers do not support it")

    monkeypatch.setattr(target, lacking, older)
    words = abort(topic, *by_producer(identity))
    assert kafka.run(*words) == ExitCode.NOTHING_DONE
    assert says in kafka.err
    assert "--force" in kafka.err
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 2
    assert kafka.run(*words, "--force") == ExitCode.DONE
    assert session.fetch(topic, 0, isolation=1).last_stable_offset == 4


def test_abort_lists_open_transactions_when_none_matches(kafka: Kafka, session: RawSession, topic: str) -> None:
    hang(session, topic)
    assert kafka.run(*abort(topic, "--start-offset", "1")) == ExitCode.FAILED
    assert "open transactions that begin at 2" in kafka.err


def test_force_terminate_ends_all_transactions_and_fences_the_producers(kafka: Kafka, session: RawSession) -> None:
    topic = make_topic(kafka, partitions=2)
    identity = open_up(session, topic, 0, 1)
    assert kafka.run("force-terminate", "--transactional-id", session.transactional_id, "--dry-run") == (
        ExitCode.NOTHING_DONE
    )
    assert session.describe().transaction_state == "Ongoing"
    assert kafka.run("forceTerminateTransaction", "--transactionalId", session.transactional_id) == ExitCode.DONE
    assert kafka.out == ""
    found = session.describe()
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Empty", 60_000)
    assert found.producer_epoch > identity.producer_epoch
    for partition in (0, 1):
        assert session.fetch(topic, 0, isolation=1, partition=partition).last_stable_offset == 2


def test_force_terminate_ends_what_has_a_timeout_that_brokers_no_longer_allow(
    kafka: Kafka, session: RawSession, topic: str
) -> None:
    """The id was made before `transaction.max.timeout.ms` was lowered."""
    open_up(session, topic)
    with client_of(kafka.bootstrap_servers) as client:
        found = described(client, session.transactional_id)[1]
        assert transactions_end._effect(found).startswith("abort the open transaction of ")
        ending = replace(found, state="PrepareCommit")
        assert transactions_end._effect(ending).startswith("wait for the end of the transaction of ")
        transactions_end._fence(client, replace(found, transaction_timeout_ms=86_400_000))
    assert session.describe().transaction_state == "Empty"


def test_abort_refuses_an_offset_and_a_producer_that_differ(kafka: Kafka, session: RawSession, topic: str) -> None:
    late = hang(session, topic)
    here = abort(topic, "--start-offset", "2", "--producer-id")
    assert kafka.run(*here, str(late.producer_id + 1)) == ExitCode.NOTHING_DONE
    assert f"has another --producer-id: {late.producer_id}, not {late.producer_id + 1}" in kafka.err
    assert kafka.run(*here, str(late.producer_id)) == ExitCode.DONE


def test_force_terminate_names_no_open_transaction_where_there_is_none(kafka: Kafka, session: RawSession) -> None:
    identity = open_up(session, make_topic(kafka))
    asked = ("force-terminate", "--transactional-id", session.transactional_id, "--dry-run")
    assert kafka.run(*asked) == ExitCode.NOTHING_DONE
    assert "About to abort the open transaction of" in kafka.err
    assert "commit it after a restart, as Flink's sink does" in kafka.err
    assert session.end_until_done(identity, commit=True, version=3)[0] == 0
    assert kafka.run(*asked) == ExitCode.NOTHING_DONE
    assert f"About to fence the producer of '{session.transactional_id}', which has no open transaction" in kafka.err
    assert "after a restart" not in kafka.err


def test_force_terminate_waits_until_all_partitions_have_leaders(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={"t": 2}) as cluster:
        kafka, name = Kafka(cluster.bootstrap_servers, capsys), unique("open")
        with RawClient(cluster.bootstrap_servers) as client:
            open_up(RawSession(client, name), "t", 1)
        with cluster.without_leader(("t", 1)):
            assert kafka.run("force-terminate", "--transactional-id", name) == ExitCode.NOTHING_DONE
            assert f"The transaction of '{name}' wrote to t-1, which has no leader" in kafka.err
            assert cluster.transaction(name).state == "Ongoing"
        assert kafka.run("force-terminate", "--transactional-id", name) == ExitCode.DONE


def test_force_terminate_creates_no_id_and_leaves_sink_ids_alone(kafka: Kafka) -> None:
    assert kafka.run("force-terminate", "--transactional-id", unique("none")) == ExitCode.FAILED
    assert " does not exist" in kafka.err
    name = str(TaskId(unique("p"), "query", "0123456789abcdef", "worker", 0))
    with RawClient(kafka.bootstrap_servers) as client:
        session = RawSession(client, name)
        open_up(session, make_topic(kafka))
        assert kafka.run("force-terminate", "--transactional-id", name) == ExitCode.NOTHING_DONE
        assert f"`eos-kafka decisions --bootstrap-server {kafka.bootstrap_servers} show --prefix=" in kafka.err
        assert "--query=query`" in kafka.err
        assert session.describe().transaction_state == "Ongoing"
        assert kafka.run("force-terminate", "--transactional-id", name, "--force") == ExitCode.DONE
        assert session.describe().transaction_state == "Empty"


# Arguments


def parsed(line: str) -> Any:
    program, *words = shlex.split(line)
    assert program == "eos-kafka"
    return _parser().parse_args(with_subcommand(words))


@pytest.mark.parametrize(
    "words",
    [
        ("find-hanging",),
        ("find-hanging", "--broker-id", "1", "--partition", "0"),
        ("find-hanging", "--broker-id", "99"),
        ("abort", "--topic", "t", "--partition", "0"),
    ],
)
def test_options_that_require_others_are_refused_without_them(kafka: Kafka, words: tuple[str, ...]) -> None:
    assert kafka.run(*words) == ExitCode.USAGE
    assert main(["transactions", "list"]) == ExitCode.USAGE


@pytest.mark.parametrize("words", [("find-hanging",), ("describe-producers", "--topic", "t", "--partition", "0")])
def test_unknown_broker_is_refused_with_the_known_ones(kafka: Kafka, words: tuple[str, ...]) -> None:
    assert kafka.run(*words, "--broker-id", "99") == ExitCode.USAGE
    assert kafka.err == (
        "Broker 99 does not exist or does not run. The cluster has the brokers 1 now. Use one of these broker ids. "
        "Leaders know what is open in the partitions of a broker that is down: leave out --broker-id, with "
        "--all-topics in a search of all partitions.\n"
        "See docs/reference/errors.md#broker-does-not-exist-or-does-not-run\n"
    )


def test_broker_without_a_replica_is_refused_with_those_that_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    """It knows no transaction there, so nothing would seem to hang."""
    with EmbeddedBroker(brokers=2, topics={"one": 1}, config={"default.replication.factor": "1"}) as cluster:
        leader = cluster.partition("one", 0).leader
        reach = ["transactions", "--bootstrap-server", cluster.bootstrap_servers]
        for words, where in (
            (("find-hanging", "--topic", "one"), "one"),
            (("find-hanging", "--topic", "one", "--partition", "0"), "one-0"),
            (("describe-producers", "--topic", "one", "--partition", "0"), "one-0"),
        ):
            assert main([*reach, *words, "--broker-id", str(3 - leader)]) == ExitCode.USAGE
            assert capsys.readouterr().err.startswith(
                f"Broker {3 - leader} has no replica of {where}. Metadata: its replicas are on broker {leader}. "
                "Use one of these broker ids. Leave out --broker-id to query the leader.\n"
            )
            assert main([*reach, *words, "--broker-id", str(leader)]) == ExitCode.DONE
            capsys.readouterr()


def test_properties_file_configures_authentication(tmp_path: Path, kafka: Kafka, session: RawSession) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\nclient.id=operator\n")
    topic = make_topic(kafka)
    hang(session, topic)
    [shown] = kafka.json("find-hanging", "--topic", topic, *ANY_AGE, "--command-config", str(config))
    assert parsed(shown["command"]).command_config == str(config), "the printed command gets in the same way"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    assert kafka.run("list", "--command-config", str(config)) == ExitCode.USAGE
    assert "user name and a password" in kafka.err
    config.write_text("security.protocol=SSL\nssl.truststore.location=/nowhere.pem\n")
    assert kafka.run("list", "--command-config", str(config)) == ExitCode.USAGE
    assert "Cannot read the trusted certificates" in kafka.err
