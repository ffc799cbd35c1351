"""The inspection of a broker's data folder: its files, what clients know, and the broker's last responses.

The broker opens a copy of the folder, because opening it repairs it.
"""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from broker_core.broker.cluster import Cluster
from broker_core.log.recovery_table import LogCondition
from broker_core.server.disk import open_data_folder
from tests.history.file_checks import (
    Partitions,
    aborted_rows,
    apart,
    batches_of,
    check_batches,
    check_history,
    check_indexes,
    check_markers,
)
from tests.history.log_files import BadFileError, partitions_of
from tests.history.reported_state import differences, reported_state
from tests.support.cluster_state import OpenCluster, check_marks, check_replay, state_of
from tests.support.direct import DirectClient, direct_cluster
from tests.support.history.format import Op

# A snapshot of an earlier start is removed. After a kill, recovery reads everything behind the last snapshot again.
_AFTER_A_STOP: Final = frozenset({LogCondition.SNAPSHOT_STRAY})
# An index whose first row was still in memory looks damaged; a later check compares the rebuilt rows.
_AFTER_A_KILL: Final = _AFTER_A_STOP | {
    LogCondition.SNAPSHOT_BEHIND,
    LogCondition.NO_SNAPSHOT,
    LogCondition.INDEX_DAMAGED,
}
# Files that can be rebuilt from the batches.
_DERIVED: Final = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-checkpoint")
# The cluster's own journal has the default interval.
_METADATA_INTERVAL_BYTES: Final = 4096
_MS_PER_S: Final = 1_000


@dataclass(frozen=True)
class LeftBehind:
    """A stopped broker's folder and the facts known about it.

    `answers` is what the process reported while it still ran, without open transactions; `restarts` is the number of
    its restarts; `cleanly` is whether it was stopped and not killed.
    """

    data: Path
    settings: Mapping[str, str]
    topics: Mapping[str, int]
    groups: tuple[str, ...]
    answers: Mapping[str, Any]
    ops: list[Op]
    restarts: int
    cleanly: bool


@dataclass
class _Server:
    """The server of a world: a cluster over a folder, in this process."""

    data: Path
    settings: Mapping[str, str]
    cluster: Cluster = field(init=False)
    is_running: bool = False
    _closing: ExitStack = field(init=False)

    def start(self) -> bool:
        """Open the folder."""
        self._closing = ExitStack()
        storage = open_data_folder(self.data, self._closing.callback)
        self.cluster = direct_cluster(storage, settings=dict(self.settings), now_ms=_now_ms())
        self.is_running = True
        return True

    def kill(self, *, power: bool) -> None:
        """Leave the folder as it is."""
        assert not power, "unsynced data cannot be removed from a real disk"
        self._closing.close()
        self.is_running = False

    def stop(self) -> None:
        """Close the logs cleanly."""
        self.cluster.close(_now_ms())
        self._closing.close()
        self.is_running = False


def inspect_folder(left: LeftBehind, scratch: Path) -> list[str]:
    """Return the problems of the folder; copies of it go to `scratch`."""
    try:
        found = partitions_of(left.data)
    except BadFileError as error:
        return [str(error)]
    problems = _check_files(found, left.ops, left.restarts)
    with _copy(left.data, scratch) as data:
        world = _world(left, data)
        world.server.start()
        intervals = dict.fromkeys(found, _METADATA_INTERVAL_BYTES)
        intervals |= {str(log.topic_partition): log.config.index_interval_bytes for log in _logs(world)}
        problems += _check_findings(world, cleanly=left.cleanly)
        problems += [*check_marks(world, at_rest=True), *_check_logs(world, found)]
        problems += differences(
            left.answers, reported_state(DirectClient(world.server.cluster).ask, left.topics, left.groups)
        )
        state = state_of(world)
        problems += check_replay(world)
        cast(_Server, world.server).stop()
        # A killed process had index rows in memory; recovery has rebuilt them.
        problems += check_indexes(found if left.cleanly else partitions_of(data), intervals)
    with _copy(left.data, scratch) as data:
        problems += _check_recomputation(left, data, state)
    return problems


def inspect_files(data: Path, ops: list[Op], restarts: int) -> list[str]:
    """Return the problems in the files of a broker that cannot be opened here: batches, markers, outcomes."""
    try:
        return _check_files(partitions_of(data), ops, restarts)
    except BadFileError as error:
        return [str(error)]


def _check_files(found: Partitions, ops: list[Op], restarts: int) -> list[str]:
    return [*check_batches(found), *check_markers(found, restarts), *check_history(ops, found)]


def _check_findings(world: OpenCluster, *, cleanly: bool) -> Iterator[str]:
    expected = _AFTER_A_STOP if cleanly else _AFTER_A_KILL
    for log in _logs(world):
        for finding in log.findings:
            if finding.condition not in expected:
                yield f"{log.topic_partition}: recovery found {finding}"


def _check_logs(world: OpenCluster, found: Partitions) -> Iterator[str]:
    """Compare the state of the opened logs with the batches in the files."""
    for log in _logs(world):
        name = str(log.topic_partition)
        batches = list(batches_of(found.get(name, ())))
        end = batches[-1].last_offset + 1 if batches else 0
        if log.log_end_offset != end:
            yield f"{name}: the log ends at {log.log_end_offset}, the batches at {end}"
        if log.producer_state.open_transactions:
            yield f"{name}: open at rest are {log.producer_state.open_transactions}"
        known = [tuple(row) for row in log.aborted_transactions()]
        expected = [tuple(row) for rows in aborted_rows(found.get(name, ())).values() for row in rows]
        if known != expected:
            yield f"{name}: aborted are {apart(known, expected)}"


def _check_recomputation(left: LeftBehind, data: Path, expected: Mapping[str, Any]) -> Iterator[str]:
    """Delete all files that can be rebuilt from the batches, and compare the rebuilt state."""
    for pattern in _DERIVED:
        for path in data.glob(f"*/{pattern}"):
            path.unlink()
    world = _world(left, data)
    world.server.start()
    for line in differences(expected, state_of(world)):
        yield f"from the batches alone: {line}"
    world.server.kill(power=False)


def _world(left: LeftBehind, data: Path) -> OpenCluster:
    """Return a world for the checks of the simulation."""
    return cast(
        OpenCluster,
        SimpleNamespace(
            server=_Server(data, left.settings),
            clock=SimpleNamespace(now_ms=_now_ms),
            plan=SimpleNamespace(groups=left.groups),
        ),
    )


def _logs(world: OpenCluster) -> list[Any]:
    logs = world.server.cluster.logs
    return [logs.get(each, _now_ms()) for each in logs.with_files()]


def _now_ms() -> int:
    return int(time.time() * _MS_PER_S)


@contextmanager
def _copy(data: Path, scratch: Path) -> Iterator[Path]:
    target = scratch / "opened"
    shutil.copytree(data, target)
    try:
        yield target
    finally:
        shutil.rmtree(target)
