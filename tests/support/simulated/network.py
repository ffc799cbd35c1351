"""The simulated network: links that, like TCP connections, delay, split or lose messages.

A request can arrive after its client has timed out and closed the connection. Because of this a request can be handled
twice, requests on different connections can be reordered, and a request of one transaction can arrive during the next
one (KIP-890).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple, Protocol

from broker_core.broker.connection import Connection
from broker_core.types import Frame
from broker_core.wire import messages as m
from tests.support.simulated.faults import NO_FAULTS, FaultCounts, FaultKind, NetworkConditions
from tests.support.simulated.scheduler import Scheduler

# The position of the API key in a framed request.
API_KEY_PLACE = slice(4, 6)
# The APIs that write records or change a transaction.
_CHANGING = frozenset(
    request.API_KEY.to_bytes(2, "big")
    for request in (
        m.ProduceRequest,
        m.InitProducerIdRequest,
        m.AddPartitionsToTxnRequest,
        m.AddOffsetsToTxnRequest,
        m.EndTxnRequest,
        m.TxnOffsetCommitRequest,
    )
)


class SentRequest(NamedTuple):
    """A request in flight: its client, its sequence number and its API key.

    `asked` identifies the operation, so that a retry of the same request is recognized; None if the client does not set
    it. `changes` is true for requests that write records or change a transaction.
    """

    client: str
    number: int
    api: bytes
    asked: object
    changes: bool


class ClientEnd(Protocol):
    """The client's end of a link."""

    def received(self, data: bytes) -> None: ...

    def lost(self) -> None: ...


class NetworkServer(Protocol):
    """The server for the brokers' end of all links."""

    def accept(self, link: "Link") -> Connection | None: ...

    def received(self, link: "Link", connection: Connection, data: bytes, sent: SentRequest | None = None) -> None: ...

    def lost(self, link: "Link", connection: Connection) -> None: ...


