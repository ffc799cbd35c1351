"""The embedded broker of asyncio programs: `EmbeddedBroker` with coroutines for its methods.

    from broker_core.aio import EmbeddedBroker

    async with EmbeddedBroker(topics={"orders": 1}) as kafka:
        await kafka.produce("orders", ["one", "two"])
        await kafka.wait_for_records("orders", 2)

Each public method of `broker_core.EmbeddedBroker`, and of the objects it returns, has a twin here, with the same name
and arguments. Twins that wait for the broker are coroutines, and so are such properties: `await kafka.topics`.
"""

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from broker_core import embedded
from broker_core.broker.monitoring.metrics import BrokerMetrics
from broker_core.server import cluster_controls
from broker_core.server.clock import monotonic_s
from broker_core.testing import groups
from broker_core.testing.pausing import INTERRUPTION, Interrupted
from broker_core.types import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
_Awaited = Coroutine[Any, Any, T]

_PAUSE_S = 0.01
# More calls than this wait for each other. Threads start as they are needed.
_MAX_CALLS = 1000


class _Threads:
    """The threads in which the calls of one broker run.

    They are not asyncio's own, whose number is small: a few waiting calls would leave none for the call they wait for.
    """

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function in a thread; if the caller is cancelled, its wait ends and with it the call."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="embedded-broker-call")
        interruption, context = threading.Event(), copy_context()
        context.run(INTERRUPTION.set, interruption)
        call = asyncio.get_running_loop().run_in_executor(
            self._executor, partial(context.run, function, *arguments, **named)
        )
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            interruption.set()
            # A call that does not wait completes: a broker is never left half started.
            await asyncio.wait([call])
            if not call.cancelled() and not isinstance(call.exception(), Interrupted | None):
                call.result()
            raise

    def close(self) -> None:
        """End the threads when their calls have ended; a later call has a new one."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None


class _Twin:
    """An object whose methods call the methods of a blocking object in threads."""

    def __init__(self, blocking: Any, threads: _Threads) -> None:
        self._blocking = blocking
        self._threads = threads


def _described(twin: Any, method: Callable[..., Any]) -> Any:
    """Return a twin with the name and the arguments of its method."""
    twin.__name__, twin.__qualname__ = method.__name__, method.__qualname__
    twin.__signature__ = inspect.signature(method)
    summary = (inspect.getdoc(method) or "").partition("\n\n")[0]
    twin.__doc__ = f"{summary}\n\nThe twin of `{method.__module__}.{method.__qualname__}`."
    return twin


def _coroutine(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the twin of a method that waits for the broker."""

    async def twin(self: _Twin, *arguments: P.args, **named: P.kwargs) -> T:
        return await self._threads.run(method, self._blocking, *arguments, **named)

    return _described(twin, method)  # type: ignore[no-any-return]


