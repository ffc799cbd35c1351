"""A transaction that blocks many partitions is reported once, at a constant cost, without delaying the planning."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from broker_core import EmbeddedBroker, Hold
from broker_core.types import TopicPartition
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import REAL
from spark_eos.source.lso_stalls import LsoStallWarnings
from spark_eos.transactions.standstills import Standstill
from tests.support.clocks import StandingClock, runtime_by
from tests.support.spark_eos.source_data import DEADLINE_SECONDS, transactional_producer
from tests.support.spark_eos.source_query import running
from tests.support.waiting import wait_until

BROKERS, PARTITIONS, PINNED = 3, 300, 250
SINCE_MS = 940_000
OURS = "lag-of-ours"


def at_once(work: Callable[[], None]) -> None:
    work()


def stands(*partitions: int) -> list[Standstill]:
    return [Standstill(TopicPartition("t", each), 0, 1 + each, SINCE_MS) for each in partitions]


def requests(kafka: EmbeddedBroker) -> Counter[str]:
    return Counter(each.api for each in kafka.requests(client_id=OURS) if each.api != "ApiVersions")


def pin(producer: Producer, *partitions: int) -> None:
    producer.begin_transaction()
    for partition in partitions:
        producer.produce("t", b"open", partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0


@contextmanager
def pinned_cluster() -> Iterator[tuple[EmbeddedBroker, ClientOptions]]:
    with EmbeddedBroker(brokers=BROKERS, topics={"t": PARTITIONS}, requests_kept=20_000) as kafka:
        yield kafka, ClientOptions(tuple(kafka.bootstrap_servers.split(",")), client_id=OURS)


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "blocked the last stable offset at" in each]


def test_transaction_in_many_partitions_is_looked_up_once(caplog: pytest.LogCaptureFixture) -> None:
    with pinned_cluster() as (kafka, options):
        producer = transactional_producer(kafka.bootstrap_servers, **{"transactional.id": "wide"})
        pin(producer, *range(PINNED))
        warnings = LsoStallWarnings(options, runtime_by(StandingClock(seconds=1_000.0)), at_once)
        warnings.report(stands(*range(PINNED)))
        assert requests(kafka) == {
            # Two requests without a topic, for the brokers: one to connect, and one to query all of them.
            "Metadata": 3, "DescribeProducers": BROKERS, "ListTransactions": BROKERS, "FindCoordinator": 1,
            "DescribeTransactions": 1,
        }  # fmt: skip
        producer.abort_transaction(DEADLINE_SECONDS)
    (warning,) = named(caplog)
    assert warning.startswith(f"t-{PINNED - 1}: an open transaction has blocked the last stable offset at 0 for 60 s, ")
    assert "the transaction of 'wide' (producer id " in warning
    assert f"It also blocks {PINNED - 1} more partitions, t-{PINNED - 2}, t-{PINNED - 3}" in warning


def test_reported_transaction_is_not_looked_up_again_for_minutes(caplog: pytest.LogCaptureFixture) -> None:
    with pinned_cluster() as (kafka, options):
        producer = transactional_producer(kafka.bootstrap_servers)
        pin(producer, 0, 1, 2)
        clock = StandingClock(seconds=1_000.0)
        warnings = LsoStallWarnings(options, runtime_by(clock), at_once)
        warnings.report(stands(0, 1, 2))
        asked = requests(kafka)
        for _ in range(50):
            clock.seconds += 10
            warnings.report(stands(0, 1, 2))
        assert requests(kafka) == asked
        clock.seconds += 100
        warnings.report(stands(0, 1, 2))
        assert requests(kafka)["ListTransactions"] == 2 * BROKERS
        moved = [replace(each, last_stable_offset=7) for each in stands(0)]
        clock.seconds += 60
        warnings.report(moved)
        assert len(named(caplog)) == 3, "a blocked offset elsewhere is another report"
        producer.abort_transaction(DEADLINE_SECONDS)


def test_each_search_reports_a_few_transactions_and_the_next_one_others(caplog: pytest.LogCaptureFixture) -> None:
    with pinned_cluster() as (kafka, options):
        producers = [
            transactional_producer(kafka.bootstrap_servers, **{"transactional.id": f"p{each}"}) for each in range(7)
        ]
        for partition, producer in enumerate(producers):
            pin(producer, partition)
        clock = StandingClock(seconds=1_000.0)
        warnings = LsoStallWarnings(options, runtime_by(clock), at_once)
        warnings.report(stands(*range(7)))
        assert requests(kafka)["ListTransactions"] == BROKERS, "all are queried together"
        assert [f"'p{each}'" in "".join(named(caplog)) for each in range(7)] == [False] * 2 + [True] * 5
        assert "of 2 more partitions, t-1, t-0; they will be identified later" in caplog.text
        clock.seconds += 59
        warnings.report(stands(*range(7)))
        assert requests(kafka)["ListTransactions"] == BROKERS
        clock.seconds += 1
        warnings.report(stands(*range(7)))
        assert requests(kafka)["ListTransactions"] == 2 * BROKERS
        assert all(f"'p{each}'" in "".join(named(caplog)) for each in range(7))
        for producer in producers:
            producer.abort_transaction(DEADLINE_SECONDS)


def test_one_search_runs_at_a_time() -> None:
    begun: list[Callable[[], None]] = []
    warnings = LsoStallWarnings(
        ClientOptions(("127.0.0.1:1",), api_timeout_ms=100), runtime_by(StandingClock(seconds=1_000.0)), begun.append
    )
    warnings.report(stands(0))
    warnings.report(stands(0, 1))
    assert len(begun) == 1


def test_unanswered_search_is_not_a_failure_and_is_retried_later(caplog: pytest.LogCaptureFixture) -> None:
    warnings = LsoStallWarnings(ClientOptions(("127.0.0.1:1",), api_timeout_ms=100), REAL, at_once)
    warnings.report(stands(0))
    assert "t-0: an open transaction has blocked" in caplog.text
    assert "The transaction could not be identified: " in caplog.text


def test_planning_does_not_wait_for_the_search(caplog: pytest.LogCaptureFixture) -> None:
    with pinned_cluster() as (kafka, _):
        producer = transactional_producer(kafka.bootstrap_servers)
        pin(producer, *range(PINNED))
        options = {"subscribe": "t", "startingOffsets": "earliest", "lagWarningAfter": "1ms", "kafka.client.id": OURS}
        with kafka.fault(api="ListTransactions", action=Hold(threading.Event())) as held:
            with running(kafka.bootstrap_servers, **options) as query:
                wait_until(lambda: query.trigger() or held.hits, "a search")
                assert query.trigger() == [], "a missing response does not delay the planning"
        producer.abort_transaction(DEADLINE_SECONDS)
