"""A real `KafkaClient` without sockets and clocks: connections are calls, and waiting takes no time.

Only the two ends are replaced: kafka-python's transport and the clocks. Time advances only where the loop waits, so a
client's deadlines pass at once, and a loop that reads the clock repeatedly without waiting is detected.
"""

import contextlib
import logging
import selectors
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import kafka.cluster
import kafka.errors
import kafka.net.connection
import kafka.net.manager
import kafka.net.selector

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.support.clocks import runtime_by

# The number of clock reads for one request of a correct client, with tens of retries.
_MOST_LOOKS = 100_000
# kafka-python accepts a clock in no other way.
_TIMED = (kafka.cluster, kafka.net.connection, kafka.net.manager, kafka.net.selector)

# Takes the bytes of one request without its length and returns the whole response frame; None closes the connection.
Answer = Callable[[bytes], bytes | None]


class Spinning(Exception):
    """A client that loops without waiting."""


class _Clock:
    """The clock of a client, and the module `time` of kafka-python."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.looks = 0

    def monotonic(self) -> float:
        """Return the time, and count the read."""
        self.looks += 1
        if self.looks > _MOST_LOOKS:
            raise Spinning(f"the clock was read {self.looks} times")
        return self.now

    def time(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.now += seconds


def _selector_of(clock: _Clock) -> type[selectors.SelectSelector]:
    class Selector(selectors.SelectSelector):
        """A selector whose waits only advance the clock."""

        def select(self, timeout: float | None = None) -> list[Any]:
            assert timeout is not None, "the loop waits forever"
            clock.now += max(timeout, 0.0)
            return []

    return Selector


class _Transport:
    """A transport of bytes between one connection and a function that answers."""

    def __init__(self, net: Any, host: str, answer: Answer) -> None:
        self.host = host
        self.last_activity = 0.0
        self._net = net
        self._answer = answer
        self._protocol: Any = None

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def resume_reading(self) -> None:
        """Do nothing: responses need no reading."""

    def getPeer(self) -> tuple[str, int]:  # noqa: N802 (Twisted's name)
        return self.host, 9092

    def host_port(self) -> str:
        return self.host

    def write(self, data: bytes) -> None:
        """Split the data into requests, and answer them in the next iteration of the loop."""
        position = 0
        while position < len(data):
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            request = bytes(data[position + 4 : end])
            self._net.call_soon(lambda request=request: self._deliver(request))
            position = end

    def _deliver(self, request: bytes) -> None:
        answered = self._protocol is not None and self._answer(request)
        if answered:
            try:
                self._protocol.data_received(answered)
            except kafka.errors.KafkaProtocolError as error:
                self.abort(error)
        if self._protocol is not None and (not answered or self._protocol.in_flight_requests):
            # A client that expects more would wait until the request times out.
            self.abort(kafka.errors.KafkaConnectionError("the broker closed the connection"))

    def abort(self, error: BaseException | None = None) -> None:
        """Close the connection with an error."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def close(self) -> None:
        """Close the connection."""
        self.abort()


@contextlib.contextmanager
def client_of(answer: Answer, **options: Any) -> Iterator[KafkaClient]:
    """Open a client whose brokers all answer with `answer`."""
    clock = _Clock()
    with contextlib.ExitStack() as stack:
        # kafka-python logs every refused response.
        log = logging.getLogger("kafka")
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL + 1)
        for module in _TIMED:
            fake = SimpleNamespace(monotonic=clock.monotonic, time=clock.time, sleep=clock.sleep)
            assert module.time is time
            stack.enter_context(patch.object(module, "time", fake))
        selector = {"selector": _selector_of(clock)}
        stack.enter_context(patch.dict(kafka.net.selector.NetworkSelector.DEFAULT_CONFIG, selector))

        async def connected(manager: Any, node: Any, timeout_at: float | None = None) -> _Transport:
            return _Transport(manager._net, node.host, answer)

        manager_class = kafka.net.manager.KafkaConnectionManager
        stack.enter_context(patch.object(manager_class, "_build_transport", connected))
        settings = {"api_timeout_ms": 3_000, "request_timeout_ms": 1_000, "delivery_timeout_ms": 3_000, **options}
        yield stack.enter_context(KafkaClient(ClientOptions(("test:9092",), **settings), runtime_by(clock)))
