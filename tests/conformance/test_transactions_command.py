"""Find, explain and abort hanging transactions with `eos-kafka transactions`, on both brokers, beside Kafka's tool."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import broker_core.broker.marker_writer
from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.admin.output import ExitCode
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.transactions.judge import name_blocker
from tests.support.apache_kafka import apache_kafka
from tests.support.both_brokers import Kafka, brokers_of
from tests.support.clients import make_producer, make_topic, send, unique, values_to_end
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.protocols import COMMITTED, wait_for_state
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.transactions_command import apaches, ours, rows, run_printed, settled

OLD_MS = 20 * 60_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "late_kafka" in metafunc.fixturenames:
        metafunc.parametrize("late_kafka", brokers_of(metafunc.config), indirect=True, scope="module")


@pytest.fixture(scope="module")
def late_kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Return a broker that accepts late writes: it does not verify that a partition is in a transaction."""
    if request.param == "apache":
        with apache_kafka(HANGING_SETTINGS) as apache:
            yield Kafka(apache.bootstrap_servers, "apache")
    else:
        with EmbeddedBroker(config=HANGING_SETTINGS) as embedded:
            yield Kafka(embedded.bootstrap_servers)


@pytest.fixture
def session(late_kafka: Kafka) -> Iterator[RawSession]:
    with RawClient(late_kafka.bootstrap_servers) as client:
        yield RawSession(client, unique("id"))


# A hanging transaction


def test_late_write_hangs_and_is_found_explained_and_aborted(late_kafka: Kafka, session: RawSession):
    topic, address = make_topic(late_kafka), late_kafka.bootstrap_servers
    identity = hang(session, topic, age_ms=OLD_MS)
    send(make_producer(late_kafka), topic, [b"behind"])
    assert session.fetch(topic, 0, isolation=COMMITTED).last_stable_offset == 2
    ran = ours(address, "find-hanging", "--topic", topic)
    assert ran.code == ExitCode.HANGING_FOUND
    [row] = rows(ran.output)
    assert (row["ProducerId"], row["ProducerEpoch"], row["StartOffset"], row["Duration(min)"]) == (
        str(identity.producer_id),
        str(identity.producer_epoch),
        "2",
        "20",
    )
    assert f"coordinates '{session.transactional_id}': state CompleteCommit" in ran.errors
    [shown] = json.loads(ours(address, "find-hanging", "--topic", topic, "--output", "json").output)
    assert shown["hanging"] and shown["command"] in ran.errors
    run_printed(shown["command"])
    # The late record and the one after it, then the marker.
    assert session.fetch(topic, 0, isolation=COMMITTED).last_stable_offset == 5
    assert ours(address, "find-hanging", "--topic", topic).code == ExitCode.DONE


@pytest.mark.parametrize("end_version", [4, 5])
def test_lost_marker_leaves_a_hanging_transaction(monkeypatch: pytest.MonkeyPatch, end_version: int):
    """The coordinator considers the marker written and its partition has none, as after a crash that lost a page.

    Under transactions V2 the epochs show that this transaction was committed, so it must not be aborted.
    """
    append = broker_core.broker.marker_writer.append_marker
    lost: list[TopicPartition] = []
    topic = ""

    def lose(broker: Any, topic_partition: TopicPartition, *arguments: Any, **named: Any) -> ErrorCode:
        # Other tests' brokers may run in this process.
        if topic_partition != TopicPartition(topic, 1):
            return append(broker, topic_partition, *arguments, **named)
        lost.append(topic_partition)
        return ErrorCode.NONE

    monkeypatch.setattr(broker_core.broker.marker_writer, "append_marker", lose)
    with EmbeddedBroker(config={"transaction.state.log.num.partitions": "1"}) as broker:
        address = broker.bootstrap_servers
        topic = make_topic(Kafka(address), partitions=2)
        with RawClient(address) as client:
            session = RawSession(client, unique("id"))
            identity = open_up(session, topic, 0, 1, age_ms=OLD_MS)
            assert session.end(identity, commit=True, version=end_version)[0] == 0
            wait_for_state(session, "CompleteCommit")
            assert lost == [TopicPartition(topic, 1)]
            ran = ours(address, "find-hanging", "--broker-id", "1")
            assert ran.code == ExitCode.HANGING_FOUND
            assert [(row["Topic"], row["Partition"], row["StartOffset"]) for row in rows(ran.output)] == [
                (topic, "1", "0")
            ]
            where = ("--topic", topic, "--partition", "1", "--start-offset", "0")
            if end_version == 4:
                assert ours(address, "abort", *where, "--commit").code == ExitCode.NOTHING_DONE
            else:
                assert "Its epoch shows that it was committed and that the commit marker was lost" in ran.errors
                assert ours(address, "abort", *where).code == ExitCode.NOTHING_DONE
            command = ran.errors.partition("to end it: ")[2].splitlines()[0]
            with KafkaClient(ClientOptions((address,))) as reader:
                assert f"`{command}` ends it" in name_blocker(reader, TopicPartition(topic, 1))
            run_printed(command)
            assert session.fetch(topic, 0, isolation=COMMITTED, partition=1).last_stable_offset == 2
            assert values_to_end(Kafka(address), topic, partitions=2) == [b"open"] * (1 if end_version == 4 else 2)
            assert ours(address, "find-hanging", "--broker-id", "1").code == ExitCode.DONE


