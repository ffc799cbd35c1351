"""A real `KafkaClient` without sockets and clocks: connections are calls, and waiting takes no time.

All is real but the two ends: kafka-python's connections and the client's own code above them. Time goes by only where
the loop waits, so that a client's deadlines pass at once, and a loop that asks for the time again and again without
ever waiting is found out.
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

# How often an honest client looks at the clock for one question, tens of requests and retries included.
_MOST_LOOKS = 100_000
# kafka-python has no other way to be given a clock.
_TIMED = (kafka.cluster, kafka.net.connection, kafka.net.manager, kafka.net.selector)

# Takes the bytes of one request without their length and gives all bytes of the answer, length included; None hangs up.
Answer = Callable[[bytes], bytes | None]


class Spinning(Exception):
    """Report a client that goes round without ever waiting."""


class _Clock:
    """The clock of a client, and the module `time` of kafka-python."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.looks = 0

    def monotonic(self) -> float:
        """Tell the time."""
        self.looks += 1
        if self.looks > _MOST_LOOKS:
            raise Spinning(f"the clock was looked at {self.looks} times")
        return self.now

    def time(self) -> float:
        """Tell the time of day."""
        return self.now

    def time_ns(self) -> int:
        """Tell the time of day."""
        return int(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        """Let time go by."""
        self.now += seconds


def _selector_of(clock: _Clock) -> type[selectors.SelectSelector]:
    class Selector(selectors.SelectSelector):
        """Wait for nothing but time."""

        def select(self, timeout: float | None = None) -> list[Any]:
            assert timeout is not None, "the loop waits for ever"
            clock.now += max(timeout, 0.0)
            return []

    return Selector


class _Transport:
    """Carry bytes between one connection and what answers it."""

    def __init__(self, net: Any, host: str, answer: Answer) -> None:
        self.host = host
        self.last_activity = 0.0
        self._net = net
        self._answer = answer
        self._protocol: Any = None

    def get_protocol(self) -> Any:
        """Return the connection."""
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        """Take the connection."""
        self._protocol = protocol

    def resume_reading(self) -> None:
        """Answers come by themselves."""

    def getPeer(self) -> tuple[str, int]:  # noqa: N802 (Twisted's name)
        """Return an address."""
        return self.host, 9092

    def host_port(self) -> str:
        """Return an address to show."""
        return self.host

    def write(self, data: bytes) -> None:
        """Take whole requests, and answer them in the next turn of the loop."""
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
            # Whoever waits for more would wait until the request times out.
            self.abort(kafka.errors.KafkaConnectionError("the broker hung up"))

    def abort(self, error: BaseException | None = None) -> None:
        """Be closed."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def close(self) -> None:
        """Be closed."""
        self.abort()


@contextlib.contextmanager
def client_of(answer: Answer, **options: Any) -> Iterator[KafkaClient]:
    """Open a client all of whose brokers are `answer`."""
    clock = _Clock()
    with contextlib.ExitStack() as stack:
        # Every answer that is refused would be told of.
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
