"""The server between sockets and the core: a client that sends far ahead is not read from until it is served."""

from kafka.protocol.metadata import ApiVersionsRequest

from broker_core.embedded import EmbeddedBroker
from broker_core.server import client as client_room
from broker_core.server import network
from tests.support.raw_client import RawClient

REQUESTS = 500


def test_a_client_that_sends_far_ahead_is_paused_and_read_again_when_it_is_served(monkeypatch):
    paused = []
    note = network.Server.paused

    def noting(server, client):
        paused.append(client)
        note(server, client)

    monkeypatch.setattr(client_room, "MAX_WAITING_BYTES", 1000)
    monkeypatch.setattr(network.Server, "paused", noting)
    request = ApiVersionsRequest(version=0)
    request.with_header(correlation_id=7, client_id="ahead")
    with EmbeddedBroker() as kafka, RawClient(kafka.bootstrap_servers) as client:
        for _ in range(3):
            client.send_bytes(bytes(request.encode(header=True, framed=True)) * REQUESTS)
            for _ in range(REQUESTS):
                client.read_frame()
    assert paused
