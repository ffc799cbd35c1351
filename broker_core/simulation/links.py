"""Carry bytes between clients and brokers as TCP does: late, in pieces, in order within a connection, or not at all.

What a client has sent can arrive after it has given up and closed: that is how one request comes twice, how two change
places on two connections, and how one of an older transaction comes into a newer one (KIP-890).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker_core.broker.connection import Connection
from broker_core.simulation.faults import Fault
from broker_core.wire import messages as m

if TYPE_CHECKING:
    from broker_core.simulation.network import SimulatedNetwork


# Where a framed request names its API, and which APIs write or change a transaction.
API_KEY_PLACE = slice(4, 6)
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


class Sent(NamedTuple):
    """Name one request on the wire: whose, the how manieth of all, of which API.

    `asked` names what is asked for, so that a request that is sent again bears the name of the first; None where the
    client does not say. `changes` says that it writes or changes a transaction.
    """

    client: str
    number: int
    api: bytes
    asked: object
    changes: bool


class ClientEnd(Protocol):
    """Be what a client does with its end of a link."""

    def received(self, data: bytes) -> None:
        """Take bytes from the broker."""
        ...

    def lost(self) -> None:
        """Note that the connection is gone."""
        ...


class _Lane:
    """Carry messages one way: in order, and held back while the link is cut."""

    def __init__(self, link: "Link", name: str, random: Random) -> None:
        self._link = link
        self._name = name
        self._random = random
        self._free_us = 0
        self._held: deque[Callable[[], None]] = deque()
        self.under_way = 0

    def send(self, arrive: Callable[[], None], *, is_aimed_at: bool = False) -> None:
        """Let something arrive at the other end, after all that was sent before."""
        network = self._link.network
        scheduler, weather = network.scheduler, network.weather
        delay_us = self._random.randint(*weather.latency_us)
        if self._chance(weather.slow_chance):
            delay_us += self._random.randint(*weather.slow_us)
            network.faults.struck(Fault.DELAYED)
        elif is_aimed_at and self._chance(weather.aimed_slow_chance):
            delay_us += self._random.randint(*weather.aimed_slow_us)
            network.faults.struck(Fault.DELAYED)
        self._free_us = max(self._free_us, scheduler.now_us + delay_us)
        self.under_way += 1
        scheduler.at(self._free_us, partial(self._arrive, arrive))

    def pieces(self, data: bytes) -> list[bytes]:
        """Cut a message, sometimes."""
        if len(data) > 1 and self._chance(self._link.network.weather.fragment_chance):
            self._link.network.faults.struck(Fault.FRAGMENTED)
            cut = self._random.randrange(1, len(data))
            return [data[:cut], data[cut:]]
        return [data]

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability

    def loses(self, probability: float) -> bool:
        """Say whether the connection breaks over this message."""
        return self._chance(probability)

    def _arrive(self, arrive: Callable[[], None]) -> None:
        if self._held or self._link.network.is_cut(self._link.client):
            self._link.network.faults.struck(Fault.HELD_BACK)
            self._held.append(arrive)
            return
        self.under_way -= 1
        arrive()

    def release(self) -> None:
        """Let arrive what was held back."""
        while self._held:
            self.under_way -= 1
            self._held.popleft()()


class Link:
    """Be one connection of a client to a broker; the broker's end is the transport of its `Connection`."""

    def __init__(self, network: "SimulatedNetwork", number: int, client: str, broker_id: int, end: ClientEnd) -> None:
        self.network = network
        self.number = number
        self.client = client
        self.broker_id = broker_id
        self._end: ClientEnd | None = end
        self._connection: Connection | None = None
        # Chance by link: which of two answers leaves first must not decide what becomes of a third.
        random = Random(network.scheduler.seed * 1_000_003 + number)
        self._up, self._down = _Lane(self, "up", random), _Lane(self, "down", random)
        self._is_reset = False
        self._up.send(self._accept)

    def __str__(self) -> str:
        return f"link {self.number} {self.client}-{self.broker_id}"

    @property
    def is_open(self) -> bool:
        """Say whether the client still has it."""
        return self._end is not None

    # The client's side

    def send(self, data: bytes, asked: object = None) -> None:
        """Send a framed request to the broker; `asked` is as in `Sent`."""
        if self._end is None:
            return
        network = self.network
        if self._up.loses(network.weather.lose_request_chance):
            network.faults.struck(Fault.REQUEST_LOST)
            network.scheduler.note(f"{self} breaks, a request is lost")
            self.reset()
            return
        api = data[API_KEY_PLACE]
        sent = network.number(self.client, api, asked, changes=api in _CHANGING)
        *pieces, last = self._up.pieces(data)
        for piece in pieces:
            self._up.send(partial(self._received_by_broker, piece, None), is_aimed_at=sent.changes)
        self._up.send(partial(self._received_by_broker, last, sent), is_aimed_at=sent.changes)

    def give_up(self, *, may_arrive: bool) -> None:
        """Close it as a client does that waits no longer; what it has sent may arrive all the same."""
        if self._end is None:
            return
        self._end = None
        if not may_arrive:
            self._is_reset = True
        self._up.send(self._lost_by_broker)

    # The broker's side: it is the transport of the connection

    def _accept(self) -> None:
        if self._is_reset:
            return
        connection = self.network.server.accept(self)
        if connection is None:
            self.network.faults.struck(Fault.REFUSED)
            self._is_reset = True
            self._down.send(self._lost_by_client)
        self._connection = connection

    def _received_by_broker(self, data: bytes, sent: Sent | None) -> None:
        """Hand bytes on; `sent` names the request that they complete."""
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

    # broker_core.broker.connection.ClientTransport

    def deliver(self, data: bytes) -> None:
        """Carry an answer to the client."""
        if self._is_reset:
            return
        network = self.network
        if self._down.loses(network.weather.lose_answer_chance):
            network.faults.struck(Fault.ANSWER_LOST)
            network.scheduler.note(f"{self} breaks, an answer is lost")
            self.reset()
            return
        for piece in self._down.pieces(data):
            self._down.send(partial(self._received_by_client, piece))

    def close(self) -> None:
        """Close it after what was sent: the broker hangs up."""
        self._connection = None
        self._down.send(self._lost_by_client)

    # The world

    def reset(self) -> None:
        """Break it: nothing more arrives anywhere, and both ends learn of it."""
        self._is_reset = True
        connection, self._connection = self._connection, None
        if connection is not None:
            self.network.server.lost(self, connection)
        self._down.send(self._lost_by_client)

    def release(self) -> None:
        """Let arrive what a partition held back."""
        self._up.release()
        self._down.release()


class Transport:
    """Be a link as a connection of the core sees it."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    def send(self, data: bytes) -> None:
        """Send bytes, in order."""
        self._link.deliver(data)

    def close(self) -> None:
        """Close the connection after what was sent."""
        self._link.close()
