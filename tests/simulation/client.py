"""A client of brokers over simulated links: requests, responses and timeouts.

This module does not interpret requests: the actors above it decide what to repeat and when to give up, as in real
clients.
"""

import io
import struct
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from broker_core.broker.apis import SERVED
from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from broker_core.wire.framing import FrameReader
from tests.support.simulated.network import ClientEnd, Link
from tests.support.simulated.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

E = ErrorCode
GROUP, TRANSACTION = 0, 1
LARGEST_ANSWER = 1 << 26
REQUEST_TIMEOUT_MS = 1_000
FIRST_BACKOFF_MS, LAST_BACKOFF_MS = 40, 640
# Errors that a client retries after a new lookup of the leader or coordinator.
MOVED = frozenset(
    {
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.LEADER_NOT_AVAILABLE,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_TOPIC_ID,
        E.REQUEST_TIMED_OUT,
        E.NETWORK_EXCEPTION,
    }
)
RETRIED = MOVED | {E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS}
_CORRELATION_ID = slice(8, 12)
# The version from which a request's content identifies it: a batch by its sequence, an EndTxn by its epoch.
_NAMED_FROM = {m.ProduceRequest.API_KEY: 3, m.EndTxnRequest.API_KEY: 5}


class UnansweredError(Exception):
    """A request got no response, so it may have been applied."""


class GaveUpError(Exception):
    """No final response came in time."""

    def __init__(self, text: str, code: ErrorCode | None) -> None:
        super().__init__(f"{text}: {code.name if code is not None else 'no answer'}")
        self.code = code


class Exchange:
    """One request that waits for its response."""

    def __init__(self, response: Any, version: int, read_body: Callable[[int, memoryview], Any] | None = None) -> None:
        self.is_done = False
        self.value: Any = None
        self.exception: BaseException | None = None
        self.settled: Callable[[], None] = lambda: None
        self.answered: Callable[[], None] = lambda: None
        # What is received in place of the answer that a broker has sent.
        self.change: Callable[[bytes], bytes] = lambda frame: frame
        self._response = response
        self._version = version
        self._read_body = read_body

    def answer(self, frame: bytes) -> None:
        """Accept the response."""
        frame = self.change(frame)
        if self._read_body is None:
            self.value = self._response.decode(frame, version=self._version, header=True)
        else:
            stream = io.BytesIO(frame)
            self._response[self._version].parse_header(stream)
            self.value = self._read_body(self._version, memoryview(frame)[stream.tell() :])
        self.answered()
        self._settle()

    def fail(self, exception: BaseException) -> None:
        """Fail: no response will come."""
        if not self.is_done:
            self.exception = exception
            self._settle()

    def _settle(self) -> None:
        self.is_done = True
        self.settled()


class Wire(ClientEnd):
    """A client's end of one link."""

    def __init__(self, world: "World", client: str, broker_id: int) -> None:
        self._client = client
        # A request that got a response is not a retransmission when it is sent again, but a new question.
        self._answers = world.answers_to(client)
        self._reader = FrameReader(LARGEST_ANSWER)
        self._count = 0
        self._open: dict[int, Exchange] = {}
        self.link: Link = world.network.connect(client, broker_id, self)

    @property
    def is_open(self) -> bool:
        """Return whether requests can be sent."""
        return self.link.is_open

    def send(self, request: Any, version: int, asked: object = None) -> Exchange:
        """Send a request; `asked` identifies its question, which may have been sent before."""
        self._count += 1
        exchange = self._open[self._count] = Exchange(
            SERVED[request.API_KEY].response, version, getattr(request, "read_response", None)
        )
        request.API_VERSION = version
        request.with_header(self._count, self._client)
        frame = bytes(request.encode(header=True, framed=True))
        if asked is None and version >= _NAMED_FROM.get(request.API_KEY, version + 1):
            content = frame[: _CORRELATION_ID.start] + frame[_CORRELATION_ID.stop :]
            exchange.answered = lambda: self._answers.update([content])
            asked = (content, self._answers[content])
        self.link.send(frame, asked)
        return exchange

    def received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            (correlation_id,) = struct.unpack_from(">i", frame)
            exchange = self._open.pop(correlation_id, None)
            if exchange is not None:
                exchange.answer(frame)

    def lost(self) -> None:
        waiting, self._open = self._open, {}
        for exchange in waiting.values():
            exchange.fail(UnansweredError("the connection was lost"))

    def give_up(self, *, may_arrive: bool) -> None:
        """Close the link; requests under way may still arrive."""
        self.link.give_up(may_arrive=may_arrive)
        self.lost()


