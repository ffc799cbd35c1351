"""The ports of brokers that are stopped: bound without listening, so that no other process can use them."""

import socket

from broker_core.server.acceptor import bind

# A listener and a broker.
Place = tuple[str, int]


class ReservedPorts:
    """The bound sockets by listener and broker; each place keeps its address."""

    def __init__(self) -> None:
        self._sockets: dict[Place, socket.socket] = {}
        self._addresses: dict[Place, tuple[str, int]] = {}

    def reserve(self, place: Place, host: str, port: int) -> int:
        """Bind the place's port and return it, a free one for 0; raise OSError if it is in use."""
        sock = self._sockets[place] = bind(host, port)
        bound: int = sock.getsockname()[1]
        self._addresses[place] = (host, bound)
        return bound

    def reserve_again(self, place: Place) -> None:
        """Bind the port that the place had; raise OSError if it is in use."""
        self._sockets[place] = bind(*self._addresses[place])

    def take(self, place: Place) -> socket.socket:
        """Return the place's socket, to listen on."""
        return self._sockets.pop(place)

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()