class _Channel:
    """One direction of a link; it delivers messages in order, and queues them while the client is cut off."""

    def __init__(self, link: "Link", name: str, random: Random) -> None:
        self._link = link
        self._name = name
        self._random = random
        self._free_us = 0
        self._held: deque[Callable[[], None]] = deque()
        self.under_way = 0

    def send(self, arrive: Callable[[], None], *, is_aimed_at: bool = False) -> None:
        """Schedule `arrive`, the delivery of a message, after those of all earlier messages."""
        network = self._link.network
        scheduler, conditions = network.scheduler, network.conditions
        delay_us = self._random.randint(*conditions.latency_us)
        if self.chance(conditions.slow_chance):
            delay_us += self._random.randint(*conditions.slow_us)
            network.faults.record(FaultKind.DELAYED)
        elif is_aimed_at and self.chance(conditions.aimed_slow_chance):
            delay_us += self._random.randint(*conditions.aimed_slow_us)
            network.faults.record(FaultKind.DELAYED)
        self._free_us = max(self._free_us, scheduler.now_us + delay_us)
        self.under_way += 1
        scheduler.at(self._free_us, partial(self._arrive, arrive))

    def pieces(self, data: bytes) -> list[bytes]:
        """Return the message as one piece or, by chance, two."""
        if len(data) > 1 and self.chance(self._link.network.conditions.fragment_chance):
            self._link.network.faults.record(FaultKind.FRAGMENTED)
            cut = self._random.randrange(1, len(data))
            return [data[:cut], data[cut:]]
        return [data]

    def chance(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability

    def _arrive(self, arrive: Callable[[], None]) -> None:
        if self._held or self._link.network.is_cut(self._link.client):
            self._link.network.faults.record(FaultKind.HELD_BACK)
            self._held.append(arrive)
            return
        self.under_way -= 1
        arrive()

    def release(self) -> None:
        while self._held:
            self.under_way -= 1
            self._held.popleft()()


class Link:
    """A simulated TCP connection from a client to a broker."""

    def __init__(self, network: "SimulatedNetwork", number: int, client: str, broker_id: int, end: ClientEnd) -> None:
        self.network = network
        self.number = number
        self.client = client
        self.broker_id = broker_id
        self._end: ClientEnd | None = end
        self._connection: Connection | None = None
        # Each link has its own random source, so that the order of messages on others does not change its behavior.
        random = Random(network.scheduler.seed * 1_000_003 + number)
        self._up, self._down = _Channel(self, "up", random), _Channel(self, "down", random)
        self._is_reset = False
        self._up.send(self._accept)

    def __str__(self) -> str:
        return f"link {self.number} {self.client}-{self.broker_id}"

    @property
    def is_open(self) -> bool:
        """Whether the client has not closed or lost the link."""
        return self._end is not None

    # The client's side

    def send(self, data: bytes, asked: object = None) -> None:
        """Send a framed request to the broker; for `asked` see `SentRequest`."""
        if self._end is None:
            return
        network = self.network
        if self._breaks_with(self._up, network.conditions.lose_request_chance, FaultKind.REQUEST_LOST):
            return
        api = data[API_KEY_PLACE]
        sent = network.number(self.client, api, asked, changes=api in _CHANGING)
        *pieces, last = self._up.pieces(data)
        for piece in pieces:
            self._up.send(partial(self._received_by_broker, piece, None), is_aimed_at=sent.changes)
        self._up.send(partial(self._received_by_broker, last, sent), is_aimed_at=sent.changes)

    def give_up(self, *, may_arrive: bool) -> None:
        """Close the link at the client's end; with `may_arrive`, requests in flight can still arrive."""
        if self._end is None:
            return
        self._end = None
        if not may_arrive:
            self._is_reset = True
        self._up.send(self._lost_by_broker)

    # The broker's side

    def _accept(self) -> None:
        if self._is_reset:
            return
        connection = self.network.server.accept(self)
        if connection is None:
            self.network.faults.record(FaultKind.REFUSED)
            self._is_reset = True
            self._down.send(self._lost_by_client)
        self._connection = connection

    def _received_by_broker(self, data: bytes, sent: SentRequest | None) -> None:
        """Pass bytes to the server; `sent` is the request that they complete."""
        if self._is_reset or self._connection is None:
            return
        self.network.scheduler.note(f"{self} > {len(data)}")
        self.network.server.received(self, self._connection, data, sent)

    def _received_by_client(self, data: bytes) -> None:
        if self._end is not None:
            self.network.scheduler.note(f"{self} < {len(data)}")
            self._end.received(data)

    def _lost_by_broker(self) -> None:
        connection, self._connection = self._connection, None
        self._is_reset = True
        if connection is not None:
            self.network.server.lost(self, connection)
        self.network.forget(self)

    def _lost_by_client(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end.lost()
        self.network.forget(self)

    def deliver(self, data: bytes) -> None:
        """Send a response to the client."""
        if self._is_reset:
            return
        if self._breaks_with(self._down, self.network.conditions.lose_answer_chance, FaultKind.ANSWER_LOST):
            return
        for piece in self._down.pieces(data):
            self._down.send(partial(self._received_by_client, piece))

    def close(self) -> None:
        """Close the connection from the broker's end, after delivery of the responses."""
        self._connection = None
        self._down.send(self._lost_by_client)

    # The network

    def _breaks_with(self, channel: _Channel, probability: float, fault: FaultKind) -> bool:
        """Break the link with this message, by chance, and return whether it is broken."""
        if not channel.chance(probability):
            return False
        self.network.faults.record(fault)
        self.network.scheduler.note(
            f"{self} breaks, {'a request' if fault is FaultKind.REQUEST_LOST else 'an answer'} is lost"
        )
        self.reset()
        return True

    def reset(self) -> None:
        """Break the link: nothing more arrives, and both ends are notified."""
        self._is_reset = True
        connection, self._connection = self._connection, None
        if connection is not None:
            self.network.server.lost(self, connection)
        self._down.send(self._lost_by_client)

    def release(self) -> None:
        self._up.release()
        self._down.release()


class LinkTransport:
    """The broker's end of a link, the transport of a `Connection`."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    def send(self, frame: Frame) -> None:
        self._link.deliver(b"".join(frame))

    def close(self) -> None:
        self._link.close()


class SimulatedNetwork:
    """The links between clients and brokers, and the set of clients that are cut off."""

    def __init__(self, scheduler: Scheduler, faults: FaultCounts) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.conditions: NetworkConditions = NO_FAULTS
        # The brokers' end of all links, which sets itself here.
        self.server: NetworkServer
        self._links: dict[int, Link] = {}
        self._link_count = 0
        self._cut: set[str] = set()
        self._sent_count = 0
        self._handled: set[tuple[str, object]] = set()
        self._newest: dict[str, SentRequest] = {}
        # Requests that were handled after their client timed out: (client, API key as on the wire).
        self.late: set[tuple[str, bytes]] = set()

    def connect(self, client: str, broker_id: int, end: ClientEnd) -> Link:
        """Open a link. The client can send at once; if the broker refuses the connection, it is notified later."""
        self._link_count += 1
        link = self._links[self._link_count] = Link(self, self._link_count, client, broker_id, end)
        return link

    def forget(self, link: Link) -> None:
        self._links.pop(link.number, None)

    def number(self, client: str, api: bytes, asked: object, *, changes: bool) -> SentRequest:
        self._sent_count += 1
        return SentRequest(client, self._sent_count, api, asked, changes)

    def handled(self, sent: SentRequest, *, is_late: bool) -> None:
        """Count a request that is handled late, for the second time, or after a request that was sent later.

        Only requests that change something count as duplicated or reordered. A request that is overtaken only by its
        own retry counts as duplicated, not as reordered.
        """
        if is_late:
            self.faults.record(FaultKind.LATE_REQUEST)
            self.late.add((sent.client, sent.api))
        if not sent.changes:
            return
        if sent.asked is not None:
            name = (sent.client, sent.asked)
            if name in self._handled:
                self.faults.record(FaultKind.DUPLICATED)
            self._handled.add(name)
        newest = self._newest.get(sent.client)
        if newest is None or newest.number < sent.number:
            self._newest[sent.client] = sent
        elif newest.asked is None or newest.asked != sent.asked:
            self.faults.record(FaultKind.REORDERED)

    def is_cut(self, client: str) -> bool:
        return client in self._cut

    def cut(self, client: str) -> None:
        """Cut a client off from all brokers; messages in flight are queued."""
        self._cut.add(client)

    def heal(self, client: str) -> None:
        """Connect a client to the brokers again and deliver the queued messages."""
        self._cut.discard(client)
        for link in [each for each in self._links.values() if each.client == client]:
            link.release()

    def heal_all(self) -> None:
        """Connect all clients again."""
        for client in sorted(self._cut):
            self.heal(client)

    def reset(self, broker_id: int | None = None) -> None:
        for link in list(self._links.values()):
            if broker_id in (None, link.broker_id):
                link.reset()
