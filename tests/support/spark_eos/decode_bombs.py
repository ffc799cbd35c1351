"""Record batches that decompress to many times their size, and the cost of reading them."""

import ctypes
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import crc32c
import pyarrow as pa
import pytest

from broker_core.errors import InvalidBatch
from broker_core.records.compression import Compression, compress
from broker_core.records.header import ATTRIBUTES_POSITION, HEADER, HEADER_SIZE
from tests.support.memory import resident_mib

MIB: Final = 1 << 20
CODECS: Final = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
TINY: Final = b"\x0c\x00\x00\x00\x01\x01\x00"


class Cost(NamedTuple):
    """The cost of a call and its result: a number of rows, or a rejection."""

    seconds: float
    mib: float
    outcome: Any


def batch(section: bytes, count: int, codec: Compression, *, folded: bytes | None = None) -> bytes:
    """Put a header with the given `count`, which need not be true, before a section."""
    body = compress(codec, section) if folded is None else folded
    length = HEADER_SIZE - 12 + len(body)
    fields = [0, length, 0, 2, 0, int(codec), max(count - 1, 0), 0, 0, -1, -1, -1, count]
    fields[4] = crc32c.crc32c(body, crc32c.crc32c(HEADER.pack(*fields)[ATTRIBUTES_POSITION:]))
    return HEADER.pack(*fields) + body


def _settled_memory() -> float:
    """Release unused memory and reset the peak; Arrow releases with a delay, which this waits for."""
    for _ in range(50):
        pa.default_memory_pool().release_unused()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        if resident_mib("VmHWM") - resident_mib("VmRSS") < 2:
            break
    return resident_mib("VmHWM")


def cost(action: Callable[[], Any]) -> Cost:
    """Measure processor time and the peak growth of resident memory, that of Arrow and the codecs included."""
    if sys.platform != "linux":
        pytest.skip("peak memory is read from /proc")
    before, started = _settled_memory(), time.process_time()
    try:
        outcome = action()
    except InvalidBatch as error:
        outcome = error
    return Cost(time.process_time() - started, resident_mib("VmHWM") - before, outcome)


@functools.cache
def folded_zeros(codec: Compression) -> bytes:
    """Compress 32 MiB of zeros, to be repeated: the streams of these codecs can be concatenated."""
    folded = compress(codec, bytes(32 * MIB))
    return folded[len(compress(codec, b"")) :] if codec is Compression.SNAPPY else folded


def bomb(codec: Compression, first: bytes, unfolded_mib: int, count: int = 1) -> bytes:
    """Build a batch with the given `count` in its header that begins with `first` and continues with zeros."""
    return batch(b"", count, codec, folded=compress(codec, first) + folded_zeros(codec) * (unfolded_mib // 32))
