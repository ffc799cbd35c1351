"""The network of one cluster: a relay for each direction between nodes, and from clients to nodes, that can be cut.

Each node resolves the names of its peers to addresses of its own (`hosts`), so every connection from one node to
another arrives at a relay that knows both. A node that is cut off exchanges no bytes with its peers, and what it sends
is delayed, as on a lost route, while clients still reach it. A node that is hidden refuses clients.
"""

import asyncio
import socket
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial

CLIENTS = 0
_CHUNK_BYTES = 64 * 1024


def peer_name(node: int) -> str:
    """Return the host name under which a node is advertised to its peers."""
    return f"peer-{node}"


def address_of(node: int, seen_from: int) -> str:
    """Return the loopback address of a node for another node, for clients, or (its own) for the relays."""
    return f"127.0.{seen_from}.{node}"


def hosts(seen_from: int, nodes: Iterable[int]) -> str:
    """Return the hosts file of one node, for Java's `jdk.net.hosts.file`."""
    lines = [f"127.0.0.1 localhost {socket.gethostname()}"]
    lines += [f"{address_of(node, seen_from)} {peer_name(node)}" for node in nodes]
    return "\n".join(lines) + "\n"


class _Link:
    """One direction of the network: it passes bytes, delays them, or refuses connections."""

    def __init__(self) -> None:
        self.passes = asyncio.Event()
        self.passes.set()
        self.refuses = False
        self.writers: set[asyncio.StreamWriter] = set()

    def refuse(self) -> None:
        self.refuses = True
        for writer in self.writers:
            writer.transport.abort()


class PeerNetwork:
    """Relays in all directions; `client_ports` and `peer_ports` are the ports on which each node listens."""

    def __init__(self, client_ports: dict[int, Collection[int]], peer_ports: dict[int, Collection[int]]) -> None:
        ways = [(CLIENTS, target, port) for target, ports in client_ports.items() for port in ports]
        ways += [
            (source, target, port)
            for target, ports in peer_ports.items()
            for port in ports
            for source in peer_ports
            if source != target
        ]
        self._listeners = {
            (source, target, port): socket.create_server((address_of(target, source), port))
            for source, target, port in ways
        }
        self._links = {(source, target): _Link() for source, target, _ in ways}
        self._cut: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="peer network", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()

    def cut(self, node: int) -> None:
        """Delay everything between a node and its peers."""
        self._cut.add(node)
        self._loop.call_soon_threadsafe(self._set_links)

    def heal(self, node: int) -> None:
        """Pass everything again, including what was delayed."""
        self._cut.discard(node)
        self._loop.call_soon_threadsafe(self._set_links)

    def hide(self, node: int) -> None:
        """Close all client connections of a node and refuse new ones."""
        self._loop.call_soon_threadsafe(self._links[CLIENTS, node].refuse)

    def show(self, node: int) -> None:
        """Let clients connect to a node again."""
        self._links[CLIENTS, node].refuses = False

    def close(self) -> None:
        """Close every connection."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for listener in self._listeners.values():
            listener.close()

    def _run(self) -> None:
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self) -> None:
        for (source, target, port), listener in self._listeners.items():
            relay = partial(_relay, self._links[source, target], (address_of(target, target), port))
            await asyncio.start_server(relay, sock=listener)

    def _set_links(self) -> None:
        for (source, target), link in self._links.items():
            if source == CLIENTS:
                continue
            if self._cut.isdisjoint((source, target)):
                link.passes.set()
            else:
                link.passes.clear()


def send_at_once(writer: asyncio.StreamWriter) -> None:
    """Set TCP_NODELAY: for listeners of `socket.create_server`, which name no protocol, asyncio does not do it.

    An answer in two parts waited 40 ms for its second one.
    """
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _relay(
    link: _Link, address: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Relay one connection until either end closes it."""
    send_at_once(writer)
    link.writers.add(writer)
    writers = [writer]
    # asyncio reports a cancelled handler as a failed one; this one only ends.
    with suppress(OSError, asyncio.CancelledError):
        await link.passes.wait()
        if not link.refuses:
            far_reader, far_writer = await asyncio.open_connection(*address)
            writers.append(far_writer)
            await _pass_on_both_ways(link, (reader, far_writer), (far_reader, writer))
    link.writers.discard(writer)
    for each in writers:
        each.transport.abort()


async def _pass_on_both_ways(link: _Link, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    tasks = [asyncio.ensure_future(_pass_on(*way, link)) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            await link.passes.wait()
            writer.write(data)
            await writer.drain()
    # While the direction is cut, the end of a connection does not pass either.
    await link.passes.wait()
