"""A last stable offset that does not move becomes visible."""

import logging

import pytest

from broker_core import EmbeddedBroker, Error
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.options.client import ClientOptions
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.options.positions import LATEST
from spark_eos.options.source import batch_options
from spark_eos.source.lag import LagWatch, logger, show_lag
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import BatchReader
from spark_eos.transactions.judge import name_blocker, name_blockers
from spark_eos.transactions.standstills import Standstill
from tests.support.clocks import StandingClock
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession
from tests.support.spark_eos.source_data import (
    add_partitions,
    commit,
    create_topic,
    delete_records,
    send,
    send_plain,
    transactional_producer,
)
from tests.support.spark_eos.source_query import running
from tests.support.waiting import wait_until

T0 = TopicPartition("t", 0)


def test_both_lags_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="spark_eos.source.lag"):
        LagWatch(1_000, str, StandingClock()).observe({T0: 5}, {T0: 5}, {T0: 25})
    assert "t-0: read up to 5, lag 0 to the last stable offset, 20 to the high watermark" in caplog.text


def test_stalled_end_offset_is_reported_until_it_moves() -> None:
    clock = StandingClock()
    handed: list[Standstill] = []
    watch = LagWatch(60_000, handed.extend, clock)

    def after(seconds: float, stable: int, high_watermark: int) -> list[Standstill]:
        clock.seconds += seconds
        handed.clear()
        watch.observe({T0: stable}, {T0: stable}, {T0: high_watermark})
        return list(handed)

    assert after(0, 5, 25) == []
    assert after(59, 5, 26) == []
    assert after(1, 5, 27) == [Standstill(T0, 5, 27, 0)]
    assert after(100, 5, 27) == [Standstill(T0, 5, 27, 0)]
    assert after(1, 9, 27) == []
    assert after(60, 9, 27) == [Standstill(T0, 9, 27, 161_000)]


def test_idle_topic_is_not_a_stalled_end() -> None:
    clock = StandingClock()
    handed: list[Standstill] = []
    watch = LagWatch(60_000, handed.extend, clock)
    for _ in range(3):
        watch.observe({T0: 5}, {T0: 5}, {T0: 5})
        clock.seconds += 100
    watch.observe({T0: 5}, {T0: 5}, {T0: 6})
    assert handed == []


def test_lag_check_is_due_periodically() -> None:
    clock = StandingClock()
    watch = LagWatch(60_000, str, clock)
    assert watch.is_due()
    assert not watch.is_due()
    clock.seconds += 10
    assert watch.is_due()


