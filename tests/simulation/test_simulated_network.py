"""Links keep TCP's guarantees and no others; the scheduler and the fibers keep time."""

from random import Random
from typing import Any

import pytest

from broker_core.broker.apis import SERVED
from broker_core.config import BrokerConfig
from broker_core.simulation.entropy import SeededEntropy
from broker_core.types import TRANSACTION_STATE_TOPIC
from broker_core.wire import messages as m
from tests.simulation.fibers import Fibers
from tests.support.simulated.clock import SimulatedClock
from tests.support.simulated.disk import SimulatedDisk
from tests.support.simulated.faults import FaultCounts, FaultKind, NetworkConditions
from tests.support.simulated.network import Link, SimulatedNetwork
from tests.support.simulated.scheduler import US_PER_MS, Scheduler
from tests.support.simulated.server import SimulatedServer

_SECOND_US = 1_000_000


class End:
    """A client's end that records what it receives."""

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False

    def received(self, data: bytes) -> None:
        self.data += data

    def lost(self) -> None:
        self.is_lost = True


def _frame(request: Any, version: int, correlation_id: int) -> bytes:
    request.API_VERSION = version
    request.with_header(correlation_id, "client")
    return bytes(request.encode(header=True, framed=True))


class Small:
    """A server, its network and one client's link."""

    def __init__(self, conditions: NetworkConditions | None = None, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.faults = FaultCounts()
        self.network = SimulatedNetwork(self.scheduler, self.faults)
        self.clock = SimulatedClock(self.scheduler)
        self.server = SimulatedServer(
            network=self.network,
            disk=SimulatedDisk(Random(seed), self.faults),
            entropy=SeededEntropy(seed),
            clock=self.clock,
            config=BrokerConfig().override({"transaction.state.log.num.partitions": "1"}),
            broker_count=2,
        )
        assert self.server.start()
        self.network.conditions = conditions or NetworkConditions()
        self.end = End()
        self.link = self.network.connect("client", 1, self.end)

    def ask(self, correlation_id: int, asked: object = None) -> None:
        request = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")
        self.link.send(_frame(request, 3, correlation_id), asked)

    def coordinator(self) -> int:
        """Return the broker that coordinates the transactional ids, which all belong to one partition."""
        state = self.server.cluster.controller.coordinator_partition_of(TRANSACTION_STATE_TOPIC, "id")
        return self.server.cluster.metadata.leadership(state).leader

    def epochs(self) -> dict[str, int]:
        """Return the epoch of each transactional id: 0 after one InitProducerId, 1 after two."""
        return {
            name: image.producer_epoch
            for broker in self.server.cluster.brokers.values()
            for name, image in broker.transactions.images().items()
        }

    def initialise(self, transactional_id: str, latency_us: int, asked: object) -> Link:
        """Send InitProducerId on its own connection, which takes the given time."""
        self.network.conditions = NetworkConditions(latency_us=(latency_us, latency_us))
        link = self.network.connect("client", self.coordinator(), End())
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        link.send(_frame(request, 4, 1), asked)
        return link

    def answers(self) -> list[int]:
        """Return the correlation ids of the responses so far."""
        found, data = [], self.end.data
        while len(data) >= 8 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
            found.append(int.from_bytes(data[4:8], "big"))
            data = data[4 + int.from_bytes(data[:4], "big") :]
        return found

    def pass_s(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now_us + int(seconds * _SECOND_US))


def test_responses_arrive_in_order_for_any_delay_and_split() -> None:
    small = Small(NetworkConditions(slow_chance=0.5, fragment_chance=0.5))
    for correlation_id in range(20):
        small.ask(correlation_id)
    small.pass_s(200)
    assert small.answers() == list(range(20))
    assert small.faults.by_kind[FaultKind.DELAYED] > 0
    assert small.faults.by_kind[FaultKind.FRAGMENTED] > 0


def test_network_partition_delays_and_releases_in_order() -> None:
    small = Small()
    small.network.cut("client")
    small.ask(1)
    small.ask(2)
    small.pass_s(5)
    assert small.answers() == []
    small.network.heal("client")
    small.pass_s(1)
    assert small.answers() == [1, 2]


@pytest.mark.parametrize("may_arrive", [True, False])
def test_request_may_arrive_after_its_client_gave_up(may_arrive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[int] = []
    small = Small()
    received = small.server.received
    monkeypatch.setattr(small.server, "received", lambda *args: (handled.append(1), received(*args)))
    small.network.cut("client")
    small.ask(1)
    small.pass_s(2)
    small.link.give_up(may_arrive=may_arrive)
    small.network.heal("client")
    small.pass_s(2)
    assert len(handled) == may_arrive
    assert small.faults.by_kind[FaultKind.LATE_REQUEST] == may_arrive
    assert small.end.data == b"", "its response has no connection to return on"


def test_request_sent_again_is_handled_twice() -> None:
    small = Small()
    small.initialise("id", _SECOND_US, asked=1).give_up(may_arrive=True)
    small.initialise("id", 1_000, asked=1)
    small.pass_s(0.5)
    assert small.epochs() == {"id": 0}
    assert small.faults.by_kind[FaultKind.DUPLICATED] == 0
    small.pass_s(2)
    assert small.epochs() == {"id": 1}
    assert small.faults.by_kind[FaultKind.DUPLICATED] == 1
    assert small.faults.by_kind[FaultKind.LATE_REQUEST] == 1
    assert small.faults.by_kind[FaultKind.REORDERED] == 0, "a retransmission does not count as reordered"


def test_requests_on_two_connections_may_be_reordered() -> None:
    small = Small()
    small.initialise("first", _SECOND_US, asked=1)
    small.initialise("second", 1_000, asked=2)
    small.pass_s(0.5)
    assert small.epochs() == {"second": 0}
    assert small.faults.by_kind[FaultKind.REORDERED] == 0
    small.pass_s(2)
    assert small.epochs() == {"first": 0, "second": 0}
    assert small.faults.by_kind[FaultKind.REORDERED] == 1
    assert small.faults.by_kind[FaultKind.DUPLICATED] == 0


def test_ordered_and_read_only_requests_are_not_counted_as_faults() -> None:
    small = Small()
    small.initialise("first", 1_000, asked=1)
    small.pass_s(1)
    small.initialise("second", 1_000, asked=2)
    small.ask(1, asked=3)
    small.ask(2, asked=3)
    small.pass_s(1)
    assert small.epochs() == {"first": 0, "second": 0}
    assert small.answers() == [1, 2]
    assert small.faults.by_kind[FaultKind.REORDERED] == small.faults.by_kind[FaultKind.DUPLICATED] == 0


def test_request_handled_by_a_paused_cluster_after_its_client_gave_up_is_late() -> None:
    small = Small()
    small.server.pause(3 * _SECOND_US)
    small.ask(1)
    small.pass_s(1)
    small.link.give_up(may_arrive=True)
    assert small.faults.by_kind[FaultKind.LATE_REQUEST] == 0
    small.pass_s(3)
    assert small.faults.by_kind[FaultKind.LATE_REQUEST] == 1


@pytest.mark.parametrize(
    ("conditions", "fault"),
    [
        (NetworkConditions(lose_request_chance=1.0), FaultKind.REQUEST_LOST),
        (NetworkConditions(lose_answer_chance=1.0), FaultKind.ANSWER_LOST),
    ],
)
def test_lost_message_breaks_the_connection(conditions: NetworkConditions, fault: FaultKind) -> None:
    small = Small(conditions)
    small.ask(1)
    small.pass_s(1)
    assert small.answers() == []
    assert small.end.is_lost
    assert small.faults.by_kind[fault] == 1


def test_stopped_broker_does_not_respond() -> None:
    small = Small()
    small.server.take_down(1)
    small.pass_s(1)
    assert small.end.is_lost
    other = End()
    small.network.connect("client", 1, other)
    small.pass_s(1)
    assert other.is_lost
    assert small.faults.by_kind[FaultKind.REFUSED] == 1


def test_paused_cluster_responds_afterwards() -> None:
    small = Small()
    small.server.pause(3 * _SECOND_US)
    small.ask(1)
    small.pass_s(2)
    assert small.answers() == []
    small.pass_s(2)
    assert small.answers() == [1]


def test_exception_in_the_broker_is_not_a_full_disk() -> None:
    small = Small()
    small.server.act(lambda _cluster: 1 / 0)  # type: ignore[arg-type,return-value]
    assert not small.server.is_running
    assert [type(error) for error in small.server.bugs] == [ZeroDivisionError]


def test_clock_jump_moves_its_deadlines() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler)
    due_ms = clock.now_ms() + 10_000
    assert clock.when_us(due_ms) == 10 * _SECOND_US
    clock.jump(4_000)
    assert clock.when_us(due_ms) == 6 * _SECOND_US


def test_events_run_in_order_of_time_then_of_creation() -> None:
    scheduler = Scheduler(1)
    seen: list[Any] = []
    scheduler.at(20, lambda: seen.append("late"))
    scheduler.at(10, lambda: seen.append("first"))
    scheduler.at(10, lambda: seen.append("second"))
    scheduler.at(15, lambda: seen.append("never")).cancel()
    scheduler.run(30)
    assert seen == ["first", "second", "late"]
    assert scheduler.now_us == 30


def test_fibers_alternate_sleep_pause_and_end() -> None:
    scheduler = Scheduler(1)
    fibers = Fibers(scheduler)
    seen: list[str] = []

    def work(name: str) -> None:
        for step in range(3):
            seen.append(f"{name}{step}")
            fibers.sleep_ms(10)

    a, b = fibers.spawn("a", lambda: work("a")), fibers.spawn("b", lambda: work("b"))
    scheduler.run(15 * US_PER_MS)
    assert seen == ["a0", "b0", "a1", "b1"]
    a.pause()
    b.kill()
    scheduler.run(100 * US_PER_MS)
    assert seen == ["a0", "b0", "a1", "b1"]
    assert (a.is_done, b.is_done) == (False, True)
    a.go_on()
    scheduler.run(200 * US_PER_MS)
    assert seen[-1] == "a2"
    assert a.is_done
    assert fibers.failures == []


def test_failing_fiber_is_reported() -> None:
    fibers = Fibers(Scheduler(1))
    fibers.spawn("a", lambda: 1 / 0)
    fibers.scheduler.run(1)
    [(name, error)] = fibers.failures
    assert (name, type(error)) == ("a", ZeroDivisionError)


def test_every_response_can_be_decoded_by_a_client() -> None:
    small = Small()
    small.ask(7)
    small.pass_s(1)
    answer = SERVED[m.ApiVersionsRequest.API_KEY].response.decode(small.end.data, version=3, header=True, framed=True)
    assert answer.error_code == 0
