"""Make a history: clients at work while their broker is killed and paused."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients import LOG_NOTHING, READ_COMMITTED, READ_UNCOMMITTED
from tests.crash.brokers import Broker, make_broker
from tests.history.clients import (
    END_DEADLINE_S,
    IN,
    OUT,
    PARTITIONS,
    Client,
    OffsetReader,
    Reader,
    Worker,
    Writer,
)
from tests.history.format import INFO, Op
from tests.history.recorder import Recorder

GROUP = "workers"
FAULTS = ("kill", "pause")
_LONGEST_PAUSE_S = 2.0


@dataclass(slots=True)
class Story:
    """Hold a history and what was done to its broker."""

    ops: list[Op]
    faults: Counter[str] = field(default_factory=Counter)


def run(
    kind: str, folder: Path, *, seed: int, seconds: float, fault_every_s: float = 3.0,
    ways: Sequence[str] = FAULTS,
) -> Story:
    """Let clients work for some seconds, heal everything, and read all there is to its end."""
    broker = make_broker(kind, folder)
    recorder = Recorder()
    chance = random.Random(seed)
    try:
        broker.start()
        _create_topics(broker.address)
        clients = _clients(broker.address, recorder, chance)
        stop = threading.Event()
        threads = [_Thread(client, stop) for client in clients]
        for thread in threads:
            thread.start()
        faults = _nemesis(broker, recorder, chance, time.monotonic() + seconds, fault_every_s, ways)
        stop.set()
        for thread in threads:
            thread.finish()
        _drain(clients)
    finally:
        broker.close()
    return Story(recorder.ops, faults)


def _clients(address: str, recorder: Recorder, chance: random.Random) -> list[Client]:
    def draw() -> random.Random:
        return random.Random(chance.random())

    return [
        *(Writer(f"writer-{number}", address, recorder, draw()) for number in range(3)),
        *(Worker(f"worker-{number}", address, recorder, draw(), GROUP) for number in range(2)),
        Reader("reader", address, recorder, draw(), READ_COMMITTED),
        Reader("peeper", address, recorder, draw(), READ_UNCOMMITTED),
        OffsetReader("clerk", address, recorder, GROUP),
    ]


def _create_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": LOG_NOTHING})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (IN, OUT)]).values():
        created.result(END_DEADLINE_S)


def _nemesis(
    broker: Broker, recorder: Recorder, chance: random.Random, end: float, every_s: float, ways: Sequence[str]
) -> Counter[str]:
    """Break the broker now and then; it is whole when this returns."""
    faults: Counter[str] = Counter()

    def kill() -> None:
        broker.kill()
        broker.start()

    def pause() -> None:
        broker.pause()
        time.sleep(chance.random() * _LONGEST_PAUSE_S)
        broker.resume()

    known: dict[str, Callable[[], None]] = {"kill": kill, "pause": pause}
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, every_s * (0.5 + chance.random())))
        name = chance.choice(sorted(ways))
        recorder.note("nemesis", INFO, "nemesis", name)
        known[name]()
        faults[name] += 1
    return faults


def _drain(clients: list[Client]) -> None:
    for client in clients:
        if isinstance(client, Reader):
            client.drain()
        client.close()


class _Thread(threading.Thread):
    """Run one client until it is told to stop; what it raises is raised again by `finish`."""

    def __init__(self, client: Client, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._stop_asked = stop
        self._failure: Exception | None = None

    def run(self) -> None:
        """Do one operation after another."""
        try:
            while not self._stop_asked.is_set():
                self._client.step()
        except Exception as failure:
            self._failure = failure

    def finish(self) -> None:
        """Wait for the end."""
        # A transaction that is under way ends within its own deadlines: begin, commit and abort at most.
        self.join(4 * END_DEADLINE_S)
        assert not self.is_alive(), f"{self._client} does not end"
        if self._failure is not None:
            raise self._failure