def test_every_micro_batch_reports_the_lag_of_every_partition(
    kafka_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(kafka_address, 2)
    producer = transactional_producer(kafka_address)
    send_plain(kafka_address, topic, "abcd")
    producer.begin_transaction()
    send(producer, topic, ["open"])
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    template = f"{topic}-0: read up to %d, lag %d to the last stable offset, %d to the high watermark"
    with running(kafka_address, **options) as query, caplog.at_level(logging.INFO, logger="spark_eos.source.lag"):
        for behind in (4, 2):
            caplog.clear()
            assert len(query.trigger()) == 2
            assert template % (4 - behind, behind, behind + 1) in caplog.messages
            assert template.replace("-0:", "-1:") % (0, 0, 0) in caplog.messages
        caplog.clear()
        assert query.trigger() == [] == caplog.messages, "Spark triggers an idle query many times a second"
    producer.abort_transaction(30)


def test_refused_look_up_of_the_lag_keeps_no_records_waiting() -> None:
    """The first ListOffsets of a trigger says what to read, the second one measures the lag."""
    always_new = {"kafka.metadata.max.age.ms": "0"}
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        send_plain(kafka.bootstrap_servers, "t", "ab")
        with (
            running(kafka.bootstrap_servers, subscribe="t", startingOffsets='{"t":{"0":0}}', **always_new) as query,
            kafka.fault(api="ListOffsets", action=Error("UNKNOWN_SERVER_ERROR"), nth=2) as fault,
        ):
            assert query.texts() == ["a", "b"]
            assert fault.hits == 1


def test_lag_warning_names_the_transaction_and_the_remedy(kafka_address: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = create_topic(kafka_address)
    producer = transactional_producer(kafka_address, **{"transactional.id": f"{topic}-stuck"})
    producer.begin_transaction()
    send(producer, topic, ["open"])
    with running(kafka_address, subscribe=topic, startingOffsets="earliest", lagWarningAfter="1ms") as query:
        query.trigger()
        wait_until(lambda: query.trigger() or "an open transaction" in caplog.text, "the warning")
    (warning,) = [each for each in caplog.messages if "an open transaction" in each]
    for part in (f"{topic}-0: an open transaction has blocked the last stable offset at 0",
                 "1 offset below the high watermark",
                 f"the transaction of '{topic}-stuck' (producer id ", "Ongoing for ", "timeout ",
                 f" force-terminate --transactional-id={topic}-stuck` ends it"):  # fmt: skip
        assert part in warning
    producer.abort_transaction(30)


def test_lag_is_printed_on_request_without_configured_logging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [])
    before = logger.level
    try:
        LagWatch(1_000, str, StandingClock()).observe({T0: 5}, {T0: 5}, {T0: 25})
        show_lag()
        show_lag()
        LagWatch(1_000, str, StandingClock()).observe({T0: 5}, {T0: 6}, {T0: 25})
    finally:
        logger.setLevel(before)
    shown = capsys.readouterr().err
    assert shown.count("t-0: read up to 5, lag 1 to the last stable offset, 20 to the high watermark") == 1
    assert "lag 0" not in shown


# The transaction that blocks a reader is named, with a way to end it


def test_oldest_open_transaction_is_reported(kafka_address: str, topic: str) -> None:
    commit(transactional_producer(kafka_address), topic, ["a", "b"])
    first = transactional_producer(kafka_address, **{"transactional.id": f"{topic}-first"})
    second = transactional_producer(kafka_address, **{"transactional.id": f"{topic}-second"})
    for producer in (first, second):
        producer.begin_transaction()
        send(producer, topic, ["open"])
    options = batch_options({"kafka.bootstrap.servers": kafka_address, "subscribe": topic})
    with KafkaClient(options.client) as client:
        message = name_blocker(client, TopicPartition(topic, 0))
        assert f"It is the transaction of '{topic}-first'" in message
        assert "Ongoing for" in message
        assert f"--bootstrap-server {kafka_address} force-terminate --transactional-id={topic}-first`" in message
        # The coordinator answers an abort before it writes the markers.
        first.abort_transaction(30)
        wait_until(lambda: f"'{topic}-second'" in name_blocker(client, TopicPartition(topic, 0)), "the first has ended")
        second.abort_transaction(30)
        wait_until(
            lambda: name_blocker(client, TopicPartition(topic, 0)) == "It ended in the meantime.", "none is open"
        )


def test_each_partition_of_a_hanging_transaction_has_its_own_command() -> None:
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 2, "u": 2}) as broker:
        address = broker.bootstrap_servers
        with RawClient(address) as raw, KafkaClient(ClientOptions((address,))) as client:
            hanging = [TopicPartition("t", number) for number in range(2)]
            for place in hanging:
                hang(RawSession(raw, "late"), "t", Identity(987_654_321, 3), partition=place.partition)
            open_up(RawSession(raw, "live"), "u", 0, 1)
            live = [TopicPartition("u", number) for number in range(2)]
            told = list(name_blockers(client, [*hanging, *live], 5))
            assert [places for places, _ in told] == [*([each] for each in hanging), live]
            commands = OperatorCommands((address,))
            for place, (_, words) in zip(hanging, told, strict=False):
                assert f"`{commands.abort(place, 0)}` ends it" in words
            assert [places for places, _ in name_blockers(client, hanging, 1)] == [hanging[:1]], "one warning at most"


def test_deleting_records_of_an_open_transaction_is_no_loss(
    kafka_address: str, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    send_plain(kafka_address, topic, ["before", "before"])
    # One record batch: the last stable offset is its base offset, below the log start.
    producer = transactional_producer(kafka_address, **{"linger.ms": 5_000})
    producer.begin_transaction()
    send(producer, topic, range(8))
    delete_records(kafka_address, topic, 5)
    options = {"kafka.bootstrap.servers": kafka_address, "subscribe": topic}
    place = TopicPartition(topic, 0)
    with KafkaClient(batch_options(options).client) as client:
        wait_until(
            lambda: OffsetLookup(client).offsets({place: LATEST}, IsolationLevel.READ_COMMITTED) == {place: 2},
            "the last stable offset is below the log start",
        )
    assert BatchReader(options, source_schema(False)).partitions() == []
    assert f"{topic}-0: an open transaction hides all records from the start of the read, offset 5" in caplog.text
    assert "It is the transaction of 'id-" in caplog.text
    with (
        running(kafka_address, subscribe=topic, startingOffsets="earliest") as query,
        running(kafka_address, subscribe=topic, startingOffsets="latest") as late,
    ):
        assert query.texts() == late.texts() == []
        producer.commit_transaction(30)
        for each in (query, late):
            assert wait_until(each.texts, "the transaction") == ["3", "4", "5", "6", "7"]


def test_batch_read_that_ends_at_an_old_transaction_names_it(
    kafka_address: str, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    """A job that reads the whole topic each night gets the same rows each time, behind a transaction that hangs."""
    add_partitions(kafka_address, topic, 2)
    send_plain(kafka_address, topic, "ab")
    send_plain(kafka_address, topic, "x", partition=1)
    producer = transactional_producer(kafka_address)
    producer.begin_transaction()
    for partition in range(2):
        send(producer, topic, ["open"], partition=partition)
    send_plain(kafka_address, topic, "c")
    options = {"kafka.bootstrap.servers": kafka_address, "subscribe": topic}
    assert len(BatchReader(options, source_schema(False)).partitions()) == 2
    assert "open transaction" not in caplog.text, "each running producer has one now and then"
    assert len(BatchReader(options | {"lagWarningAfter": "1ms"}, source_schema(False)).partitions()) == 2
    assert f"from these offsets on, so the read ends there: {topic}-0 at 2, {topic}-1 at 1. It is the tr" in caplog.text
    producer.abort_transaction(30)
