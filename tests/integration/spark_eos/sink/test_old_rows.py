"""A write is named whose rows the brokers will delete soon, because of the times that they were given."""

import logging
import time

import pytest

from broker_core.types import ProducerIdentity
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import sink_options
from spark_eos.runtime import REAL, ProcessState, now_ms
from spark_eos.sink.messages import Empty, Place, Prepared
from spark_eos.sink.old_rows import warn_of_old_rows
from spark_eos.sink.prepared import PreparedTransaction
from tests.support.clocks import runtime_by
from tests.support.spark_eos.client_world import make_topic, unique

DAY_MS = 86_400_000
WEEK = {"retention.ms": str(7 * DAY_MS)}
PLACE = Place("q", "run", 4, 0)


def wrote(ages_in_days: dict[str, int]) -> Prepared:
    """Return the message of a task whose newest rows of each topic are that old."""
    transaction = PreparedTransaction(0, OpenTransaction("id", ProducerIdentity(1, 0), 2), 60_000, 0, ())
    now = now_ms(REAL.clock)
    return Prepared(PLACE, transaction, newest_ms={topic: now - days * DAY_MS for topic, days in ages_in_days.items()})


@pytest.mark.parametrize(
    ("config", "is_named"),
    [
        (WEEK, True),
        (WEEK | {"cleanup.policy": "compact,delete"}, True),
        (WEEK | {"cleanup.policy": "compact"}, False),
        (WEEK | {"message.timestamp.type": "LogAppendTime"}, False),
        ({"retention.ms": "-1"}, False),
        ({"retention.ms": str(9 * DAY_MS)}, False),
    ],
)
def test_rows_older_than_their_topic_keeps_them_are_named_once(
    kafka_address: str, config: dict[str, str], is_named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    process, options = ProcessState(REAL), sink_options({"kafka.bootstrap.servers": kafka_address})
    with KafkaClient(ClientOptions((kafka_address,))) as client:
        topic = make_topic(client, **config)
    for ages in ({topic: 6}, {topic: 8}, {topic: 8}):
        warn_of_old_rows(process, options, [Empty(PLACE), wrote(ages), wrote({})])
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(found) == is_named
    for line in found:
        assert all(part in line for part in (topic, "8.0 days old", "'timestamp'", "retention.ms is 604800000"))


def test_late_rows_beside_new_ones_are_not_named(kafka_address: str, caplog: pytest.LogCaptureFixture) -> None:
    """A segment is deleted when its newest record is old."""
    options = sink_options({"kafka.bootstrap.servers": kafka_address, "topic": "t"})
    warn_of_old_rows(ProcessState(REAL), options, [wrote({"t": 30}), wrote({"t": 0})])
    assert not caplog.records


def test_a_topic_whose_settings_are_not_known_is_no_failure(kafka_address: str) -> None:
    options = sink_options({"kafka.bootstrap.servers": kafka_address})
    warn_of_old_rows(ProcessState(REAL), options, [wrote({unique("missing"): 30})])


class FastClock:
    """Clocks by which a minute passes in six seconds."""

    def monotonic(self) -> float:
        return time.monotonic() * 10

    def time_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / 10)


def test_an_outage_after_the_commit_delays_it_by_seconds() -> None:
    """Who stops waiting for a committed job takes it for one that failed, and runs it again."""
    clock, options = FastClock(), sink_options({"kafka.bootstrap.servers": "127.0.0.1:1"})
    began = clock.monotonic()
    warn_of_old_rows(ProcessState(runtime_by(clock)), options, [wrote({"t": 30})])
    assert clock.monotonic() - began < 30, "a request waits for a minute by default"
