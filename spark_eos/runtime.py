"""The ports to the outside: clock, randomness, process, transport; and the state that a process keeps.

A `Runtime` is passed to the code that needs it: Kafka clients have one, a cluster has its client's, and the parts of
the sink and the source have their cluster's. So a simulated process sees simulated time and connections, and nothing
has to be patched.
"""

import os
import random
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from spark_eos.options.client import ClientOptions

Item = TypeVar("Item")
Part = TypeVar("Part")


class Clock(Protocol):
    """The clocks of a machine; reading one is cheap."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back; for durations and deadlines."""

    def time_ns(self) -> int:
        """Return nanoseconds since 1970 by the machine's clock; for values that are stored or compared with brokers."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class Randomness(Protocol):
    """Random choices, and unique names."""

    def uniform(self, low: float, high: float) -> float:
        """Return a number between two."""

    def choice(self, items: Sequence[Item]) -> Item:
        """Return one of some items."""

    def shuffle(self, items: list[Any]) -> None:
        """Shuffle items in place."""

    def token_hex(self, byte_count: int) -> str:
        """Return a token as hexadecimal digits, two for each byte."""

    def generator(self) -> random.Random:
        """Return a separate generator, for code that draws often."""


class Abandonable(Protocol):
    """A resource that a forked child inherits and must release without disturbing its parent."""

    def abandon(self) -> None:
        """Release it in the child."""


class Process(Protocol):
    """The process that a piece of code runs in."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the environment variables."""

    def getpid(self) -> int:
        """Return the process id; a forked child has a different one."""

    def abandon_in_children(self, resource: Abandonable) -> None:
        """Abandon a resource in every child that is forked from now on, without keeping it alive."""


class Pending(Protocol):
    """A pending request; kafka-python's Future is one."""

    is_done: bool
    value: Any
    exception: BaseException | None


class KafkaTransport(Protocol):
    """The connections of one client: requests to brokers by node id, and the loop that drives them."""

    @property
    def cluster(self) -> Any:
        """Return kafka-python's view of the brokers."""

    @property
    def broker_version_data(self) -> Any:
        """Return the API versions of the first broker that responded, or None before that."""

    def start(self, node_id: int | str, request: Any, deadline: float) -> Pending:
        """Send a request to one broker; poll until it is done, then get its `outcome`."""

    def poll(self, timeout_ms: float) -> None:
        """Process what is ready; wait at most `timeout_ms` for the first event."""

    def wait(self, pending: Sequence[Any], deadline: float) -> None:
        """Run the loop until every request is done or the deadline passes."""

    def wait_any(self, pending: Sequence[Any], deadline: float) -> None:
        """Run the loop until one request is done or the deadline passes."""

    def pause(self, seconds: float) -> None:
        """Run the loop for some time, as a back-off that keeps connections alive."""

    def outcome(self, pending: Any, described: str) -> Any:
        """Return the response, or raise an `EosKafkaError`."""

    def any_node(self) -> int | str | None:
        """Return the least busy broker that is not failing, or None if there is none."""

    def note_address(self, node_id: int, host: str, port: int) -> bool:
        """Use this address for a broker from now on; return whether it is new."""

    def close_connection(self, node_id: int | str) -> None:
        """Close the connection to one broker, so that the next request opens another."""

    def check_usable(self) -> None:
        """Raise if the client is closed, or used in a process that did not open it."""

    def close(self) -> None:
        """Close every connection; safe to call twice, and in a forked child."""


# Opens connections; the last argument is called with the response to each ApiVersions request.
OpenTransport = Callable[[ClientOptions, "Runtime", Callable[[Any], None]], KafkaTransport]


@dataclass(frozen=True, slots=True)
class Runtime:
    """The outside of one process; without `open_transport` clients connect with sockets."""

    clock: Clock
    random: Randomness
    process: Process
    open_transport: OpenTransport | None = None


class RealClock:
    """The clocks of this machine."""

    monotonic = staticmethod(time.monotonic)
    time_ns = staticmethod(time.time_ns)
    sleep = staticmethod(time.sleep)


class RealRandomness:
    """The system's generator: a job may seed Python's own, and expect its sequence to be its alone."""

    _system = random.SystemRandom()
    uniform = staticmethod(_system.uniform)
    choice = staticmethod(_system.choice)
    shuffle = staticmethod(_system.shuffle)
    token_hex = staticmethod(secrets.token_hex)
    generator = staticmethod(random.Random)


class RealProcess:
    """This process."""

    environ = os.environ
    getpid = staticmethod(os.getpid)

    def __init__(self) -> None:
        self._inherited: weakref.WeakSet[Abandonable] = weakref.WeakSet()
        self._is_hooked = False

    def abandon_in_children(self, resource: Abandonable) -> None:
        """Abandon a resource in every child that is forked from now on, without keeping it alive."""
        if not self._is_hooked:
            os.register_at_fork(after_in_child=self._abandon_all)
            self._is_hooked = True
        self._inherited.add(resource)

    def _abandon_all(self) -> None:
        for resource in list(self._inherited):
            resource.abandon()
        self._inherited.clear()


REAL: Final = Runtime(RealClock(), RealRandomness(), RealProcess())


def now_ms(clock: Clock) -> int:
    """Return the time of day in milliseconds since 1970."""
    return clock.time_ns() // 1_000_000


@dataclass(slots=True)
class ProcessState:
    """The state that a process keeps between tasks and micro-batches: clients, pools, what runs have learned.

    Each package keeps its part, of its own type, which is created with the runtime.
    """

    runtime: Runtime
    _parts: dict[Any, Any] = field(default_factory=dict)

    def part(self, kind: Callable[[Runtime], Part]) -> Part:
        """Return the part of a type, created if there is none."""
        found: Part | None = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self.runtime)
        return found

    def is_first(self, key: Hashable) -> bool:
        """Return whether no call had this key before: for what a process logs once."""
        is_new, self._parts[key] = key not in self._parts, True
        return is_new


# By process: a forked child inherits its parent's state and does not use it.
_states: Final[dict[int, ProcessState]] = {}


class _Lease(threading.local):
    """The state that a thread uses instead of its process's, if any."""

    state: ProcessState | None = None


_lease: Final = _Lease()
# By process, as above: the leased states that no thread uses at the moment, with the key of their last lease.
_idle: Final[dict[int, list[tuple[object, ProcessState]]]] = {}
_idle_lock: Final = threading.Lock()


@contextmanager
def exclusive_state(key: object) -> Iterator[None]:
    """Give this thread a state that no other thread uses meanwhile: clients serve one thread at a time.

    Preferred is the state that was last used with the same key, which knows its runs. There are never more states than
    threads that used one at the same time.
    """
    idle = _idle.setdefault(REAL.process.getpid(), [])
    with _idle_lock:
        place = next((place for place in reversed(range(len(idle))) if idle[place][0] == key), -1)
        state = idle.pop(place)[1] if idle else ProcessState(REAL)
    outer, _lease.state = _lease.state, state
    try:
        yield
    finally:
        _lease.state = outer
        with _idle_lock:
            idle.append((key, state))


def process_state() -> ProcessState:
    """Return the state of this process, or this thread's own."""
    return _lease.state or shared_state()


def shared_state() -> ProcessState:
    """Return the state of this process, for what all of its threads share."""
    process_id = REAL.process.getpid()
    if process_id not in _states:
        _states[process_id] = ProcessState(REAL)
    return _states[process_id]
