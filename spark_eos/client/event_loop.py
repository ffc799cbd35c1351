"""kafka-python's event loop, with less work for each request.

For a request and its response `NetworkSelector` needs five iterations and a dozen system calls: it is woken by a byte,
writes in a task that waits until the socket is writable, and registers the socket again for each read. A client sends
requests rarely, when little of this code is in the CPU caches, so an iteration takes several times as long as in a
tight loop. Here a request is written where it is sent, and a socket stays registered for reading: one iteration.
"""

import contextlib
import functools
import heapq
import selectors
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import kafka.errors as kafka_errors
from kafka.net import selector as kafka_selector
from kafka.net.selector import KernelEvent, NetworkSelector, TaskState

if TYPE_CHECKING:
    from kafka.net.transport import KafkaTCPTransport

_FEW_TIMERS: Final = 64


class EventLoop(NetworkSelector):  # type: ignore[misc]
    """An event loop that drops timers without a search, and keeps a socket registered between two reads.

    Each request has a timer, and nearly all of them are cancelled. With hundreds of requests in flight, finding each
    timer in the heap takes quadratic time.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._scheduled: list[tuple[float, Any]] = []
        self._cancelled_timers = 0
        # The sockets that have been waited for, as far as they are still in use.
        self.awaited: weakref.WeakSet[Any] = weakref.WeakSet()

    def wait_write(self, fileobj: Any, timeout_at: float | None = None) -> Any:
        """Wait until a socket is connected or can be written to, and remember it.

        kafka-python forgets a socket whose connection takes too long, without closing it.
        """
        self.awaited.add(fileobj)
        return super().wait_write(fileobj, timeout_at=timeout_at)

    def wakeup(self) -> None:
        """Do nothing: a client belongs to one thread, so no other thread waits in this loop."""

    def _wait_registered(self) -> None:
        self._current.state = TaskState.WAIT_IO

    def _unschedule(self, task: Any) -> None:
        task.scheduled_at = None
        task.state = TaskState.UNSCHEDULED
        self._cancelled_timers += 1
        if self._cancelled_timers > max(_FEW_TIMERS, len(self._scheduled) // 2):
            self._scheduled = [entry for entry in self._scheduled if _is_wanted(entry)]
            heapq.heapify(self._scheduled)
            self._cancelled_timers = 0

    def _schedule_tasks(self) -> None:
        self._drop_cancelled()
        while self._scheduled and self._scheduled[0][0] <= _monotonic():
            _, task = heapq.heappop(self._scheduled)
            task.scheduled_at = None
            self._add_ready_task(task)
            self._drop_cancelled()

    def _next_scheduled_timeout(self, now: float) -> float | None:
        self._drop_cancelled()
        return self._scheduled[0][0] - now if self._scheduled else None

    def _drop_cancelled(self) -> None:
        while self._scheduled and not _is_wanted(self._scheduled[0]):
            heapq.heappop(self._scheduled)
            self._cancelled_timers -= 1


def _monotonic() -> float:
    """Return the time of the clock of kafka-python's loop, which cannot be replaced."""
    now: float = kafka_selector.time.monotonic()
    return now


def _is_wanted(entry: tuple[float, Any]) -> bool:
    when, task = entry
    return bool(task.scheduled_at == when)


def write_directly(transport: "KafkaTCPTransport") -> None:
    """Make a TCP transport write at once, and read without registering its socket for each response."""
    transport.write = functools.partial(_write, transport, transport.write)
    transport._read_from_sock = functools.partial(_read, transport)


def _write(transport: "KafkaTCPTransport", write_later: Callable[[Any], None], data: bytes) -> None:
    """Write what the socket accepts now; the transport's own task handles the rest, and errors."""
    if transport._writing or not transport._write or transport._closed:
        write_later(data)
        return
    sent_bytes = 0
    # TLS that has to read first is an OSError too.
    with contextlib.suppress(OSError):
        sent_bytes = transport._sock.send(data)
    if sent_bytes < len(data):
        write_later(memoryview(data)[sent_bytes:])
    else:
        transport.last_write = _monotonic()


async def _read(transport: "KafkaTCPTransport") -> None:
    net, sock = transport._net, transport._sock
    net.register_event(sock, selectors.EVENT_READ, net._current)
    try:
        while transport._read and not transport._closed:
            await KernelEvent("_wait_registered")
            received, error = transport._sock_recv()
            transport.last_read = _monotonic()
            try:
                if error is None:
                    transport._protocol.data_received(received)
            except kafka_errors.KafkaProtocolError as trouble:
                error = trouble
            if error is not None:
                transport.abort(error)
    finally:
        net.unregister_event(sock, selectors.EVENT_READ)
