"""The server between sockets and the core: clients far ahead, and requests in progress when it stops."""

import threading

from kafka.protocol.metadata import ApiVersionsRequest

from broker_core import EmbeddedBroker
from broker_core.broker.cluster import Cluster
from broker_core.records.batch import NewRecord, build_batch
from broker_core.server import connection_protocol, disk, socket_server
from broker_core.wire import messages as m
from tests.support.raw_client import RawClient

REQUESTS = 500
DEADLINE_S = 30


def test_server_pauses_reading_from_a_client_far_ahead(monkeypatch):
    paused = []
    note = socket_server.SocketServer.reading_paused

    def noting(server, client):
        paused.append(client)
        note(server, client)

    monkeypatch.setattr(connection_protocol, "MAX_WAITING_BYTES", 1000)
    monkeypatch.setattr(socket_server.SocketServer, "reading_paused", noting)
    request = ApiVersionsRequest(version=0)
    request.with_header(correlation_id=7, client_id="ahead")
    with EmbeddedBroker() as kafka, RawClient(kafka.bootstrap_servers) as client:
        for _ in range(3):
            client.send_bytes(bytes(request.encode(header=True, framed=True)) * REQUESTS)
            for _ in range(REQUESTS):
                client.read_frame()
    assert paused


def test_clean_stop_sends_the_responses_to_what_it_has_written(tmp_path, monkeypatch):
    is_syncing, may_end = threading.Event(), threading.Event()
    close = Cluster.close

    def slow_sync(_: int) -> None:
        is_syncing.set()
        assert may_end.wait(DEADLINE_S)

    def closing(cluster: Cluster, now_ms: int) -> None:
        may_end.set()
        close(cluster, now_ms)

    topics = m.ProduceRequest.TopicProduceData
    records = bytes(build_batch([NewRecord(None, bytes(disk._MIN_OVERLAPPING_BYTES), (), 0)]))
    request = m.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[topics(name="t", partition_data=[topics.PartitionProduceData(index=0, records=records)])],
    )
    kafka = EmbeddedBroker(data_dir=tmp_path, topics={"t": 1})
    with kafka, RawClient(kafka.bootstrap_servers) as client:
        monkeypatch.setattr(disk, "_sync_descriptor", slow_sync)
        client.post(request, 9)
        assert is_syncing.wait(DEADLINE_S)
        monkeypatch.setattr(Cluster, "close", closing)
        kafka.close()
        answer = client.collect(request)
    assert answer.responses[0].partition_responses[0].base_offset == 0
