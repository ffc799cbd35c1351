"""Lay an Arrow array over raw bytes, so that fields are copied out of them once, in C++.

A binary array is a buffer and ascending offsets into it. With the offsets `key start, key end, value start, value end`
of every record, every fourth element is a key and the second after it a value; the others are the bytes between, which
nobody takes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_eos.codec.varints import Ints, Octets

_FIELDS = 4


class Overlay:
    """Hold bytes as numpy sees them and as Arrow does; at most 2 GiB."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.octets: Octets = np.frombuffer(data, np.uint8)
        self._buffer = pa.py_buffer(data)

    def take(self, bounds: npt.NDArray[np.signedinteger], first_lengths: Ints, second_lengths: Ints) -> tuple[Any, Any]:
        """Return two binary arrays, of the fields between columns 0 and 1 of `bounds` and between 2 and 3.

        `bounds` ascends in reading order; a length of -1 makes the value null.
        """
        rows = len(bounds)
        if not rows:
            return pa.array([], pa.binary()), pa.array([], pa.binary())
        offsets = bounds.astype(np.int32, copy=False).ravel()
        laid = pa.Array.from_buffers(pa.binary(), _FIELDS * rows - 1, [None, pa.py_buffer(offsets), self._buffer])
        places = np.arange(0, _FIELDS * rows, _FIELDS, dtype=np.int32)
        return laid.take(_places(places, first_lengths)), laid.take(_places(places + 2, second_lengths))


def _places(places: Any, lengths: Ints) -> Any:
    absent = lengths < 0
    return pa.array(places, mask=absent) if absent.any() else pa.array(places)
