"""A simulated disk: files in memory whose operations fail when the disk is full, a sync fails, or the power is lost."""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from broker_core.ports import File, Pending
from broker_core.simulation.disk import MemoryFile, MemoryStorage, Node
from tests.support.simulated.faults import FaultCounts, FaultKind

# The share of syncs that take no time, and the duration of the others.
_AT_ONCE = 0.5
_SYNC_US = (50, 5_000)


class PowerLoss(BaseException):
    """The end of the process by a power loss; a `BaseException`, so that error handlers do not catch it."""


class SimulatedFile(MemoryFile):
    """A file on a `SimulatedDisk`, whose operations fail if the disk is full or the power is lost."""

    __slots__ = ("_disk",)

    def __init__(self, disk: "SimulatedDisk", node: Node) -> None:
        super().__init__(node)
        self._disk = disk

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write at the end; if the disk is full, write a part of the data and raise ENOSPC."""
        self._disk.use()
        if self._disk.is_full:
            super().append(bytes(data)[: self._disk.random.randrange(len(data) + 1)])
            self._disk.faults.record(FaultKind.DISK_FULL)
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        super().append(data)

    def overwrite(self, position: int, data: bytes) -> None:
        """Write at `position`; if the disk is full and the file grows, raise ENOSPC."""
        self._disk.use()
        if self._disk.is_full and position + len(data) > self.size():
            self._disk.faults.record(FaultKind.DISK_FULL)
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        super().overwrite(position, data)

    def truncate(self, size_bytes: int) -> None:
        self._disk.use()
        super().truncate(size_bytes)

    def sync(self) -> None:
        if self._disk.use_for_sync():
            super().sync()

    def _sync_up_to(self, size_bytes: int, overwritten: Sequence[tuple[int, bytes]]) -> None:
        if self._disk.use_for_sync():
            super()._sync_up_to(size_bytes, overwritten)


class _SyncsInProgress:
    """Syncs that end after some time; what they sync is durable when the caller takes their result."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._is_done = False

    def end(self, ended: Callable[[], None]) -> None:
        self._is_done = True
        ended()

    def done(self) -> bool:
        return self._is_done

    def result(self) -> None:
        """Make the writes durable; raise the power loss or the disk's error."""
        self._run()


class SimulatedDisk(MemoryStorage):
    """A disk that can be full, can fail to sync, and can lose power between any two operations.

    `after_us` runs an action later in virtual time. With it some syncs take time, while the disk is used.
    `fuse` is the number of operations before the power loss. The operation after them raises `PowerLoss`; `lose_power`
    then draws how many unsynced bytes of each file survive.

    `syncs_until_failure` is the number of syncs before the one that fails. Linux reports a failed sync once, and may
    forget the writes: the process still reads them, and a later sync succeeds without them. So after the failure all
    syncs succeed and make nothing durable, until the process has ended and `lose_power` or `lose_process` is called.
    """

    def __init__(self, random: Random, faults: FaultCounts) -> None:
        super().__init__()
        self.random = random
        self.faults = faults
        self.is_full = False
        self.after_us: Callable[[int, Callable[[], None]], object] | None = None
        self.fuse: int | None = None
        self.syncs_until_failure: int | None = None
        self.has_failed_sync = False

    def use(self) -> None:
        """Count one operation; raise `PowerLoss` if the fuse is at zero."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise PowerLoss

    def use_for_sync(self) -> bool:
        """Count one operation and one sync; return whether it makes writes durable. Raise EIO if it fails."""
        self.use()
        if self.syncs_until_failure is not None:
            self.syncs_until_failure -= 1
            if self.syncs_until_failure < 0:
                self.syncs_until_failure = None
                self.has_failed_sync = True
                self.faults.record(FaultKind.SYNC_FAILED)
                raise OSError(errno.EIO, "a sync of the simulated disk failed")
        return not self.has_failed_sync

    def _file(self, node: Node) -> MemoryFile:
        return SimulatedFile(self, node)

    def delete(self, path: str) -> None:
        self.use()
        super().delete(path)

    def rename(self, old_path: str, new_path: str) -> None:
        self.use()
        super().rename(old_path, new_path)

    def sync_folder(self, path: str) -> None:
        if self.use_for_sync():
            super().sync_folder(path)

    def start_syncs(self, files: Sequence[File], size_bytes: int, ended: Callable[[], None]) -> Pending | None:
        """Run the syncs at once, or start them: some take longer than a request."""
        if self.after_us is None or not files or self.random.random() < _AT_ONCE:
            return super().start_syncs(files, size_bytes, ended)
        pending = _SyncsInProgress(partial(self.sync_all, [file.begin_sync() for file in files]))
        self.after_us(self.random.randint(*_SYNC_US), partial(pending.end, ended))
        return pending

    def lose_power(self) -> None:
        """Discard unsynced writes; a random part of them survives in each file, independently of other files."""
        self.fuse = None
        self.has_failed_sync = False
        keep = self.random.choice((0.0, 0.3, 1.0))
        self.crash(
            survives=lambda _path, unsynced: self._survived(unsynced, keep), names_survive=self.random.random() < keep
        )

    def lose_process(self) -> None:
        """Keep all writes, as when only the process dies and not the machine; unsynced ones do not become durable.

        After a failed sync the next process may find that the system has forgotten them.
        """
        if self.has_failed_sync:
            self.lose_power()
        self.fuse = None

    def _survived(self, unsynced_bytes: int, keep: float) -> int:
        if not unsynced_bytes:
            return 0
        if self.random.random() >= keep:
            self.faults.record(FaultKind.FORGOTTEN_WRITE)
            return 0
        self.faults.record(FaultKind.TORN_WRITE)
        return self.random.randrange(unsynced_bytes + 1)
