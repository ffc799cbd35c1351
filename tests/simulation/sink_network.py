"""What the sink's processes get from a world: clock, randomness, process ids, and connections over simulated links.
The code above it is that of the sink in Spark; `SinkProcesses` supplies these objects.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from broker_core.broker.apis import SERVED
from spark_eos import failpoints
from spark_eos.client.transport import translate
from spark_eos.errors import UnansweredError as SinkUnansweredError
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import ProcessState, Runtime, shared_state
from spark_eos.sink.driver.committer import ComparedNames
from tests.simulation.client import Exchange, UnansweredError, Wire
from tests.simulation.fibers import Fiber
from tests.support.simulated.clock import START_MS
from tests.support.simulated.scheduler import US_PER_MS
from tests.support.simulated.server import PORT

if TYPE_CHECKING:
    from tests.simulation.world import World

_VERSIONS = BrokerVersionData(api_versions={key: (api.min_version, api.max_version) for key, api in SERVED.items()})
_US_PER_S = 1_000_000
_HELLO = 4


class Address(NamedTuple):
    """The address of a broker."""

    node_id: int | str
    host: str
    port: int


class Brokers:
    """The brokers, as in kafka-python's cluster metadata, as far as the client uses it."""

    def __init__(self, servers: Collection[str]) -> None:
        self._bootstrap = [
            Address(f"bootstrap-{index}", server.partition(":")[0], PORT) for index, server in enumerate(servers)
        ]
        self._known: dict[int | str, Address] = {}
        self.cluster_id: str | None = None

    def brokers(self) -> list[Address]:
        """List the brokers of the last metadata, or the bootstrap brokers."""
        return list(self._known.values()) or self.bootstrap_brokers()

    def bootstrap_brokers(self) -> list[Address]:
        """List the bootstrap brokers."""
        return list(self._bootstrap)

    def broker_metadata(self, node_id: int | str) -> Address | None:
        """Return a broker."""
        return self._known.get(node_id) or next((one for one in self._bootstrap if one.node_id == node_id), None)

    def update_metadata(self, response: Any) -> None:
        """Store the brokers of a metadata response."""
        found = {each.node_id: Address(each.node_id, each.host, each.port) for each in response.brokers}
        self._known = found or self._known
        self.cluster_id = response.cluster_id


class SimulatedTransport:
    """The network of one process of the sink."""

    def __init__(self, world: "World", options: ClientOptions, note_versions: Callable[[Any], None]) -> None:
        self.options = options
        self.closed = False
        self.cluster = Brokers(options.bootstrap_servers)
        self.broker_version_data = _VERSIONS
        self._note_versions = note_versions
        self._world = world
        self._host = self._fiber.host
        self._wires: dict[int, Wire] = {}
        self._waiting: Fiber | None = None

    @property
    def _fiber(self) -> Fiber:
        return self._world.fibers.current

    def start(self, node_id: int | str, request: Any, deadline: float) -> Exchange:
        """Start an exchange with one broker."""
        try:
            version = _VERSIONS.api_version(request)
        except Exception as error:
            refused = Exchange(None, 0)
            refused.fail(error)
            return refused
        address = self.cluster.broker_metadata(node_id)
        if address is None:
            unknown = Exchange(None, 0)
            unknown.fail(UnansweredError(f"broker {node_id} is not known"))
            return unknown
        broker_id = int(address.host.removeprefix("broker"))
        wire = self._wires.get(broker_id)
        if wire is None or not wire.is_open:
            wire = self._wires[broker_id] = Wire(self._world, self._host, broker_id)
            self._greet(wire)
        exchange = wire.send(request, version)
        exchange.change = partial(self._world.odd_answers.received, request, version)
        exchange.settled = self._wake_up
        limit_us = self._world.scheduler.now_us + self.options.request_timeout_ms * US_PER_MS
        self._world.scheduler.at(
            min(limit_us, max(int(deadline * _US_PER_S), self._world.scheduler.now_us + US_PER_MS)),
            lambda: self._time_out(broker_id, wire, exchange),
        )
        return exchange

    def _greet(self, wire: Wire) -> None:
        """Send ApiVersions, as every connection does first."""
        request = ApiVersionsRequest(client_software_name="sink", client_software_version="1")
        hello = wire.send(request, _HELLO)
        hello.change = partial(self._world.odd_answers.received, request, _HELLO)
        hello.answered = lambda: self._note_versions(hello.value)

    def _time_out(self, broker_id: int, wire: Wire, exchange: Exchange) -> None:
        if not exchange.is_done:
            if self._wires.get(broker_id) is wire:
                del self._wires[broker_id]
            wire.give_up(may_arrive=True)

    def _wake_up(self) -> None:
        fiber, self._waiting = self._waiting, None
        if fiber is not None:
            # Not at once: this may be called while another fiber runs.
            self._world.scheduler.after(0, fiber.resume)

    def _sleep_until(self, until_us: int) -> None:
        self._waiting = self._fiber
        self._fiber.sleep_until(until_us)
        self._waiting = None

    def poll(self, timeout_ms: float) -> None:
        """Wait for the first event, for at most the given time."""
        if timeout_ms > 0:
            self._sleep_until(self._now_us + int(timeout_ms * US_PER_MS) + 1)

    def wait(self, pending: Collection[Exchange], deadline: float) -> None:
        """Wait until every exchange is done or the deadline passes."""
        self._wait_for(lambda: all(each.is_done for each in pending), deadline)

    def wait_any(self, pending: Collection[Exchange], deadline: float) -> None:
        """Wait until one exchange is done or the deadline passes."""
        self._wait_for(lambda: not pending or any(each.is_done for each in pending), deadline)

    def _wait_for(self, is_met: Any, deadline: float) -> None:
        until_us = int(deadline * _US_PER_S) + 1
        while not is_met() and self._now_us < until_us:
            self._sleep_until(until_us)

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._world.fibers.sleep_ms(seconds * 1_000)

    @property
    def _now_us(self) -> int:
        return self._world.scheduler.now_us

    def outcome(self, exchange: Exchange, described: str) -> Any:
        """Return the response, or raise."""
        if not exchange.is_done:
            raise SinkUnansweredError(f"{described} was not answered in time")
        if exchange.exception is None:
            if isinstance(exchange.value, ApiVersionsResponse):
                # The response to an explicit request, not to the one that began the connection.
                self._note_versions(exchange.value)
            return exchange.value
        if isinstance(exchange.exception, UnansweredError):
            raise SinkUnansweredError(f"{described} got no answer: {exchange.exception}")
        raise translate(exchange.exception, described) from exchange.exception

    def any_node(self) -> int | str | None:
        """Choose a broker."""
        known = [each.node_id for each in self.cluster.brokers()]
        return self._world.scheduler.random.choice(known) if known else None

    def note_address(self, node_id: int, host: str, port: int) -> bool:
        """Do nothing: simulated brokers do not move."""
        return False

    def close_connection(self, node_id: int | str) -> None:
        """Keep the connection; the next request may use it."""

    def check_usable(self) -> None:
        """Do nothing: a transport of the simulation is always usable."""

    def close(self) -> None:
        """Close every connection."""
        self.closed = True
        for wire in self._wires.values():
            wire.give_up(may_arrive=True)
        self._wires.clear()


