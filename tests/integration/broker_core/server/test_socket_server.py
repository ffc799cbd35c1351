"""The server between sockets and the core: clients far ahead, and requests in progress when it stops."""

import threading

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from broker_core import EmbeddedBroker
from broker_core.broker.cluster import Cluster
from broker_core.broker.controller import Controller
from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.server import connection_protocol, disk
from broker_core.wire import messages as m
from tests.support.broker_core import requests
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

REQUESTS = 500
DEADLINE_S = 30


def test_server_pauses_reading_from_a_client_far_ahead(monkeypatch):
    paused = []
    resume = connection_protocol.ConnectionProtocol.resume_if_drained

    def noting(client):
        paused.append(client)
        return resume(client)

    monkeypatch.setattr(connection_protocol, "MAX_WAITING_BYTES", 1000)
    monkeypatch.setattr(connection_protocol.ConnectionProtocol, "resume_if_drained", noting)
    request = ApiVersionsRequest(version=0)
    request.with_header(correlation_id=7, client_id="ahead")
    with EmbeddedBroker() as kafka, RawClient(kafka.bootstrap_servers) as client:
        for _ in range(3):
            client.send_bytes(bytes(request.encode(header=True, framed=True)) * REQUESTS)
            for _ in range(REQUESTS):
                client.read_frame()
    assert paused


class SlowDisk:
    """A disk whose syncs beside the broker's thread end when the test lets them."""

    def __init__(self, kafka, monkeypatch):
        self.is_syncing, self._may_end = threading.Event(), threading.Event()
        self._is_in_broker = lambda: kafka._thread.is_here
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(disk, "_sync_descriptor", self._sync)

    def _sync(self, _):
        if self._is_in_broker():
            return
        self.is_syncing.set()
        assert self._may_end.wait(DEADLINE_S)

    def end(self):
        self._may_end.set()

    def end_at(self, owner, name):
        """End the syncs when a method is called."""
        method = getattr(owner, name)

        def ending(*arguments):
            self.end()
            return method(*arguments)

        self._monkeypatch.setattr(owner, name, ending)


def produce(size_bytes=disk._MIN_OVERLAPPING_BYTES):
    """Return a request; its records are synced beside the broker's thread, unless they are small."""
    return requests.produce(build_batch([NewRecord(None, bytes(size_bytes), (), 0)]))[0]


def outcome_of(answer):
    [partition] = answer.responses[0].partition_responses
    return ErrorCode(partition.error_code).name, partition.base_offset


def post_to_slow_disk(kafka, client, request, monkeypatch):
    slow = SlowDisk(kafka, monkeypatch)
    client.post(request, 9)
    assert slow.is_syncing.wait(DEADLINE_S)
    return slow


def test_clean_stop_of_all_sends_the_responses_to_what_is_written(tmp_path, monkeypatch):
    kafka, request = EmbeddedBroker(data_dir=tmp_path, topics={"t": 1}), produce()
    with kafka, RawClient(kafka.bootstrap_servers) as client:
        post_to_slow_disk(kafka, client, request, monkeypatch).end_at(Cluster, "close")
        kafka.close()
        assert outcome_of(client.collect(request)) == ("NONE", 0)


@pytest.fixture
def kafka(tmp_path):
    with EmbeddedBroker(brokers=2, data_dir=tmp_path, topics={"t": 1}) as kafka:
        yield kafka


def connected_to(kafka, broker_id, client_id="raw-client"):
    return RawClient(kafka.bootstrap_servers.split(",")[broker_id - 1], client_id=client_id)


def assert_goes_on_after_a_start(kafka):
    assert (kafka.broker(1).is_running, kafka.leader(("t", 0))) == (False, 2)
    kafka.broker(1).start()
    with connected_to(kafka, 1) as client:
        assert outcome_of(client.send(produce(), 9)) == ("NONE", 1)


def test_clean_stop_of_one_broker_sends_the_responses_to_what_is_written(kafka, monkeypatch):
    request = produce()
    with connected_to(kafka, 1) as client:
        post_to_slow_disk(kafka, client, request, monkeypatch).end_at(Controller, "broker_left")
        kafka.broker(1).stop()
        assert outcome_of(client.collect(request)) == ("NONE", 0)
        assert client.is_closed_by_peer()
    assert_goes_on_after_a_start(kafka)


