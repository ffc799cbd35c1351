"""Arrow arrays of numbers as NumPy arrays, and back, without pandas.

If pandas is installed, pyarrow's own conversions import it, even from a Python number to a scalar: 0.2 s of
processor time for each worker.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Booleans = npt.NDArray[np.bool_]


def numbers_of(array: Any, null: int = 0) -> npt.NDArray[Any]:
    """Return an array of whole numbers, without a copy if it has no nulls; `null` replaces these.

    >>> numbers_of(pa.array([3, 1, None], pa.int16())[1:], null=-1)
    array([ 1, -1], dtype=int16)
    """
    assert not pa.types.is_boolean(array.type), "Arrow packs these into bits"
    kind = np.dtype(array.type.to_pandas_dtype())
    if not len(array):
        return np.zeros(0, kind)
    numbers = np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]
    return np.where(valid_of(array), numbers, kind.type(null)) if array.null_count else numbers


def valid_of(array: Any) -> Booleans:
    """Return which elements are not null.

    >>> valid_of(pa.array([b"a", None]))
    array([ True, False])
    """
    if not array.null_count:
        return np.ones(len(array), bool)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].view(bool)


def arrow_numbers(numbers: npt.NDArray[Any], valid: Booleans | None = None) -> Any:
    """Return whole numbers as an Arrow array, without a copy if they are contiguous; null where they are not valid.

    >>> arrow_numbers(np.array([5, 6]), np.array([True, False])).to_pylist()
    [5, None]
    """
    assert numbers.dtype.isnative, "Arrow has the machine's order of bytes"
    bits = None if valid is None else _bits(valid)
    values = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [bits, values])


def arrow_booleans(booleans: Booleans) -> Any:
    """Return truth values as an Arrow array.

    >>> arrow_booleans(np.array([True, False])).to_pylist()
    [True, False]
    """
    return pa.Array.from_buffers(pa.bool_(), len(booleans), [None, _bits(booleans)])


def _bits(booleans: Booleans) -> Any:
    return pa.py_buffer(np.packbits(booleans, bitorder="little"))
