"""A proxy between clients and a broker that can lose a response after its request was applied.

The wire replaces the broker's address in responses with its own, so that clients stay on the wire without any setting
of the broker.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.support.peer_network import send_at_once

HOST = "127.0.0.1"
_SIZE = struct.Struct(">i")


@dataclass
class Loss:
    """A rule that loses one response to a request of an API that contains all of `holding` and not `without`."""

    api_key: int
    holding: tuple[bytes, ...]
    without: bytes | None = None
    lost: int = 0

    def takes(self, request: bytes) -> bool:
        """Return whether the response to this request is to be lost."""
        return (
            not self.lost
            and int.from_bytes(request[:2]) == self.api_key
            and all(part in request for part in self.holding)
            and (self.without is None or self.without not in request)
        )


class Wire:
    """A relay of every connection to `target`; `losses` has the rules."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.losses: list[Loss] = []
        self._listener = socket.create_server((HOST, 0))
        self._port = self._listener.getsockname()[1]
        self.address = f"{HOST}:{self._port}"
        self._there = host.encode() + int(port).to_bytes(4)
        self._here = HOST.encode() + self._port.to_bytes(4)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        async def serve() -> None:
            await asyncio.start_server(self._connect, sock=self._listener)

        self._loop.run_until_complete(serve())
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        send_at_once(writer)
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        lost: set[bytes] = set()
        ways = [
            asyncio.ensure_future(_relay(reader, broker_writer, lambda frame: self._request(frame, lost))),
            asyncio.ensure_future(_relay(broker_reader, writer, lambda frame: self._answer(frame, lost))),
        ]
        # asyncio would report a cancelled handler as failed; this one ends normally.
        with suppress(asyncio.CancelledError):
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        writer.close()
        broker_writer.close()

    def _request(self, frame: bytes, lost: set[bytes]) -> bytes:
        for loss in self.losses:
            if loss.takes(frame):
                loss.lost += 1
                lost.add(frame[4:8])
                break
        return frame

    def _answer(self, frame: bytes, lost: set[bytes]) -> bytes | None:
        if frame[:4] in lost:
            return None
        return frame.replace(self._there, self._here)


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Callable[[bytes], bytes | None]
) -> None:
    """Relay frames until the peer closes the connection, or a frame is lost."""
    try:
        while True:
            size = await reader.readexactly(_SIZE.size)
            frame = handle(await reader.readexactly(_SIZE.unpack(size)[0]))
            if frame is None:
                return
            writer.write(_SIZE.pack(len(frame)) + frame)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        return
