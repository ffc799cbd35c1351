"""A file of frames, each with a checksum, that overwrites itself instead of growing.

When a file grows, its sync also makes the new size durable, which takes twice as long, and longer when the processors
are busy. So the file is filled with zeros before it is used, and each *generation* of frames begins at its start and
overwrites the one before.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from broker_core.ports import Storage

# The size of the content that follows, the generation, and the CRC of the content, which begins with the generation.
_HEADER: Final = struct.Struct(">III")


class FrameLog:
    """Frames in a new file of the storage, which is made larger by at least `growth_bytes` at a time."""

    def __init__(self, storage: Storage, path: str, growth_bytes: int) -> None:
        self._growth_bytes = growth_bytes
        self._generation = 1
        self._allocated_bytes = 0
        self._file = storage.open(path)
        storage.sync_folder(path.rpartition("/")[0])
        # The end of the last frame.
        self.size_bytes = 0

    def append(self, content: bytes) -> None:
        """Write a frame, durable after `sync`; raise `OSError` if the disk is full, and go on from the frame before."""
        header = _HEADER.pack(len(content), self._generation, zlib.crc32(content, self._generation))
        end = self.size_bytes + len(header) + len(content)
        if end > self._allocated_bytes:
            self._grow(max(end - self._allocated_bytes, self._growth_bytes))
        self._file.overwrite(self.size_bytes, header + content)
        self.size_bytes = end

    def sync(self) -> None:
        self._file.sync()

    def begin_again(self) -> None:
        """Discard the frames, durably."""
        self._file.overwrite(0, bytes(_HEADER.size))
        self._file.sync()
        self.size_bytes = 0
        self._generation += 1

    def close(self) -> None:
        self._file.close()

    def _grow(self, growth_bytes: int) -> None:
        try:
            self._file.append(bytes(growth_bytes))
        except OSError:
            # A part of the zeros may be there, and other files need the space more.
            self._file.truncate(self._allocated_bytes)
            raise
        self._allocated_bytes += growth_bytes


def frames(data: bytes) -> Iterator[bytes]:
    """Yield the contents of the frames of the newest generation, up to the first that is not whole."""
    start, generation = 0, None
    while start + _HEADER.size <= len(data):
        size_bytes, its_generation, crc = _HEADER.unpack_from(data, start)
        start += _HEADER.size
        content = data[start : start + size_bytes]
        generation = generation or its_generation
        # Zeros have the right CRC.
        if not content or len(content) < size_bytes or zlib.crc32(content, generation) != crc:
            return
        yield content
        start += size_bytes
