"""Bytes sent through the network of a cluster arrive, wait, or are refused."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.support.apache_kafka import free_ports
from tests.support.peer_network import CLIENTS, PeerNetwork, address_of, hosts

NODES = (1, 2, 3)
PATIENCE_S = 10
CLIENT_PORT, PEER_PORT = free_ports(2)


@pytest.fixture(scope="module")
def network() -> Iterator[PeerNetwork]:
    """Return the network of three nodes that answer each byte with their own number."""
    servers = [
        (node, socket.create_server((address_of(node, node), port)))
        for node in NODES
        for port in (CLIENT_PORT, PEER_PORT)
    ]
    for node, server in servers:
        threading.Thread(target=answer, args=(server, node), daemon=True).start()
    made = PeerNetwork(dict.fromkeys(NODES, (CLIENT_PORT,)), dict.fromkeys(NODES, (PEER_PORT,)))
    yield made
    made.close()
    for _, server in servers:
        # Closing alone does not wake the thread that accepts.
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def answer(server: socket.socket, node: int) -> None:
    """Serve one connection after another."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=echo, args=(connection, node), daemon=True).start()


def echo(connection: socket.socket, node: int) -> None:
    """Answer each byte until the other end closes or resets the connection."""
    with closing(connection), suppress(OSError):
        while connection.recv(1):
            connection.sendall(bytes([node]))


def connect(source: int, target: int) -> socket.socket:
    """Connect as one node, or a client, to another node."""
    port = CLIENT_PORT if source == CLIENTS else PEER_PORT
    return socket.create_connection((address_of(target, source), port), timeout=PATIENCE_S)


def ask(connection: socket.socket) -> bytes:
    connection.sendall(b"?")
    return connection.recv(1)


def test_relayed_connections_reach_the_intended_node(network: PeerNetwork) -> None:
    for source in (CLIENTS, *NODES):
        for target in NODES:
            with closing(connect(source, target)) as connection:
                assert ask(connection) == bytes([target])


def test_isolated_node_is_cut_off_both_ways_and_data_arrives_after_healing(network: PeerNetwork) -> None:
    with closing(connect(1, 2)) as before, closing(connect(2, 1)) as other_way, closing(connect(2, 3)) as others:
        assert ask(before) == b"\2" and ask(other_way) == b"\1"
        network.cut(1)
        assert ask(others) == b"\3"
        with closing(connect(CLIENTS, 1)) as client, closing(connect(1, 3)) as late:
            assert ask(client) == b"\1"
            for connection in (before, other_way, late):
                connection.sendall(b"?")
                connection.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
                connection.settimeout(PATIENCE_S)
            network.heal(1)
            assert [connection.recv(1) for connection in (before, other_way, late)] == [b"\2", b"\1", b"\3"]


def test_hidden_node_accepts_no_clients(network: PeerNetwork) -> None:
    with closing(connect(CLIENTS, 1)) as before:
        assert ask(before) == b"\1"
        network.hide(1)
        for connection in (before, connect(CLIENTS, 1)):
            with closing(connection), pytest.raises(OSError):
                assert not connection.recv(1)
                raise ConnectionError
        with closing(connect(2, 1)) as peer:
            assert ask(peer) == b"\1"
        network.show(1)
    with closing(connect(CLIENTS, 1)) as after:
        assert ask(after) == b"\1"


def test_node_resolves_itself_directly_and_peers_through_relays() -> None:
    lines = hosts(2, NODES).splitlines()
    assert lines[1:] == ["127.0.2.1 peer-1", "127.0.2.2 peer-2", "127.0.2.3 peer-3"]
