"""The interfaces through which the core uses the outside: storage and randomness.

`server` and `simulation` implement them. There is none for time, which is passed as an argument, `now_ms`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

# What makes files or names durable when it is called, in any thread and any order.
Syncs = Sequence[Callable[[], None]]


class File(Protocol):
    """A file that is appended to or truncated at its end; its bytes survive a crash once they are synced."""

    def size(self) -> int:
        """Return the length in bytes, unsynced appends included."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write at the end; visible to `read` at once, durable only after `sync`."""

    def overwrite(self, position: int, data: bytes) -> None:
        """Write at `position`, at most the size, over the bytes that are there."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to `size_bytes` bytes from `position`; fewer at the end of the file."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`."""

    def sync(self) -> None:
        """Make everything written so far durable."""

    def begin_sync(self) -> Callable[[], None]:
        """Return the sync of what is written so far, to be called once; the file may be used meanwhile."""

    def close(self) -> None:
        """Close the file without syncing it."""


class Volume(NamedTuple):
    """The absolute path of the folder that a storage is in, and the sizes of its disk; -1 if unknown."""

    folder: str
    total_bytes: int
    usable_bytes: int


class Pending(Protocol):
    """Syncs that are in progress."""

    def done(self) -> bool:
        """Return whether all have ended."""

    def result(self) -> object:
        """Wait until all have ended, and raise the failure of one that failed."""


class Storage(Protocol):
    """Files in folders; paths are relative, with `/` between their parts."""

    def open(self, path: str) -> File:
        """Open the file, creating it and its folders if they are missing."""

    def exists(self, path: str) -> bool:
        """Return whether a file or folder of that name exists."""

    def list_folder(self, path: str) -> list[str]:
        """Return the names directly in the folder, sorted; empty if there is no such folder."""

    def make_folder(self, path: str) -> None:
        """Create the folder and those above it."""

    def delete(self, path: str) -> None:
        """Remove the file, or the folder with its content; no effect if it does not exist."""

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename the file or folder, replacing `new_path`, atomically."""

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and deletions in the folder durable."""

    def volume(self) -> Volume:
        """Return where the files are."""

    def sync_all(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Run syncs of different files, in parallel where each waits for a disk; raise a failure when all have ended.

        Nothing else may use the storage meanwhile.
        """

    def start_syncs(self, files: Sequence[File], size_bytes: int, ended: Callable[[], None]) -> Pending | None:
        """Make the files durable, `size_bytes` of unsynced bytes in all; return None if that is done.

        If it takes time the syncs are only started: the storage may be used meanwhile, and `ended` is called at the
        end, in any thread.
        """


def run_steps(storage: Storage, steps: Iterable[Syncs]) -> None:
    """Take steps one after the other; after each, sync what it yields."""
    for syncs in steps:
        storage.sync_all(syncs)


class Entropy(Protocol):
    """A source of randomness, which a simulation replaces by one with a seed."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` unpredictable bytes (predictable from the seed in a simulation)."""
