"""A client in the broker's own thread, without a socket.

Its requests are encoded and pass through `broker.connection` like any client's, so the broker decodes, checks
and syncs them in the same way. They are not in the request log, faults do not match them, and access control lists do
not apply, because they are part of the test and not of the code under test.
"""

import asyncio
from functools import partial
from typing import Any

from broker_core.broker.connection import Connection
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.principals import LOCAL_CLIENT
from broker_core.server.socket_server import SocketServer
from broker_core.server.thread import ServerThread
from broker_core.types import Frame
from broker_core.wire.local import decode_response, encode_request

_DEADLINE_S = 30


class _Reply:
    """The transport of a connection that carries one request: it keeps the bytes of the response."""

    def __init__(self) -> None:
        self.data: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def send(self, frame: Frame) -> None:
        if not self.data.done():
            self.data.set_result(b"".join(frame))

    def close(self) -> None:
        if not self.data.done():
            self.data.set_exception(RuntimeError("the broker closed the connection; the reason is in its log"))


class LocalClient:
    """Requests to the brokers of one cluster, from any thread but the brokers' own."""

    def __init__(self, thread: ServerThread) -> None:
        self._thread = thread

    def send(self, broker_id: int, request: Any, version: int) -> Any:
        """Send a request to a broker, at this version or the newest it serves, and return the response.

        Raises RuntimeError if no broker is running, if the broker stops because of an error, or if the call comes from
        the brokers' thread; TimeoutError after 30 seconds; and `KafkaError` with BROKER_NOT_AVAILABLE if the broker is
        stopped.
        """

        async def ask(server: SocketServer) -> bytes:
            broker, reply = server.cluster.brokers[broker_id], _Reply()
            if server.is_away(broker_id):
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not running")
            frame = encode_request(request, min(version, broker.served[request.API_KEY].max_version), "broker_core")
            connection = Connection(broker, reply, "127.0.0.1", principal=LOCAL_CLIENT)
            server.step(partial(connection.receive, frame, server.clock.now_ms()))
            assert server.failure is not None
            try:
                ended = (reply.data, server.failure)
                await asyncio.wait(ended, timeout=_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                connection.lost()
            if reply.data.done():
                return reply.data.result()
            if server.failure.done():
                failure = server.failure.exception()
                raise RuntimeError(f"the broker has stopped: {failure}") from failure
            what = type(request).__name__.removesuffix("Request")
            raise TimeoutError(f"broker {broker_id} has not answered {what} within {_DEADLINE_S} s")

        return decode_response(request, self._thread.wait_for(ask))
