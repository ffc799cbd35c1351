"""Kafka's record batches (magic 2), as stored in logs and sent between clients and brokers.

Owns: the batch header, its CRC-32C, assignment of offsets in place, records, control batches, and compression codecs.
Uses: `errors` and `types`; crc32c and cramjam for checksums and compression.
Never: opens a file, uses a log, or decides whether a producer may append.
"""

import sys
from typing import Final

_ARCHIVES: Final = (".jar", ".zip", ".egg")


def _import_crc32c() -> None:
    """Import `crc32c` without searching archives for its version.

    When imported, the package looks up its own version with `importlib.metadata`, which searches `sys.path` in order.
    Spark puts its archives first. With PySpark from pip, each Python worker would therefore read the directory of
    Spark's core jar, with ten thousand names, before it finds the package's metadata.
    """
    path = sys.path[:]
    sys.path.sort(key=lambda entry: entry.endswith(_ARCHIVES))
    try:
        import crc32c  # noqa: F401
    finally:
        sys.path[:] = path


if "crc32c" not in sys.modules:
    _import_crc32c()
