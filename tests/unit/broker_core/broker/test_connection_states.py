"""The states of a connection: what leads from one to the next, and what the client sees of it."""

from collections.abc import Callable, Mapping

import pytest

from broker_core.broker.connection import NEXT, Connection, Event, Hold, State
from broker_core.broker.fault_injection import BEFORE, Delay, Fault, FaultInjector
from broker_core.broker.request_log import RequestLog
from tests.support.broker_core.requests import TOPIC, fetch, produce, records
from tests.support.direct import DirectClient, direct_cluster


class NotingTable(dict[tuple[State, Event], State]):
    """The table of states, which notes each row that is met."""

    met: set[tuple[State, Event]]

    def __getitem__(self, row: tuple[State, Event]) -> State:
        self.met.add(row)
        return super().__getitem__(row)


class HeldClient(DirectClient):
    """A client whose requests are answered, and whose responses leave, by a step of their own each."""

    def __init__(self) -> None:
        cluster = direct_cluster()
        cluster.controller.create_topic(TOPIC, 1)
        super().__init__(cluster)
        self._held: list[Callable[[], None]] = []
        faults = FaultInjector(RequestLog(100), lambda _, action: self._held.append(action))
        faults.add(Fault(faults.remove, api=None, when=BEFORE, action=Delay(1), times=None, nth=None))
        self.connection = self._connection = Connection(cluster.brokers[1], self, "test", interceptor=faults)

    def act(self, steps: str) -> None:
        """Do the named steps, one after the other."""
        connection, now_ms = self.connection, self.cluster.now_ms
        known: Mapping[str, Callable[[], object]] = {
            "ask": lambda: connection.receive(self.encoded(*fetch(0)), now_ms),
            "produce": lambda: connection.receive(self.encoded(*produce(records())), now_ms),
            "garbage": lambda: connection.receive(b"\xff" * 4, now_ms),
            "answer": lambda: self._held.pop(0)(),
            "settle": lambda: self.cluster.settle(now_ms),
            "throttle": lambda: setattr(connection._current, "throttle_ms", 50),
            "wait": lambda: self.cluster.advance(now_ms + 100),
            "hold": lambda: connection.hold(Hold.CLIENT),
            "release": lambda: connection.release(Hold.CLIENT, now_ms),
            "end": lambda: connection.hang_up("the test ends it"),
            "lose": connection.lost,
        }
        for step in steps.split():
            known[step]()


# The steps, the state after them, and the number of responses that the client has.
PATHS = [
    ("", State.READY, 0),
    ("ask", State.HANDLING, 0),
    ("ask settle", State.HANDLING, 0),
    ("ask answer", State.ANSWERING, 0),
    ("ask answer settle", State.READY, 1),
    # One request at a time: the second waits for the response to the first.
    ("ask ask answer", State.ANSWERING, 0),
    ("ask ask answer settle", State.HANDLING, 1),
    # A Produce does not wait for the one before, any other request does.
    ("produce answer", State.PIPELINING, 0),
    ("produce answer settle", State.READY, 1),
    ("produce answer ask", State.PIPELINING, 0),
    ("produce answer ask settle", State.HANDLING, 1),
    ("produce answer produce", State.OVERLAPPING, 0),
    ("produce answer produce settle", State.HANDLING, 1),
    ("produce answer produce answer", State.PIPELINING, 0),
    ("produce answer produce answer settle", State.READY, 2),
    # A throttled client has its response, and its next request waits: one that follows a Produce, too.
    ("ask throttle answer settle ask", State.READY, 1),
    ("ask throttle answer settle ask wait", State.HANDLING, 1),
    ("produce answer produce throttle answer produce", State.ANSWERING, 0),
    ("produce answer produce throttle answer produce settle", State.READY, 2),
    ("produce answer produce throttle answer produce settle wait", State.HANDLING, 2),
    # A client that does not read waits with its next request, not with responses.
    ("hold ask", State.READY, 0),
    ("hold ask release", State.HANDLING, 0),
    ("ask answer hold settle ask", State.READY, 1),
    ("produce answer hold produce", State.PIPELINING, 0),
    # What the broker gives up ends at once, or after the responses that wait.
    ("end", State.CLOSED, 0),
    ("ask end", State.CLOSED, 0),
    ("ask end answer", State.CLOSED, 0),
    ("ask answer end", State.ENDING, 0),
    ("ask answer end ask settle", State.CLOSED, 1),
    ("produce answer end", State.ENDING, 0),
    ("produce answer end end produce settle", State.CLOSED, 1),
    ("produce answer produce end", State.ENDING, 0),
    ("produce answer produce end settle", State.CLOSED, 1),
    ("produce answer produce end answer", State.ENDING, 0),
    ("produce answer produce end answer settle", State.CLOSED, 2),
    ("produce answer produce throttle end answer settle", State.CLOSED, 2),
    ("garbage", State.CLOSED, 0),
    ("ask garbage", State.HANDLING, 0),
    ("ask garbage answer settle", State.CLOSED, 1),
    ("produce answer garbage", State.ENDING, 0),
    ("hold produce garbage", State.READY, 0),
    ("hold garbage", State.CLOSED, 0),
]


@pytest.mark.parametrize(("steps", "state", "responses"), PATHS)
def test_steps_lead_to_a_state(steps: str, state: State, responses: int) -> None:
    client = HeldClient()
    client.act(steps)
    assert (client.connection.state, len(client.sent)) == (state, responses)
    assert client.closed == client.connection.closed == (state is State.CLOSED)


@pytest.mark.parametrize(
    "steps", ["", "ask", "ask answer", "produce answer", "produce answer produce", "ask answer end", "end"]
)
def test_nothing_is_sent_or_closed_when_the_client_is_gone(steps: str) -> None:
    client = HeldClient()
    client.act(steps)
    was_closed = client.closed
    client.act("lose settle ask produce end settle")
    assert (client.connection.state, client.sent, client.closed) == (State.CLOSED, [], was_closed)


def test_the_steps_above_meet_every_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = NotingTable(NEXT)
    table.met = set()
    monkeypatch.setattr("broker_core.broker.connection.NEXT", table)
    for steps, *_ in PATHS:
        HeldClient().act(steps)
    # What is closed stays closed.
    assert {row for row in NEXT if row[0] is not State.CLOSED} <= table.met <= NEXT.keys()


def test_a_response_without_a_request_is_refused() -> None:
    client = HeldClient()
    with pytest.raises(KeyError):
        client.connection.finish(None)
    client.act("ask answer settle")
    assert (client.connection.state, len(client.sent)) == (State.READY, 1)
