"""The Unix socket where processes of one driver find their exporter, and what they send to it.

It is in a folder that only their user can open. Each connection carries one JSON document, and one as its answer.
"""

import json
import os
import socket
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from spark_eos.metrics import Changes, Gauge, Labels
from spark_eos.metrics_export.driver_process import DriverProcess, is_alive
from spark_eos.options.metrics import MetricsTargets

_SUFFIX: Final = ".sock"
# The path of a socket may have about a hundred bytes, and temporary folders of YARN have longer names.
_LONGEST_PATH: Final = 100
_LONGEST_NAME: Final = 45


def folder() -> Path:
    """Return the folder of this user's exporters, created if there is none; raise OSError if another user owns it."""
    name = f"eos-kafka-{os.getuid()}"
    places = [Path(tempfile.gettempdir()) / name, Path("/tmp") / name]
    path = next(each for each in (*places, places[-1]) if len(str(each)) + _LONGEST_NAME <= _LONGEST_PATH)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is no folder that only the user {os.getuid()} can open")
    return path


def socket_path(driver: DriverProcess) -> Path:
    return folder() / f"{driver.process_id}-{driver.started}{_SUFFIX}"


def connect(driver: DriverProcess, timeout_s: float) -> socket.socket:
    """Connect to the exporter; raise OSError if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(socket_path(driver)))
    except BaseException:
        connection.close()
        raise
    return connection


class MeetingPlace:
    """The listening socket of an exporter, which one exporter of a driver has at a time."""

    def __init__(self, driver: DriverProcess) -> None:
        """Listen; raise FileExistsError if the driver has an exporter."""
        self._path = socket_path(driver)
        own = self._path.with_name(f"{os.getpid()}.new")
        with suppress(FileNotFoundError):
            own.unlink()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(own))
        self.listener.listen(128)
        self._inode = own.lstat().st_ino
        try:
            # Links are created once; a name that is bound could have been unbound in between.
            os.link(own, self._path)
        except FileExistsError:
            if self._answers(driver):
                self.listener.close()
                raise
            # An exporter was killed.
            os.replace(own, self._path)
        finally:
            with suppress(FileNotFoundError):
                own.unlink()
        _sweep(self._path.parent)

    @property
    def is_mine(self) -> bool:
        """Return whether processes of the driver find this exporter here."""
        try:
            return self._path.lstat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        if self.is_mine:
            self._path.unlink(missing_ok=True)
        self.listener.close()

    def _answers(self, driver: DriverProcess) -> bool:
        try:
            connect(driver, 5.0).close()
        except OSError:
            return False
        return True


def _sweep(path: Path) -> None:
    """Remove the sockets of exporters that were killed, and whose drivers have ended."""
    for each in path.glob(f"*{_SUFFIX}"):
        process_id, _, started = each.name.removesuffix(_SUFFIX).partition("-")
        if process_id.isdigit() and not is_alive(DriverProcess(int(process_id), started)):
            each.unlink(missing_ok=True)


def encode_changes(targets: Sequence[MetricsTargets], changes: Mapping[str, Changes]) -> bytes:
    """Encode the changes of each prefix, and where all metrics go."""
    return json.dumps(
        {
            "targets": targets,
            "changes": {
                prefix: {
                    "counters": list(each.counters.items()),
                    "gauges": [
                        (subject, {name: list(gauge.items()) for name, gauge in gauges.items()})
                        for subject, gauges in each.gauges.items()
                    ],
                    "reports": each.reports,
                }
                for prefix, each in changes.items()
                if each
            },
        }
    ).encode()


def decode_changes(encoded: bytes) -> tuple[list[MetricsTargets], dict[str, Changes]]:
    message = json.loads(encoded)
    return [MetricsTargets(*each) for each in message["targets"]], {
        prefix: Changes(
            {_labels(subject): counters for subject, counters in each["counters"]},
            {
                _labels(subject): {name: _gauge(values) for name, values in gauges.items()}
                for subject, gauges in each["gauges"]
            },
            each["reports"],
        )
        for prefix, each in message["changes"].items()
    }


def receive(connection: socket.socket) -> bytes:
    """Read until the other side has sent everything."""
    with connection.makefile("rb") as sent:
        return sent.read()


def _labels(pairs: Sequence[Sequence[str]]) -> Labels:
    return tuple((name, value) for name, value in pairs)


def _gauge(values: Sequence[Any]) -> Gauge:
    return {_labels(labels): value for labels, value in values}
