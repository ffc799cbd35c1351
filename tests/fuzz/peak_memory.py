"""The peak memory of a fuzz target."""

import tracemalloc

from tests.fuzz.targets import BY_NAME


def peak_bytes(target: str, data: bytes) -> int:
    """Return the peak of the memory allocated for one input."""
    tracemalloc.start()
    try:
        BY_NAME[target].try_one(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
