"""The server between sockets and the core: it stops reading from a client that sends too far ahead."""

from kafka.protocol.metadata import ApiVersionsRequest

from broker_core import EmbeddedBroker
from broker_core.server import connection_protocol, socket_server
from tests.support.raw_client import RawClient

REQUESTS = 500


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
