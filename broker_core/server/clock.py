"""Read the system's clock and draw the system's randomness."""

import os
import time


class SystemClock:
    """Tell the time; Kafka's timestamps are wall-clock milliseconds since the epoch."""

    def now_ms(self) -> int:
        """Return the time in milliseconds."""
        return time.time_ns() // 1_000_000


class SystemEntropy:
    """Draw random bytes from the operating system."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` unpredictable bytes."""
        return os.urandom(count)
