"""Read and write the primitive fields that records of `__consumer_offsets` are made of."""

import struct
from typing import Final

from broker_core.errors import DamageError

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


def int16(value: int) -> bytes:
    """Encode a 16-bit number."""
    return _INT16.pack(value)


def int32(value: int) -> bytes:
    """Encode a 32-bit number."""
    return _INT32.pack(value)


def int64(value: int) -> bytes:
    """Encode a 64-bit number."""
    return _INT64.pack(value)


def string(text: str | None) -> bytes:
    """Encode a string of at most 32767 bytes; None is length -1."""
    if text is None:
        return int16(-1)
    data = text.encode()
    return int16(len(data)) + data


def data_field(data: bytes) -> bytes:
    """Encode bytes behind their 32-bit length."""
    return int32(len(data)) + data


class FieldReader:
    """Read fields in order; `DamageError` when the bytes end too early or a length makes no sense.

    With `flexible`, strings, bytes and arrays have the compact lengths of KIP-482; call `skip_tags` where
    a structure ends.
    """

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    def int16(self) -> int:
        """Read a 16-bit number."""
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        """Read a 32-bit number."""
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        """Read a 64-bit number."""
        return int(_INT64.unpack(self._take(8))[0])

    def nullable_string(self) -> str | None:
        """Read a string that may be null."""
        length = self._varint() - 1 if self.flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise DamageError(f"a string before byte {self._position} is not UTF-8: {error}") from error

    def string(self) -> str:
        """Read a string; null is damage."""
        text = self.nullable_string()
        if text is None:
            raise DamageError(f"a string before byte {self._position} is null and must not be")
        return text

    def data(self) -> bytes:
        """Read bytes; null reads as empty."""
        return self._take(max(0, self.length()))

    def length(self) -> int:
        """Read the length of an array or of bytes."""
        return self._varint() - 1 if self.flexible else self.int32()

    def skip_tags(self) -> None:
        """Step over the tagged fields at the end of a flexible structure; nothing happens in others."""
        if not self.flexible:
            return
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, size_bytes: int) -> bytes:
        end = self._position + size_bytes
        if end > len(self._data):
            raise DamageError(f"record ends at byte {len(self._data)} where a field reaches to byte {end}")
        piece = self._data[self._position:end]
        self._position = end
        return piece
