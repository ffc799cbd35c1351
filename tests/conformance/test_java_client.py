"""Apache Kafka's Java client and tools, which use transactions V2 if the broker supports it."""

import pytest

from tests.support.clients import (
    READ_COMMITTED,
    Kafka,
    end_offset,
    make_topic,
    make_transactional_producer,
    unique,
    values_to_end,
)
from tests.support.java_tools import java_tool

pytestmark = pytest.mark.usefixtures("apache_asked_for")
RECORDS = 5_000


def run(tool: str, kafka: Kafka, *arguments: str) -> str:
    return java_tool(tool, "--bootstrap-server", kafka.bootstrap_servers, *arguments).output


def rows(table: str) -> list[dict[str, str]]:
    """Parse a table of Kafka's tools."""
    head, *lines = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines() if line.strip()]
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_transactions_of_the_java_producer_are_read_by_librdkafka_and_java(kafka: Kafka):
    topic, transactional_id = make_topic(kafka), unique("java")
    printed = run(
        "ProducerPerformance",
        kafka,
        "--topic",
        topic,
        "--num-records",
        str(RECORDS),
        "--record-size",
        "50",
        "--throughput",
        "10000",
        "--transactional-id",
        transactional_id,
        "--transaction-duration-ms",
        "100",
    )
    assert f"{RECORDS} records sent" in printed
    assert len(values_to_end(kafka, topic)) == RECORDS
    markers = end_offset(kafka, topic, isolation=READ_COMMITTED) - RECORDS
    assert markers > 1, "several transactions were wanted"
    consumed = run("ConsumerPerformance", kafka, "--topic", topic, "--num-records", str(RECORDS), "--timeout", "30000")
    assert consumed.splitlines()[1].split(",")[4].strip() == str(RECORDS)
    [described] = rows(run("TransactionsCommand", kafka, "describe", "--transactional-id", transactional_id))
    assert described["TransactionState"] == "CompleteCommit"
    # Under transactions V2 every end of a transaction raises the epoch.
    assert int(described["ProducerEpoch"]) == markers


def test_kafka_tool_lists_describes_and_aborts_an_open_transaction(kafka: Kafka):
    topic, transactional_id = make_topic(kafka), unique("open")
    producer = make_transactional_producer(kafka, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(60) == 0
    # Other tests leave ids with tabs, which no table can represent.
    listing = run("TransactionsCommand", kafka, "list", "--transactional-id-pattern", "open.*")
    listed = {row["TransactionalId"]: row for row in rows(listing)}
    assert listed[transactional_id]["TransactionState"] == "Ongoing"
    [described] = rows(run("TransactionsCommand", kafka, "describe", "--transactional-id", transactional_id))
    assert described["TopicPartitions"] == f"{topic}-0"
    where = ("--topic", topic, "--partition", "0")
    [open_there] = rows(run("TransactionsCommand", kafka, "describe-producers", *where))
    assert (open_there["ProducerId"], open_there["CurrentTransactionStartOffset"]) == (described["ProducerId"], "0")
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 0
    run("TransactionsCommand", kafka, "abort", *where, "--start-offset", "0")
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 2
    assert values_to_end(kafka, topic) == []
