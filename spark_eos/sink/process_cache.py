"""The cache of what a process keeps between micro-batches, until it has not been used for some time.

A session may run hundreds of queries in the same Python processes, so nothing is dropped because of the number of
entries: otherwise each round over all queries would drop and create everything again.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import Clock, ProcessState, Runtime

IDLE_SECONDS: Final = 3_600.0
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ProcessCache(Generic[_Key, _Value]):
    """Values by key; a value that was idle for `idle_seconds` is dropped when others are used."""

    def __init__(
        self, clock: Clock, idle_seconds: float = IDLE_SECONDS, drop: Callable[[_Value], None] = lambda value: None
    ) -> None:
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._drop = drop
        # Least recently used first.
        self._values: dict[_Key, tuple[float, _Value]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        now = self._clock.monotonic()
        self._drop_idle(now)
        found = self._values.pop(key, None)
        value = make() if found is None else found[1]
        self._values[key] = now, value
        return value

    def forget(self, key: _Key) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self._drop(found[1])

    def _drop_idle(self, now: float) -> None:
        while self._values:
            oldest = next(iter(self._values))
            used_at, value = self._values[oldest]
            if now - used_at < self._idle_seconds:
                return
            del self._values[oldest]
            self._drop(value)


def _clients(runtime: Runtime) -> ProcessCache[ClientOptions, KafkaClient]:
    # Kept longer than anything that was made with a client, since that would connect a closed one again.
    return ProcessCache(runtime.clock, 3 * IDLE_SECONDS, KafkaClient.close)


def client_of(process: ProcessState, options: ClientOptions) -> KafkaClient:
    """Return the only client of a process for these settings, with its connections."""
    return process.part(_clients).get(options, lambda: KafkaClient(options, process.runtime))