def test_late_offsets_hang_in_their_offsets_partition(late_kafka: Kafka, session: RawSession):
    """Offsets committed after the EndTxn block their group; a search of the broker or of the topic finds them."""
    topic, group, address = make_topic(late_kafka), unique("group"), late_kafka.bootstrap_servers
    identity = open_up(session, topic)
    assert session.end(identity, commit=True, version=4)[0] == 0
    wait_for_state(session, "CompleteCommit")
    assert session.commit_in_transaction(identity, group, topic, 1, version=4) == ErrorCode.NONE
    assert session.committed(group, topic, require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    any_age = ("--max-transaction-timeout", "-1")
    assert "__consumer_offsets" in ours(address, "find-hanging", "--broker-id", "1", *any_age).output
    ran = ours(address, "find-hanging", "--topic", "__consumer_offsets", *any_age)
    [row] = [row for row in rows(ran.output) if row["ProducerId"] == str(identity.producer_id)]
    assert "the groups whose offsets it contains cannot read their committed offsets" in ran.errors
    run_printed(
        next(
            line.partition("to end it: ")[2]
            for line in ran.errors.splitlines()
            if f"--partition {row['Partition']} --start-offset {row['StartOffset']}" in line
        )
    )
    assert session.committed(group, topic, require_stable=True) == (ErrorCode.NONE, -1)


# Beside Apache Kafka's tool


@pytest.fixture
def beside(apache_asked_for: None, late_kafka: Kafka) -> str:
    """Return the address of a broker for both tools."""
    apaches(late_kafka.bootstrap_servers, "list")
    return late_kafka.bootstrap_servers


def assert_same(address: str, *words: str, wanted_rows: int) -> None:
    """Check that both tools print the same table, and that it has rows."""
    theirs, mine = apaches(address, *words), ours(address, *words)
    assert settled(mine.output) == settled(theirs), mine.errors
    assert len(rows(theirs)) == wanted_rows


# Rule F.4/1.
def test_list_matches_the_kafka_tool(beside: str, late_kafka: Kafka):
    topic = make_topic(late_kafka)
    prefix = unique("same")
    with RawClient(beside) as client:
        for name in ("open", "with-a-longer-name"):
            open_up(RawSession(client, f"{prefix}-{name}"), topic)
        RawSession(client, f"{prefix}-empty").init()
    only = ("--transactional-id-pattern", f"{prefix}.*")
    assert_same(beside, "list", *only, wanted_rows=3)
    assert_same(beside, "list", *only, "--duration-filter", "0", wanted_rows=3)
    assert_same(beside, "list", "--transactional-id-pattern", f"{prefix}-empty", wanted_rows=1)


# Rule F.4/2.
def test_describe_matches_the_kafka_tool(beside: str, late_kafka: Kafka, session: RawSession):
    topic = make_topic(late_kafka, partitions=3)
    named = ("describe", "--transactional-id", str(session.transactional_id))
    session.init()
    assert_same(beside, *named, wanted_rows=1)
    identity = open_up(session, topic, 0, 1, 2)
    assert_same(beside, *named, wanted_rows=1)
    session.end(identity, commit=False, version=4)
    wait_for_state(session, "CompleteAbort")
    assert_same(beside, *named, wanted_rows=1)


# Rule F.4/3.
def test_describe_producers_matches_the_kafka_tool(beside: str, late_kafka: Kafka, session: RawSession):
    topic = make_topic(late_kafka)
    where = ("--topic", topic, "--partition", "0")
    assert_same(beside, "describe-producers", *where, wanted_rows=0)
    hang(session, topic)
    with RawClient(beside) as client:
        open_up(RawSession(client, unique("id")), topic)
    assert_same(beside, "describe-producers", *where, wanted_rows=2)
    assert_same(beside, "describe-producers", "--broker-id", "1", *where, wanted_rows=2)


# Rule F.4/5.
def test_find_hanging_matches_the_kafka_tool(beside: str, late_kafka: Kafka, session: RawSession):
    topic = make_topic(late_kafka, partitions=3)
    hang(session, topic, partition=1, age_ms=OLD_MS)
    with RawClient(beside) as client:
        hang(RawSession(client, unique("id")), topic, partition=2, age_ms=OLD_MS)
        hang(RawSession(client, unique("id")), topic)
        open_up(RawSession(client, unique("id")), topic, 2, age_ms=OLD_MS)
    assert_same(beside, "find-hanging", "--topic", topic, wanted_rows=2)
    assert_same(beside, "find-hanging", "--topic", topic, "--partition", "0", wanted_rows=0)
    assert_same(beside, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0", wanted_rows=3)
    whole = ("find-hanging", "--broker-id", "1")
    theirs, mine = apaches(beside, *whole), ours(beside, *whole)
    assert settled(mine.output) == settled(theirs)
    assert {(row["Topic"], row["Partition"]) for row in rows(theirs)} >= {(topic, "1"), (topic, "2")}


def both(beside: str) -> Iterator[tuple[int, Callable[..., str]]]:
    """Return each tool, numbered, as a function that returns its output."""
    yield 0, lambda *words: ours(beside, *words, "--yes").output
    yield 1, lambda *words: apaches(beside, *words)


# Rule F.4/4.
@pytest.mark.parametrize("by", ["offset", "producer"])
def test_abort_matches_the_kafka_tool(beside: str, late_kafka: Kafka, session: RawSession, by: str):
    topic = make_topic(late_kafka, partitions=2)
    after = []
    for partition, run in both(beside):
        identity = hang(session, topic, partition=partition)
        which = (
            ("--start-offset", "2")
            if by == "offset"
            else (
                "--producer-id",
                str(identity.producer_id),
                "--producer-epoch",
                str(identity.producer_epoch),
                "--coordinator-epoch",
                "0",
            )
        )
        assert run("abort", "--topic", topic, "--partition", str(partition), *which) == ""
        assert session.fetch(topic, 0, isolation=COMMITTED, partition=partition).last_stable_offset == 4
        [row] = rows(ours(beside, "describe-producers", "--topic", topic, "--partition", str(partition)).output)
        after.append({**row, "ProducerEpoch": int(row["ProducerEpoch"]) - identity.producer_epoch, "LastTimestamp": 0})
    assert after[0] == after[1]


# Rule F.4/6.
def test_force_terminate_matches_the_kafka_tool(beside: str, late_kafka: Kafka):
    topic = make_topic(late_kafka, partitions=2)
    after = []
    for partition, run in both(beside):
        with RawClient(beside) as client:
            session = RawSession(client, unique("id"))
            before = open_up(session, topic, partition)
            assert run("forceTerminateTransaction", "--transactionalId", str(session.transactional_id)) == ""
            assert session.fetch(topic, 0, isolation=COMMITTED, partition=partition).last_stable_offset == 2
            found = session.describe()
            after.append((found.transaction_state, found.producer_epoch - before.producer_epoch))
    assert after[0] == after[1]
