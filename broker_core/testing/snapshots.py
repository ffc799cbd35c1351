"""Snapshots of a cluster's files, which a test restores or starts from."""

import os
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from broker_core.broker.cluster import Cluster, MetadataLoad
from broker_core.broker.journals import MetadataLog
from broker_core.broker.log_manager import LogManager
from broker_core.broker.restoring import RestoredMetadata
from broker_core.broker.stale_broker import copy_storage
from broker_core.errors import ConfigError
from broker_core.log.recovery import lacks_log
from broker_core.log.write_ahead import WRITE_AHEAD_FILE, WriteAheadStorage
from broker_core.ports import Storage
from broker_core.server.disk import DiskStorage
from broker_core.server.socket_server import SocketServer
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import CLUSTER_METADATA_TOPIC, counted

# The settings of a git repository around a saved folder do not apply to it.
_FOR_GIT: Final = {
    ".gitignore": "# Also the logs, which another .gitignore may exclude with *.log\n!*\n",
    ".gitattributes": "# Without conversion of line ends\n* -text\n",
}
_GIT_LFS_POINTER: Final = b"version https://git-lfs.github.com/"


class Snapshot:
    """All that a cluster had stored at one moment: topics, records, transactions, offsets, users and ACLs.

    `EmbeddedBroker.snapshot` takes one. It does not change, and can be restored any number of times.
    """

    def __init__(self, files: MemoryStorage) -> None:
        # Shared with storages, so they must not change any more.
        self._files = files
        self._metadata: RestoredMetadata | None = None

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> "Snapshot":
        """Return the content of a `data_dir` that no broker uses, or of a folder written by `save`.

        Raises `ConfigError` if the folder does not exist, is used by a broker, has no data of one, lacks log files, or
        has pointers of Git LFS in their place.
        """
        if not Path(folder).is_dir():
            raise ConfigError(f"{folder} is not a folder: expected a data_dir, or a folder written by Snapshot.save")
        # A broker that was killed at its start may have the second one only.
        if not any((Path(folder) / name).exists() for name in (f"{CLUSTER_METADATA_TOPIC}-0", WRITE_AHEAD_FILE)):
            raise ConfigError(
                f"{folder} has no {CLUSTER_METADATA_TOPIC}-0, so it is no data of a broker: expected a data_dir, or a "
                "folder written by Snapshot.save"
            )
        with closing(DiskStorage(folder)) as disk:
            # A broker writes its files one after the other, so that a copy could have one without the other.
            disk.lock_to_read()
            files = in_memory(disk)
        _check_logs(folder, files)
        for name in _FOR_GIT:
            files.delete(name)
        # A broker that was killed has left one; the folder stays as it is.
        WriteAheadStorage(files).close()
        return cls(files)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the snapshot to a new or empty folder, which `data_dir`, `copy_of` and `read` accept.

        For git the folder also gets a `.gitignore` that includes all of its files, because many repositories exclude
        `*.log`, and a `.gitattributes` that keeps their bytes. Raises FileExistsError if the folder contains anything.
        """
        path = Path(folder)
        if path.is_dir() and any(path.iterdir()):
            raise FileExistsError(f"{folder} is not empty: save a snapshot to a new folder")
        with closing(DiskStorage(path)) as disk:
            copy_storage(self._files, disk)
        for name, text in _FOR_GIT.items():
            (path / name).write_text(text)

    @property
    def size_bytes(self) -> int:
        """The total size of the files."""
        return sum(len(data) for _, data in self._files.files())

    def __repr__(self) -> str:
        return f"<snapshot of {self.size_bytes} bytes>"

    def metadata(self) -> RestoredMetadata:
        """Return the metadata, read at the first call."""
        if self._metadata is None:
            self._metadata = RestoredMetadata(self.to_memory())
        return self._metadata

    def to_memory(self) -> MemoryStorage:
        """Return a copy of the files in memory."""
        found = MemoryStorage()
        found.replace(self._files)
        return found

    def to_storage(self, storage: Storage) -> None:
        """Replace the files of a storage in which none is open by the snapshot's, durably."""
        if isinstance(storage, MemoryStorage):
            storage.replace(self._files)
            return
        wanted = dict(self._files.files())
        equal, folders = _delete_others(storage, wanted)
        missing = wanted.keys() - equal
        written = [storage.open(path) for path in missing]
        for path, file in zip(missing, written, strict=True):
            file.append(wanted[path])
        # Otherwise a loss of power would return the files to their state before, with what is acknowledged after it.
        storage.sync_all([file.sync for file in written])
        for file in written:
            file.close()
        folders |= {path.rpartition("/")[0] for path in missing}
        storage.sync_all([partial(storage.sync_folder, folder) for folder in folders])


