"""A thread that runs a server, and access to the server from other threads."""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

from broker_core.server.clock import monotonic_s
from broker_core.server.socket_server import SocketServer

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_AGAIN_S = 1


class _Loop(asyncio.SelectorEventLoop):
    """The loop of the thread, which depends neither on the policy nor on the frozen time of the program under test.

    The transports of uvloop, for example, are no `asyncio.Transport`.
    """

    def time(self) -> float:
        return monotonic_s()


class ServerThread:
    """The thread that runs a `SocketServer`, and access to the server from other threads.

    `make` creates the server in the thread, and `prepare` is called with it before `start` returns. `close` is called
    when the thread ends, after failures too. A start that takes longer than `patience_s` fails; None is no limit.
    """

    def __init__(
        self,
        make: Callable[[], SocketServer],
        prepare: Callable[[SocketServer], None],
        close: Callable[[], None],
        patience_s: float | None = 60,
    ) -> None:
        self._patience_s = patience_s
        self._make = make
        self._prepare = prepare
        self._close = close
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # Why the server has stopped by itself, or did not close its files.
        self.failure: BaseException | None = None
        self._has_run = False
        # The process with the thread, from its start to its end.
        self._process_id: int | None = None
        self._changes = threading.RLock()
        self.server: SocketServer | None = None
        # How often the server was asked for.
        self.uses = 0

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in the server's thread."""
        return threading.current_thread() is self._thread

    @property
    def is_elsewhere(self) -> bool:
        """Whether a fork has copied this object into another process, where the thread does not run."""
        return self._process_id not in (None, os.getpid())

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def act(self, action: Callable[[SocketServer], T]) -> T:
        """Run an action in the thread and settle the cluster; if called in that thread, only run the action."""
        if self.is_here:
            # The current step of the server settles the cluster at its end.
            return action(self.running())
        return self.wait_for(lambda server: _act_and_settle(server, action))

    def check_can_wait(self) -> None:
        """Raise RuntimeError in the server's thread, such as in the function of a fault: it would wait for itself."""
        if self.is_here:
            raise RuntimeError("the function of a fault cannot do this: it would wait for its own thread, the brokers'")

    def wait_for(self, task: Callable[[SocketServer], Awaitable[T]]) -> T:
        self.check_can_wait()
        server = self.running()
        assert self._loop is not None

        async def done() -> T:
            return await task(server)

        call = asyncio.run_coroutine_threadsafe(done(), self._loop)
        while True:
            try:
                return call.result(_LOOK_AGAIN_S)
            except CancelledError:
                break
            except TimeoutError:
                if call.done():
                    # The task's own.
                    return call.result()
                if self._loop.is_closed():
                    # It came too late to be begun or cancelled.
                    break
        raise RuntimeError("the broker was closed during the call")

    def changing(self) -> AbstractContextManager[object]:
        """Return a block for calls that start, stop or replace the cluster; only one thread is in such a block.

        In the server's own thread it does not wait: the thread that it would wait for may itself wait for the server.
        """
        self._check_process()
        return nullcontext() if self.is_here else self._changes

    def start(self) -> None:
        with self.changing():
            self._start()

    def _start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("this broker is already running; create another one")
        if self._has_run:
            raise RuntimeError("this broker has been closed; create another one, with its data_dir to keep the data")
        self._process_id = os.getpid()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="embedded-broker", daemon=True)
        self._thread.start()
        try:
            started.result(timeout=self._patience_s)
        except BaseException as error:
            self._give_up(started)
            self._thread.join()
            self._thread = self._process_id = None
            if started.cancelled() and isinstance(error, TimeoutError):
                raise TimeoutError(f"the broker has not started within {self._patience_s} s") from None
            raise
        self._has_run = True

    def _give_up(self, started: "Future[None]") -> None:
        """End a start that takes too long or was interrupted."""
        if not started.cancel() and self._loop is not None and self._stopping is not None:
            # It has just started, or failed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    def stop(self) -> None:
        """Stop the server and close its logs; no effect if it is not running, or runs in another process."""
        if self.is_elsewhere:
            return
        with self.changing():
            if self._thread is None or self._loop is None or self._stopping is None:
                return
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = self._process_id = None

    def running(self) -> SocketServer:
        """Return the server; raise RuntimeError if it is not running or has failed."""
        self._check_process()
        return self.known()

    def _check_process(self) -> None:
        """Raise RuntimeError in a process that was forked: a call would wait forever for the thread."""
        if self.is_elsewhere:
            raise RuntimeError(
                f"the broker runs in process {self._process_id}, which has forked this one: call its methods there; "
                "Kafka clients may connect from here"
            )

    def known(self) -> SocketServer:
        """Return the server, in a forked process as it was then; raise RuntimeError if it is not running."""
        self.uses += 1
        if self.failure is not None:
            raise RuntimeError(f"the broker has stopped: {self.failure}") from self.failure
        if self.server is None:
            raise RuntimeError("the broker is not running: use `with EmbeddedBroker() as kafka:` or call start()")
        return self.server

    def _run(self, started: "Future[None]") -> None:
        try:
            try:
                with asyncio.Runner(loop_factory=_Loop) as runner:
                    runner.run(self._serve(started))
            finally:
                self._close()
        except Exception as error:
            if not started.done():
                # No loop could be made, for example.
                started.set_exception(error)
            elif isinstance(error, OSError):
                log_unclean_close(error)
                self.failure = self.failure or error
            else:
                raise

    async def _serve(self, started: "Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = None
        try:
            server = self._make()
            await server.start()
            self._prepare(server)
            server.settle_cluster()
        except Exception as error:
            if server is not None:
                await server.stop()
            if started.set_running_or_notify_cancel():
                started.set_exception(error)
            return
        assert server.failure is not None
        if not started.set_running_or_notify_cancel():
            await server.stop()
            return
        server.failure.add_done_callback(self._fail)
        self.server = server
        started.set_result(None)
        await self._stopping.wait()
        self.server = None
        await server.stop()

    def _fail(self, failure: "asyncio.Future[None]") -> None:
        self.failure = failure.exception()
        self.server = None


def log_unclean_close(error: OSError) -> None:
    """Log why the files were not closed; for example, a test has already removed the folder."""
    logger.error("the files of the broker were not closed cleanly: %s; the next start recovers what is left", error)


async def _act_and_settle(server: SocketServer, action: Callable[[SocketServer], T]) -> T:
    try:
        return action(server)
    finally:
        # Also after an error: batches appended before it must become durable, and their responses must be sent.
        server.settle_cluster()
