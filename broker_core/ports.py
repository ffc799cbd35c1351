"""State what the core asks of the world.

Owns: the protocols of storage and chance that `server` and `simulation` fulfil.
Asks: nothing.
Never: implements them; time is not here because it comes as an argument, `now_ms`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol


class File(Protocol):
    """Hold bytes that only grow at the end or are cut there, and survive a crash once synced."""

    def size(self) -> int:
        """Return the length in bytes, unsynced appends included."""
        ...

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write at the end; visible to `read` at once, durable only after `sync`."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to `size_bytes` bytes from `position`; fewer at the end of the file."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`."""
        ...

    def sync(self) -> None:
        """Make everything written so far durable."""
        ...

    def close(self) -> None:
        """Release the file; what was not synced stays where the operating system has it."""
        ...


class Storage(Protocol):
    """Keep named files in folders; names are relative paths with `/` between parts."""

    def open(self, path: str) -> File:
        """Open the file, creating it and its folders if they are missing."""
        ...

    def exists(self, path: str) -> bool:
        """Say whether a file or folder of that name is there."""
        ...

    def list_folder(self, path: str) -> list[str]:
        """Return the names directly in the folder, sorted; empty if there is no such folder."""
        ...

    def make_folder(self, path: str) -> None:
        """Create the folder and those above it."""
        ...

    def delete(self, path: str) -> None:
        """Remove the file, or the folder with all in it; nothing happens if it is not there."""
        ...

    def rename(self, old_path: str, new_path: str) -> None:
        """Put the file or folder in the place of `new_path`, atomically."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and deletions in the folder durable."""
        ...

    def sync_all(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Run syncs of different files, side by side where each waits for a disk; raise a failure when all have ended.

        Nothing else may use the storage meanwhile.
        """
        ...


class Entropy(Protocol):
    """Draw chance, so that a seed can replay it."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` unpredictable bytes (predictable from the seed in a simulation)."""
        ...
