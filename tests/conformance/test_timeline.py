"""The timeline of a partition on every broker."""

from typing import Any

import pytest

from broker_core.types import TopicPartition
from spark_eos.admin import timeline as command
from spark_eos.admin.timeline import take_timeline
from spark_eos.admin.timeline_page import Timeline, TransactionOutcome, blocking, summary_of
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import TopicError
from spark_eos.options.client import client_options
from spark_eos.transactions.findings import HangingVerdict
from tests.support.clients import Kafka, make_producer, make_topic, make_transactional_producer, unique

DEADLINE_S = 60


def take(kafka: Kafka, topic: str, partition: int = 0, **options: int) -> Timeline:
    settings = client_options({"kafka.bootstrap.servers": kafka.bootstrap_servers}, side="admin client")
    with KafkaClient(settings) as client:
        return take_timeline(client, TopicPartition(topic, partition), **options)


def outcomes(timeline: Timeline) -> list[tuple[TransactionOutcome, int | None, int, int | None]]:
    return [(each.outcome, each.first_offset, each.record_count, each.marker_offset) for each in timeline.transactions]


def test_timeline_shows_ended_open_and_waiting_transactions(kafka: Kafka) -> None:
    topic = make_topic(kafka)
    names = [unique(name) for name in ("first", "second")]
    first, second = (make_transactional_producer(kafka, name) for name in names)
    for ended_by in (first.commit_transaction, first.abort_transaction):
        first.begin_transaction()
        for _ in range(3):
            first.produce(topic, b"value")
        # An abort drops unsent records, so they must reach the log first.
        first.flush(DEADLINE_S)
        ended_by(DEADLINE_S)
    second.begin_transaction()
    second.produce(topic, b"value")
    second.flush(DEADLINE_S)
    plain = make_producer(kafka)
    plain.produce(topic, b"value")
    plain.flush(DEADLINE_S)

    timeline = take(kafka, topic)

    assert outcomes(timeline) == [
        (TransactionOutcome.COMMITTED, 0, 3, 3),
        (TransactionOutcome.ABORTED, 4, 3, 7),
        (TransactionOutcome.OPEN, 8, 1, None),
    ]
    assert [(each.first_offset, each.last_offset) for each in timeline.plain] == [(9, 9)]
    assert (timeline.log_start_offset, timeline.last_stable_offset, timeline.high_watermark) == (0, 8, 10)
    assert [timeline.owners[each.producer_id] for each in timeline.transactions] == [names[0], names[0], names[1]]
    bar = blocking(timeline)
    assert bar is timeline.transactions[2]
    assert timeline.findings[bar.producer_id].verdict is HangingVerdict.LIVE
    assert f"It is the transaction of '{names[1]}'" in summary_of(timeline)

    # The open transaction is known even if the requested range begins later.
    assert outcomes(take(kafka, topic, from_offset=9)) == [(TransactionOutcome.OPEN, 8, 0, None)]
    assert outcomes(take(kafka, topic, last=3)) == [
        (TransactionOutcome.ABORTED, None, 0, 7),
        (TransactionOutcome.OPEN, 8, 1, None),
    ]

    second.commit_transaction(DEADLINE_S)
    timeline = take(kafka, topic)
    assert outcomes(timeline)[2] == (TransactionOutcome.COMMITTED, 8, 1, 10)
    assert summary_of(timeline).startswith("No transaction blocks the last stable offset")


def test_transaction_that_ends_during_the_lookup_is_not_hanging(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("quick"))
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.flush(DEADLINE_S)
    ask = command._ask

    def just_after_its_end(client: KafkaClient, *arguments: Any) -> Any:
        producer.commit_transaction(DEADLINE_S)
        return ask(client, *arguments)

    monkeypatch.setattr(command, "_ask", just_after_its_end)
    summary = summary_of(take(kafka, topic))
    assert summary.endswith("open since offset 0. It ended in the meantime.")


def test_timeline_of_an_empty_and_of_a_missing_partition(kafka: Kafka) -> None:
    topic = make_topic(kafka)
    timeline = take(kafka, topic)
    assert (timeline.transactions, timeline.plain, timeline.high_watermark) == ([], [], 0)
    with pytest.raises(TopicError, match=r"Partition .*-1 does not exist"):
        take(kafka, topic, partition=1)
