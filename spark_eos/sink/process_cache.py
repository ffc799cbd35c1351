"""What a process keeps from one micro-batch to the next, until it has not been used for some time.

A session may run hundreds of queries in the same Python processes, so that nothing is dropped for its number alone:
then each round over all queries would drop and make everything again.
"""

import os
import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions

IDLE_SECONDS: Final = 3_600.0
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ProcessCache(Generic[_Key, _Value]):
    """Values by key, for this process alone; what was idle for `idle_seconds` is dropped at the next use of others.

    A forked process inherits its parent's values and leaves them alone.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS, drop: Callable[[_Value], None] = lambda value: None) -> None:
        self._idle_seconds = idle_seconds
        self._drop = drop
        # Used last, dropped last.
        self._values: dict[tuple[int, _Key], tuple[float, _Value]] = {}

    def __len__(self) -> int:
        """Count what is kept."""
        return len(self._values)

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """Give the value of a key, made now if there is none."""
        now = time.monotonic()
        self._drop_idle(now)
        mine = os.getpid(), key
        found = self._values.pop(mine, None)
        value = make() if found is None else found[1]
        self._values[mine] = now, value
        return value

    def clear(self) -> None:
        """Forget everything; nothing is closed."""
        self._values.clear()

    def _drop_idle(self, now: float) -> None:
        while self._values:
            oldest = next(iter(self._values))
            used_at, value = self._values[oldest]
            if now - used_at < self._idle_seconds:
                return
            del self._values[oldest]
            self._drop(value)


# Longer than anything that was made with a client is kept, since that would connect a closed one again.
_clients: Final[ProcessCache[ClientOptions, KafkaClient]] = ProcessCache(3 * IDLE_SECONDS, KafkaClient.close)


def client_of(options: ClientOptions) -> KafkaClient:
    """Give this process's one client for these settings, with the connections that it has."""
    return _clients.get(options, lambda: KafkaClient(options))
