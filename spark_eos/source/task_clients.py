"""Keep the client of a task for the next task of its process.

A task with a client of its own opens two connections and asks four questions before it fetches anything, which is more
than the fetch of a small range costs, and a micro-batch has a task for each partition.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from spark_eos.client.connection import KafkaClient
from spark_eos.options.client import ClientOptions

# Long before brokers close what idles (connections.max.idle.ms).
_LONGEST_IDLE_SECONDS: Final = 60.0
_MOST_IDLE: Final = 8


class _Idle(NamedTuple):
    process_id: int
    options: ClientOptions
    client: KafkaClient
    since: float


_idle: list[_Idle] = []


@contextmanager
def task_client(options: ClientOptions) -> Iterator[KafkaClient]:
    """Lend a client that nothing else uses meanwhile; one that failed, or was left in mid-work, is closed."""
    client = _take(options)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _idle.append(_Idle(os.getpid(), options, client, time.monotonic()))
    while len(_idle) > _MOST_IDLE:
        _idle.pop(0).client.close()


def _take(options: ClientOptions) -> KafkaClient:
    now = time.monotonic()
    for each in list(_idle):
        # What was inherited over a fork is closed without a word to the parent's brokers.
        if each.process_id != os.getpid() or now - each.since > _LONGEST_IDLE_SECONDS:
            _idle.remove(each)
            each.client.close()
    # The one used last: its connections are the warmest, and the others grow old.
    for each in reversed(_idle):
        if each.options == options:
            _idle.remove(each)
            return each.client
    return KafkaClient(options)