class Client:
    """A client that sends one request after another, each to the broker responsible for it.

    A request that the client gave up on may reach a broker later, except those of the APIs in `recalled`.
    """

    def __init__(self, world: "World", name: str, *, recalled: Collection[int] = ()) -> None:
        self.world = world
        self.name = name
        self.recalled = frozenset(recalled)
        self._question = 0
        self._wires: dict[int, Wire] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._leaders: dict[tuple[str, int], int] = {}

    # One request

    def ask(self, broker_id: int, request: Any, version: int, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Send a request and return its response; raise `UnansweredError`."""
        wire = self._wires.get(broker_id)
        if wire is None or not wire.is_open:
            wire = self._wires[broker_id] = Wire(self.world, self.name, broker_id)
        exchange = wire.send(request, version, self._question)
        fiber = self.world.fibers.current
        exchange.settled = fiber.resume
        until_us = self.world.scheduler.now_us + timeout_ms * US_PER_MS
        while not exchange.is_done and self.world.scheduler.now_us < until_us:
            fiber.sleep_until(until_us)
        exchange.settled = _ignore_response
        if not exchange.is_done:
            del self._wires[broker_id]
            wire.give_up(may_arrive=request.API_KEY not in self.recalled)
            raise UnansweredError("no answer in time")
        if exchange.exception is not None:
            raise exchange.exception
        return exchange.value

    def close(self) -> None:
        """Close all links."""
        for wire in self._wires.values():
            wire.give_up(may_arrive=True)
        self._wires.clear()

    # One question, until it gets a final response

    def until_answered(
        self,
        what: str,
        attempt: Callable[[], tuple[Any, ErrorCode]],
        *,
        retried: Collection[ErrorCode] = RETRIED,
        patience_ms: int = 30_000,
        forget: Callable[[], None] = lambda: None,
    ) -> tuple[Any, ErrorCode, int]:
        """Repeat while the error code is retriable; return the response, the code, and how often no response came.

        Raises `GaveUpError` when time is up.
        """
        until_us = self.world.scheduler.now_us + patience_ms * US_PER_MS
        self._question += 1
        unanswered, backoff_ms = 0, FIRST_BACKOFF_MS
        code: ErrorCode | None = None
        while True:
            try:
                answer, code = attempt()
            except UnansweredError:
                unanswered += 1
                forget()
            else:
                if code not in retried:
                    return answer, code, unanswered
                if code in MOVED:
                    forget()
                # After a response, the next attempt is a new question and not a retransmission.
                self._question += 1
            if self.world.scheduler.now_us >= until_us:
                raise GaveUpError(what, code)
            self.world.fibers.sleep_ms(backoff_ms)
            backoff_ms = min(2 * backoff_ms, LAST_BACKOFF_MS)

    def ask_coordinator(
        self,
        key_type: int,
        key: str,
        make: Callable[[], Any],
        version: int,
        code_of: Callable[[Any], int] = lambda answer: int(answer.error_code),
        *,
        retried: Collection[ErrorCode] = RETRIED,
        patience_ms: int = 30_000,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> tuple[Any, ErrorCode, int]:
        """Repeat a request to a key's coordinator; return the response, the code, and how often no response came."""

        def attempt() -> tuple[Any, ErrorCode]:
            answer = self.ask(self.coordinator(key_type, key), make(), version, timeout_ms)
            return answer, ErrorCode(code_of(answer))

        return self.until_answered(
            f"{make.__qualname__} of {key}",
            attempt,
            retried=retried,
            patience_ms=patience_ms,
            forget=lambda: self._forget_coordinator(key_type, key),
        )

    def ask_leader(
        self,
        topic: str,
        partition: int,
        make: Callable[[], Any],
        version: int,
        code_of: Callable[[Any], int],
        *,
        retried: Collection[ErrorCode] = RETRIED,
        patience_ms: int = 30_000,
    ) -> tuple[Any, ErrorCode, int]:
        """Repeat a request to the leader of a partition."""

        def attempt() -> tuple[Any, ErrorCode]:
            answer = self.ask(self.leader(topic, partition), make(), version)
            return answer, ErrorCode(code_of(answer))

        return self.until_answered(
            f"{make.__qualname__} of {topic}-{partition}",
            attempt,
            retried=retried,
            patience_ms=patience_ms,
            forget=self.forget_leaders,
        )

    # Leaders and coordinators

    def any_broker(self) -> int:
        """Choose a broker for a request that every broker can serve."""
        return self.world.scheduler.random.choice(self.world.broker_ids)

    def _forget_coordinator(self, key_type: int, key: str) -> None:
        self._coordinators.pop((key_type, key), None)

    def coordinator(self, key_type: int, key: str) -> int:
        """Look up a coordinator, or return the cached one; raise `UnansweredError`."""
        known = self._coordinators.get((key_type, key))
        if known is None:
            answer = self.ask(self.any_broker(), m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
            [found] = answer.coordinators
            if found.error_code:
                raise UnansweredError(f"no coordinator for {key}: {found.error_code}")
            known = self._coordinators[key_type, key] = found.node_id
        return known

    def forget_leaders(self) -> None:
        """Look up all leaders again when they are needed."""
        self._leaders.clear()

    def leader(self, topic: str, partition: int) -> int:
        """Look up a leader, or return the cached one; raise `UnansweredError`."""
        known = self._leaders.get((topic, partition))
        if known is None:
            answer = self.ask(
                self.any_broker(),
                m.MetadataRequest(
                    topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)],
                    allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=False,
                    include_topic_authorized_operations=False,
                ),
                9,
            )
            for found in answer.topics:
                for part in found.partitions:
                    if part.leader_id >= 0:
                        self._leaders[found.name, part.partition_index] = part.leader_id
            known = self._leaders.get((topic, partition))
            if known is None:
                raise UnansweredError(f"{topic}-{partition} has no leader")
        return known


def _ignore_response() -> None:
    """Do nothing: the response came too late, or its request was already settled."""