def take(server: SocketServer) -> Snapshot:
    server.settle_cluster()
    cluster = server.cluster
    # The logs as a clean stop leaves them. Otherwise each restore would replay their batches and write what is missing.
    if isinstance(cluster.storage, MemoryStorage):
        # Not in the copy, so that the next snapshot finds it done.
        cluster.sync_and_snapshot()
        return Snapshot(cluster.storage.copy())
    # On a disk that takes about ten syncs for each log, and what was acknowledged is durable without them.
    files = in_memory(cluster.storage)
    _close_cleanly(files, cluster)
    return Snapshot(files)


def _close_cleanly(files: MemoryStorage, cluster: Cluster) -> None:
    """Make the logs in a copy of a cluster's files as a clean stop leaves them, except logs that are not in use."""
    logs = LogManager(files, cluster.settings, cluster.metadata)
    for log in cluster.logs.opened():
        logs.get(log.topic_partition, cluster.now_ms)
    logs.close(cluster.now_ms)
    MetadataLog.at(files, lambda: cluster.now_ms).close(cluster.now_ms)


def restore(server: SocketServer, snapshot: Snapshot) -> None:
    """Return the cluster to a snapshot; connections stay open.

    Raises `ConfigError`, and changes nothing, for a snapshot with feature levels that the cluster's version of Kafka
    does not support.
    """
    # Before anything changes: the snapshot may also be of a folder with damage.
    metadata = snapshot.metadata()
    metadata.check_levels(server.cluster.config.kafka_version)

    def exchange(cluster: Cluster) -> MetadataLoad:
        snapshot.to_storage(cluster.storage)
        return partial(metadata.load, cluster.metadata)

    server.replace_cluster(exchange)


def _delete_others(storage: Storage, wanted: Mapping[str, bytes]) -> tuple[set[str], set[str]]:
    """Delete the files that are not as wanted; return the paths of the others, and the folders with changes.

    A test changes few partitions, so most files stay.
    """
    folders = {path.rpartition("/")[0] for path in wanted}
    equal: set[str] = set()
    changed = {""}
    for name in storage.list_folder(""):
        paths = [f"{name}/{child}" for child in storage.list_folder(name)] if name in folders else [name]
        for path in paths:
            if path in wanted and _is_equal(storage, path, wanted[path]):
                equal.add(path)
            else:
                storage.delete(path)
                changed.add(path.rpartition("/")[0])
    return equal, changed


def _is_equal(storage: Storage, path: str, data: bytes) -> bool:
    with closing(storage.open(path)) as file:
        return file.size() == len(data) and file.read(0, len(data)) == data


def _check_logs(folder: str | os.PathLike[str], files: MemoryStorage) -> None:
    lacking = [name for name in files.list_folder("") if lacks_log(files.list_folder(name))]
    if lacking:
        raise ConfigError(
            f"{folder} is not complete: the .log files of {counted(len(lacking), 'partition')} are missing, such as "
            f"those of {lacking[0]}. If the folder comes from a git repository, a .gitignore may exclude *.log: "
            "`git check-ignore -v` with the name of such a file shows the line"
        )
    for path, data in files.files():
        if data.startswith(_GIT_LFS_POINTER):
            raise ConfigError(
                f"{folder} is not complete: {path} is a pointer of Git LFS, and not the file itself. Run `git lfs pull`"
            )


def in_memory(storage: Storage) -> MemoryStorage:
    if isinstance(storage, MemoryStorage):
        return storage.copy()
    found = MemoryStorage()
    copy_storage(storage, found)
    return found