def _plain(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return the twin of a method that does not wait."""

    def twin(self: _Twin, *arguments: P.args, **named: P.kwargs) -> T:
        return method(self._blocking, *arguments, **named)

    return _described(twin, method)  # type: ignore[no-any-return]


def _value(of: Any) -> Any:
    """Return the twin of a property that does not wait."""
    return property(_plain(of.fget))


def _awaited(of: Any) -> Any:
    """Return the twin of a property that waits for the broker: await it."""
    return property(_coroutine(of.fget))


def _outage(
    method: Callable[Concatenate[Any, P], cluster_controls.Outage],
) -> Callable[Concatenate[Any, P], "Outage"]:
    """Return the twin of a method that begins an outage."""

    def twin(self: _Twin, *arguments: P.args, **named: P.kwargs) -> Outage:
        return Outage(partial(method, self._blocking, *arguments, **named), self._threads)

    return _described(twin, method)  # type: ignore[no-any-return]


class _Lasting:
    """The twin of what a call begins: `async with` it, or await it to begin and `end` to end it."""

    def __init__(self, begin: Callable[[], Any], threads: _Threads) -> None:
        self._begin = begin
        self._threads = threads
        self._begun: Any = None

    async def end(self) -> None:
        """End it; no effect if it has ended or not begun."""
        if self._begun is not None:
            await self._threads.run(self._begun.end)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        def begin() -> None:
            self._begun = self._begin()

        try:
            await self._threads.run(begin)
        except asyncio.CancelledError:
            # Without an `__aexit__` to end it.
            await self.end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()


class Outage(_Lasting):
    """The twin of `broker_core.Outage`."""


class Recording(_Lasting):
    """The twin of a recording."""


class BrokerHandle(_Twin):
    """The twin of `broker_core.BrokerHandle`."""

    stop = _coroutine(cluster_controls.BrokerHandle.stop)
    crash = _coroutine(cluster_controls.BrokerHandle.crash)
    start = _coroutine(cluster_controls.BrokerHandle.start)
    is_running: bool = _value(cluster_controls.BrokerHandle.is_running)


class ClockHandle(_Twin):
    """The twin of `broker_core.ClockHandle`."""

    now_ms = _plain(cluster_controls.ClockHandle.now_ms)
    advance = _coroutine(cluster_controls.ClockHandle.advance)


class Group(_Twin):
    """The twin of `broker_core.Group`; await its properties."""

    view = _coroutine(groups.Group.view)
    wait_stable = _coroutine(groups.Group.wait_stable)
    wait_caught_up = _coroutine(groups.Group.wait_caught_up)
    state: _Awaited[str] = _awaited(groups.Group.state)
    members: _Awaited[tuple[groups.GroupMember, ...]] = _awaited(groups.Group.members)
    committed: _Awaited[dict[TopicPartition, int]] = _awaited(groups.Group.committed)
    lag: _Awaited[dict[TopicPartition, int]] = _awaited(groups.Group.lag)
    total_lag: _Awaited[int] = _awaited(groups.Group.total_lag)

    @property
    def group_id(self) -> str:
        """The id of the group."""
        return str(self._blocking.group_id)


def _made_like(
    maker: Callable[P, Any],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Return a decorator that gives a constructor the arguments of another one."""

    def decorate(constructor: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        constructor.__signature__ = inspect.signature(maker)  # type: ignore[attr-defined]
        return constructor

    return decorate


class EmbeddedBroker(_Twin):
    """The twin of `broker_core.EmbeddedBroker`, with the same arguments, for `async with`.

    >>> import asyncio
    >>> async def main():
    ...     async with EmbeddedBroker(topics={"orders": 1}) as kafka:
    ...         await kafka.produce("orders", ["one", "two"])
    ...         return (await kafka.wait_for_records("orders", 2)).values
    >>> asyncio.run(main())
    [b'one', b'two']

    Calls run in threads, so the event loop goes on. A call that waits, such as `wait_for_records`, ends when its task
    is cancelled. `around` makes a twin of a broker that runs already. It needs asyncio, not trio.
    """

    @_made_like(embedded.EmbeddedBroker)
    def __init__(self, **arguments: Any) -> None:
        super().__init__(embedded.EmbeddedBroker(**arguments), _Threads())

    @classmethod
    def around(cls, broker: embedded.EmbeddedBroker) -> Self:
        """Return the twin of a broker, whose owner starts and closes it."""
        twin = cls.__new__(cls)
        _Twin.__init__(twin, broker, _Threads())
        return twin

    bootstrap = _plain(embedded.EmbeddedBroker.bootstrap)
    fault = _plain(embedded.EmbeddedBroker.fault)
    throttle = _plain(embedded.EmbeddedBroker.throttle)

    create_topic = _coroutine(embedded.EmbeddedBroker.create_topic)
    delete_topic = _coroutine(embedded.EmbeddedBroker.delete_topic)
    produce = _coroutine(embedded.EmbeddedBroker.produce)
    load = _coroutine(embedded.EmbeddedBroker.load)
    end_transaction = _coroutine(embedded.EmbeddedBroker.end_transaction)
    records = _coroutine(embedded.EmbeddedBroker.records)
    wait_for_records = _coroutine(embedded.EmbeddedBroker.wait_for_records)
    snapshot = _coroutine(embedded.EmbeddedBroker.snapshot)
    restore = _coroutine(embedded.EmbeddedBroker.restore)
    crash = _coroutine(embedded.EmbeddedBroker.crash)
    restart = _coroutine(embedded.EmbeddedBroker.restart)
    leader = _coroutine(embedded.EmbeddedBroker.leader)
    advertise = _coroutine(embedded.EmbeddedBroker.advertise)
    move_leader = _coroutine(embedded.EmbeddedBroker.move_leader)
    coordinator = _coroutine(embedded.EmbeddedBroker.coordinator)
    move_coordinator = _coroutine(embedded.EmbeddedBroker.move_coordinator)
    transaction = _coroutine(embedded.EmbeddedBroker.transaction)
    transactions = _coroutine(embedded.EmbeddedBroker.transactions)
    partition = _coroutine(embedded.EmbeddedBroker.partition)
    written_partitions = _coroutine(embedded.EmbeddedBroker.written_partitions)
    requests = _coroutine(embedded.EmbeddedBroker.requests)
    assert_quiescent = _coroutine(embedded.EmbeddedBroker.assert_quiescent)

    without_leader = _outage(embedded.EmbeddedBroker.without_leader)
    without_coordinator = _outage(embedded.EmbeddedBroker.without_coordinator)
    stale_broker = _outage(embedded.EmbeddedBroker.stale_broker)
    network = _outage(embedded.EmbeddedBroker.network)

    bootstrap_servers: str = _value(embedded.EmbeddedBroker.bootstrap_servers)
    client_settings: dict[str, str] = _value(embedded.EmbeddedBroker.client_settings)
    listeners: dict[str, str] = _value(embedded.EmbeddedBroker.listeners)
    broker_ids: range = _value(embedded.EmbeddedBroker.broker_ids)

    schema_registry_url: _Awaited[str] = _awaited(embedded.EmbeddedBroker.schema_registry_url)
    topics: _Awaited[dict[str, int]] = _awaited(embedded.EmbeddedBroker.topics)
    groups: _Awaited[list[str]] = _awaited(embedded.EmbeddedBroker.groups)
    metrics: _Awaited[BrokerMetrics] = _awaited(embedded.EmbeddedBroker.metrics)

    def recording(self, path: str | os.PathLike[str]) -> Recording:
        """Record requests and responses in a file, from `async with` on to `end()` or the end of its block."""
        return Recording(partial(self._blocking.recording, path), self._threads)

    async def start(self) -> Self:
        """Start the cluster, and return when clients can connect."""
        await self._threads.run(self._blocking.start)
        return self

    async def close(self) -> None:
        """Stop the cluster and close its logs cleanly; no effect when it is not running."""
        await self.__aexit__(None, None, None)

    @property
    def clock(self) -> ClockHandle:
        """The clock of a cluster with `clock="virtual"`; RuntimeError for any other."""
        return ClockHandle(self._blocking.clock, self._threads)

    def broker(self, broker_id: int) -> BrokerHandle:
        """Return one broker, to be stopped, crashed or started."""
        return BrokerHandle(self._blocking.broker(broker_id), self._threads)

    def group(self, group_id: str) -> Group:
        """Return a consumer group, with its members, committed offsets and lag; it need not exist yet."""
        return Group(self._blocking.group(group_id), self._threads)

    @staticmethod
    async def wait_for(condition: Callable[[], T | Awaitable[T]], timeout: float = 10) -> T:
        """Call or await `condition` until its result is true, and return the result.

        Raises AssertionError after `timeout` seconds.
        """
        end = monotonic_s() + timeout
        while True:
            result = condition()
            found: T = await result if inspect.isawaitable(result) else result
            if found:
                return found
            if monotonic_s() > end:
                raise AssertionError(f"condition not met within {timeout} s (last value: {found!r})")
            await asyncio.sleep(_PAUSE_S)

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except asyncio.CancelledError:
            # Without an `__aexit__` to close it.
            await self.close()
            raise

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self._threads.run(self._blocking.__exit__, *error)
        finally:
            self._threads.close()