@pytest.mark.parametrize("broker_id", [1, 2])
def test_stop_in_the_function_of_a_fault_sends_the_responses_to_what_is_written(kafka, monkeypatch, broker_id):
    request, question = produce(), m.MetadataRequest(topics=[])
    with connected_to(kafka, 1) as client, connected_to(kafka, broker_id) as other:
        slow = post_to_slow_disk(kafka, client, request, monkeypatch)

        def stop(_):
            kafka.broker(1).stop()
            slow.end()

        kafka.fault(api="Metadata", action=stop, times=1)
        assert [each.node_id for each in other.send(question, 9).brokers] == [2]
        assert outcome_of(client.collect(request)) == ("NONE", 0)
        assert client.is_closed_by_peer()
    assert_goes_on_after_a_start(kafka)


def test_stop_in_the_middle_of_a_step_sends_all_responses_of_that_step(kafka, monkeypatch):
    clients = [connected_to(kafka, 1, name) for name in ("before", "first", "second")]
    requests = [produce(), produce(size_bytes=1), produce(size_bytes=1)]
    with clients[0], clients[1], clients[2]:
        slow = post_to_slow_disk(kafka, clients[0], requests[0], monkeypatch)
        kafka.fault(
            api="Produce", when="after_apply", action=lambda _: kafka.broker(1).stop(), client_id="first", times=1
        )
        arrived = kafka.fault(api="Produce", action=lambda _: None)
        # The next step settles both, since they arrive during a sync.
        clients[1].post(requests[1], 9)
        clients[2].post(requests[2], 9)
        wait_until(lambda: arrived.hits == 2, "both requests are handled")
        slow.end()
        answers = [client.collect(request) for client, request in zip(clients, requests, strict=True)]
        assert sorted(outcome_of(each) for each in answers) == [("NONE", 0), ("NONE", 1), ("NONE", 2)]
        assert all(client.is_closed_by_peer() for client in clients)


def test_stop_in_the_last_step_of_a_restart_closes_every_connection(kafka, monkeypatch):
    request = produce()
    with connected_to(kafka, 1) as client:
        kafka.fault(api="Produce", when="after_apply", action=lambda _: kafka.broker(1).stop(), times=1)
        post_to_slow_disk(kafka, client, request, monkeypatch).end_at(Cluster, "close")
        kafka.restart()
        assert outcome_of(client.collect(request)) == ("NONE", 0)
        assert client.is_closed_by_peer()
    assert [kafka.broker(each).is_running for each in (1, 2)] == [True, True]


def test_broker_that_stops_while_a_snapshot_is_restored_stays_stopped(kafka, monkeypatch):
    request, snapshot = produce(), kafka.snapshot()
    with connected_to(kafka, 1) as client:
        kafka.fault(api="Produce", when="after_apply", action=lambda _: kafka.broker(1).stop(), times=1)
        post_to_slow_disk(kafka, client, request, monkeypatch).end_at(Cluster, "abandon")
        kafka.restore(snapshot)
        assert outcome_of(client.collect(request)) == ("NONE", 0)
        assert client.is_closed_by_peer()
    assert (kafka.broker(1).is_running, kafka.leader(("t", 0))) == (False, 2)
    kafka.broker(1).start()
    with connected_to(kafka, 1) as client:
        assert outcome_of(client.send(produce(), 9)) == ("NONE", 0)


def test_crash_of_all_in_the_function_that_stops_a_broker_sends_no_response(kafka, monkeypatch):
    request, question = produce(), m.MetadataRequest(topics=[])
    with connected_to(kafka, 1) as client, connected_to(kafka, 2) as other:
        slow = post_to_slow_disk(kafka, client, request, monkeypatch)

        def stop_then_crash(_):
            kafka.broker(1).stop()
            slow.end()
            kafka.crash()

        kafka.fault(api="Metadata", action=stop_then_crash, times=1)
        other.post(question, 9)
        assert client.is_closed_by_peer()
        assert other.is_closed_by_peer()
    kafka.restart()
    assert [kafka.broker(each).is_running for each in (1, 2)] == [True, True]
