"""`network` of the embedded broker: latency and bandwidth of some clients."""

import threading
import time

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from broker_core import EmbeddedBroker
from tests.support.raw_client import RawClient

DEADLINE_S = 30
VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")


@pytest.fixture(scope="module")
def kafka():
    with EmbeddedBroker(brokers=2, topics={"in": 1}) as broker:
        yield broker


def _round_trip_s(kafka, client_id, broker=0):
    with RawClient(kafka.bootstrap_servers.split(",")[broker], client_id=client_id) as client:
        began = time.monotonic()
        client.send(VERSIONS, 3)
        return time.monotonic() - began


def test_latency_delays_each_direction_of_the_named_client(kafka):
    with kafka.network(latency_ms=100, client_id="far"):
        assert _round_trip_s(kafka, "far") >= 0.2
        assert _round_trip_s(kafka, "near") < 0.2
    assert _round_trip_s(kafka, "far") < 0.2


def test_latency_to_one_broker(kafka):
    with kafka.network(latency_ms=100, broker=2):
        assert _round_trip_s(kafka, "any", broker=1) >= 0.2
        assert _round_trip_s(kafka, "any", broker=0) < 0.2


def test_the_newest_rule_applies(kafka):
    with kafka.network(latency_ms=10_000), kafka.network(latency_ms=1, client_id="fast"):
        assert _round_trip_s(kafka, "fast") < 5


def test_bandwidth_limits_large_requests(kafka, kafka_producer):
    producer = kafka_producer({"client.id": "thin", "linger.ms": 0})
    with kafka.network(bytes_per_s=200_000, client_id="thin"):
        producer.produce("in", b"\xff" * 100_000)
        began = time.monotonic()
        assert producer.flush(DEADLINE_S) == 0
        assert time.monotonic() - began >= 0.4
    assert kafka.records("in").values == [b"\xff" * 100_000]


def test_requests_and_answers_stay_in_order(kafka):
    """Also across the end of a rule, when later requests are not delayed any more."""
    with RawClient(kafka.bootstrap_servers.split(",")[0], client_id="ordered") as client:
        rule = kafka.network(latency_ms=50, client_id="ordered")
        requests = [MetadataRequest(topics=[]) for _ in range(20)]
        for number, request in enumerate(requests):
            client.post(request, 9)
            if number == 10:
                rule.end()
        # The client checks the correlation id of the last response only.
        for _ in requests[:-1]:
            client.read_frame()
        client.collect(requests[-1])


def test_clients_that_leave_and_brokers_that_stop_do_not_wait():
    with EmbeddedBroker() as kafka, RawClient(kafka.bootstrap_servers) as waiting:
        # A connection that the broker has accepted.
        waiting.send(VERSIONS, 3)
        kafka.network(latency_ms=60_000)
        with RawClient(kafka.bootstrap_servers) as client:
            client.post(VERSIONS, 3)
        waiting.post(VERSIONS, 3)
        closing = threading.Thread(target=kafka.close)
        closing.start()
        closing.join(DEADLINE_S)
        assert not closing.is_alive()
        assert waiting.is_closed_by_peer()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give latency_ms, bytes_per_s or both"),
        ({"latency_ms": -1}, "cannot be negative"),
        ({"bytes_per_s": 0}, "expected more than 0"),
        ({"latency_ms": 1, "broker": 3}, "there is no broker 3; there are 1, 2"),
    ],
)
def test_conditions_that_cannot_be_are_refused(kafka, arguments, message):
    with pytest.raises(ValueError, match=message):
        kafka.network(**arguments)
