"""A plugin that runs tests in forked processes after one collection: `--forks 2`.

Each process of pytest-xdist imports and collects all tests itself, and sends every report through a protocol: for
10,000 tests of a millisecond that is a fifth of the processor time. Forked processes have the modules and tests of
their parent. They take one file after the other; the parent prints their reports. Only tests without threads of their
own in imported modules can be forked: unit tests.
"""

import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

# The number of a file in the pipe; a pipe of Linux has 64 KiB, so 16,000 of them wait in it at most.
_NUMBER_BYTES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the number of processes."""
    parser.addoption("--forks", type=int, default=1, metavar="COUNT", help="run the tests in COUNT forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in children and report them here."""
    count = session.config.getoption("--forks")
    if count < 2 or session.testsfailed or session.config.getoption("collectonly"):
        return None
    files: dict[object, list[pytest.Item]] = {}
    for item in session.items:
        files.setdefault(item.path, []).append(item)
    read, write = os.pipe()
    os.write(write, b"".join(number.to_bytes(_NUMBER_BYTES) for number in range(len(files))))
    os.close(write)
    children: dict[Connection, int] = {}
    for _ in range(count):
        receiver, sender = Pipe(duplex=False)
        child = os.fork()
        if not child:
            _run(session, list(files.values()), read, sender)
        sender.close()
        children[receiver] = child
    os.close(read)
    try:
        _report(session, children)
    finally:
        for child in children.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return True


def _report(session: pytest.Session, children: dict[Connection, int]) -> None:
    """Pass on what the children send until each has said that it is done."""
    hook, waiting = session.config.hook, dict.fromkeys(children, "its first test")
    while waiting:
        for connection in wait(list(waiting)):
            assert isinstance(connection, Connection)
            try:
                message: Any = connection.recv()
            except EOFError:
                raise session.Interrupted(f"a process ended in {waiting[connection]}") from None
            if message is None:
                del waiting[connection]
            elif isinstance(message, tuple):
                waiting[connection] = message[0]
                hook.pytest_runtest_logstart(nodeid=message[0], location=message[1])
            else:
                hook.pytest_runtest_logreport(
                    report=hook.pytest_report_from_serializable(config=session.config, data=message)
                )
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)


def _run(session: pytest.Session, files: list[list[pytest.Item]], read: int, sender: Connection) -> NoReturn:
    """Run tests in a child, one file after the other, until none is left."""
    try:
        plugins = session.config.pluginmanager
        # The parent prints. What tests print is kept in a file, which each process needs for itself.
        for name in ("terminalreporter", "first words of failures"):
            plugins.unregister(name=name)
        capture: Any = plugins.get_plugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        plugins.register(_Sender(session.config, sender))
        ahead = _items(files, read)
        item = next(ahead, None)
        while item is not None:
            after = next(ahead, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            item = after
        sender.send(None)
        # The parent ends this process: it would run what is meant for the end of the parent.
        signal.pause()
    finally:
        os._exit(1)


def _items(files: list[list[pytest.Item]], read: int) -> Iterator[pytest.Item]:
    while number := os.read(read, _NUMBER_BYTES):
        yield from files[int.from_bytes(number)]


class _Sender:
    """The plugin of a child that sends what happens to its parent."""

    def __init__(self, config: pytest.Config, sender: Connection) -> None:
        self._config, self._sender = config, sender

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._sender.send((nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._sender.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
