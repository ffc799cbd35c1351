"""Brokers of an `EmbeddedBroker` that come back at another address, as pods do."""

from broker_core import EmbeddedBroker
from broker_core.broker.endpoints import Address
from broker_core.server.socket_server import SocketServer


def move_broker(kafka: EmbeddedBroker, broker_id: int) -> None:
    """Restart a broker at a free port; nothing listens at the old one."""
    kafka.broker(broker_id).stop()
    kafka._thread.act(lambda server: _readdress(server, {broker_id: 0}))
    kafka.broker(broker_id).start()


def swap_brokers(kafka: EmbeddedBroker, first: int, second: int) -> None:
    """Restart two brokers, each at the port of the other."""
    before = ports(kafka)
    for broker_id in (first, second):
        kafka.broker(broker_id).stop()
    kafka._thread.act(lambda server: _readdress(server, {first: before[second], second: before[first]}))
    for broker_id in (first, second):
        kafka.broker(broker_id).start()


def ports(kafka: EmbeddedBroker) -> dict[int, int]:
    """Return where the brokers are."""
    [addresses] = kafka._thread.act(lambda server: list(server.addresses.values()))
    return {broker_id: address.port for broker_id, address in addresses.items()}


def _readdress(server: SocketServer, ports: dict[int, int]) -> None:
    [(name, addresses)] = server.addresses.items()
    for broker_id in ports:
        server._ports.take((name, broker_id)).close()
    for broker_id, port in ports.items():
        host = addresses[broker_id].host
        addresses[broker_id] = Address(host, server._ports.reserve((name, broker_id), host, port))
