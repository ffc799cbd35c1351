"""The wait of a running query for brokers that do not respond."""

import logging

import pytest

from spark_eos.errors import BrokerError, EosKafkaError, UnansweredError, UnreachableError
from spark_eos.source.driver_side import Outages
from tests.support.clocks import StandingClock


class Cluster:
    """A cluster that answers from a time on; a look-up without an answer takes a minute."""

    def __init__(self, error: EosKafkaError | None = None) -> None:
        self.clock = StandingClock()
        self.down_until = 0.0
        self.error = error or UnreachableError("No broker answered")

    def look(self) -> str:
        if self.clock.seconds < self.down_until:
            self.clock.seconds += 60
            raise self.error
        return "ends"


def outages(cluster: Cluster) -> Outages:
    return Outages(600_000, cluster.clock)


@pytest.mark.parametrize("error", [UnreachableError("No broker answered"), UnansweredError("no leader")], ids=str)
def test_outage_of_minutes_is_waited_out(error: EosKafkaError, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(error)
    running = outages(cluster)
    assert running.wait_out(cluster.look) == "ends"
    for _ in range(2):
        cluster.down_until = cluster.clock.seconds + 500
        assert running.wait_out(cluster.look) == "ends"
    assert len(caplog.records) == 18
    assert "has waited 540 s for brokers, at most 600 s (outageTimeout)" in caplog.text


def test_longer_outage_stops_the_query() -> None:
    cluster = Cluster()
    running = outages(cluster)
    running.wait_out(cluster.look)
    cluster.down_until = 10_000
    with pytest.raises(UnreachableError):
        running.wait_out(cluster.look)
    assert cluster.clock.seconds == 600
    # What is looked up next is not waited for a second time.
    with pytest.raises(UnreachableError):
        running.wait_out(cluster.look)
    assert cluster.clock.seconds == 660


def test_brokers_that_never_answered_are_not_waited_for() -> None:
    cluster = Cluster()
    cluster.down_until = 10_000
    with pytest.raises(UnreachableError):
        outages(cluster).wait_out(cluster.look)
    assert cluster.clock.seconds == 60


def test_errors_of_brokers_stop_at_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(BrokerError("UNKNOWN_SERVER_ERROR"))
    running = outages(cluster)
    running.wait_out(cluster.look)
    cluster.down_until = 10_000
    with caplog.at_level(logging.WARNING), pytest.raises(BrokerError):
        running.wait_out(cluster.look)
    assert caplog.records == []