class SimulatedClock:
    """One monotonic clock, and a time of day for each machine."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def monotonic(self) -> float:
        """Return the world's time in seconds."""
        return self._world.scheduler.now_us / _US_PER_S

    def time_ns(self) -> int:
        """Return the time of the machine's clock."""
        offset_ms = self._world.fibers.current.clock_offset_ms
        return (START_MS + offset_ms) * 1_000_000 + self._world.scheduler.now_us * 1_000

    def sleep(self, seconds: float) -> None:
        """Let the fiber wait."""
        self._world.fibers.sleep_ms(seconds * 1_000)


class SimulatedRandomness:
    """The random choices of all processes of a world."""

    def __init__(self, source: Random) -> None:
        self._source = source
        self.uniform, self.choice, self.shuffle = source.uniform, source.choice, source.shuffle

    def token_hex(self, byte_count: int) -> str:
        """Return a token."""
        return self._source.randbytes(byte_count).hex()

    def generator(self) -> Random:
        """Return a generator of its own."""
        return Random(self._source.random())


class SimulatedProcess:
    """The process of the running fiber; Spark keeps its workers."""

    environ: Mapping[str, str] = {"SPARK_REUSE_WORKER": "1"}

    def __init__(self, world: "World") -> None:
        self._world = world

    def getpid(self) -> int:
        """Return the id of the process."""
        return self._world.fibers.current.process_id

    def abandon_in_children(self, resource: Any) -> None:
        """Do nothing: a world forks no process."""


def simulated_runtime(world: "World") -> Runtime:
    """Make the runtime of all processes of a world."""
    return Runtime(
        SimulatedClock(world),
        SimulatedRandomness(world.random_of("sink's chance")),
        SimulatedProcess(world),
        lambda options, _, note_versions: SimulatedTransport(world, options, note_versions),
    )


class SinkProcesses:
    """What each process of a world's sink keeps."""

    def __init__(self, world: "World") -> None:
        self._runtime = simulated_runtime(world)
        self._states: dict[int, ProcessState] = {}
        # The threads of a process share this part, and the worlds of this one have the same names.
        shared_state()._parts.pop(ComparedNames, None)

    @property
    def current(self) -> ProcessState:
        """Return the state of the running fiber's process."""
        return self._states.setdefault(self._runtime.process.getpid(), ProcessState(self._runtime))


@contextlib.contextmanager
def failpoints_of(world: "World") -> Iterator[None]:
    """Report to the world which failpoints the sink reaches."""
    real = failpoints.reach
    failpoints.reach = world.reach  # type: ignore[assignment]
    try:
        yield
    finally:
        failpoints.reach = real  # type: ignore[assignment]
