"""Record a history: clients at work while their broker is killed, restarted and paused; then inspect its files."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from tests.history.clients import (
    END_DEADLINE_S,
    IN,
    OUT,
    PARTITIONS,
    SESSION_TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    Client,
    OffsetReader,
    Reader,
    Worker,
    Writer,
)
from tests.history.inspection import LeftBehind, inspect_files, inspect_folder
from tests.history.reported_state import differences, high_watermark, reported_state, under_way
from tests.support.broker_processes import Broker, make_broker
from tests.support.clients import LOG_NOTHING, READ_COMMITTED, READ_UNCOMMITTED
from tests.support.history.format import INFO, Op
from tests.support.history.recorder import Recorder
from tests.support.raw_client import RawClient
from tests.support.spark_eos.brokers import SETTINGS
from tests.support.waiting import wait_until

GROUP = "workers"
FAULTS = ("kill", "pause", "restart")
# A broker that is paused for less is late; for more, it finds a session or a transaction expired.
LONG_PAUSE, LONGEST_PAUSE = "pause past the session timeout", "pause past the transaction timeout"
LONGEST_PAUSE_S: Final = 12.0
_SHORT_PAUSE_S: Final = 2.0
_LONG_SHARE: Final = 0.25
# Longer than the lifetime of an abandoned transaction.
_DRAIN_DEADLINE_S: Final = 60.0
_ENOUGH_DEADLINE_S: Final = 120.0
_LOOK_AGAIN_S: Final = 0.1
# Segments that roll soon, and dense indexes, so that the inspection has enough files and rows.
_TOPIC_SETTINGS: Final = {"segment.ms": "3000", "index.interval.bytes": "128"}
_INTERNAL_PARTITIONS: Final = 5


@dataclass(slots=True)
class WorkloadResult:
    """A history, the faults injected, and the problems that the clients do not see.

    `stuck` lists the transactions that do not end and the log ends that readers did not reach; `problems` are those in
    the broker's files; `left` is the folder inspected last.
    """

    ops: list[Op]
    faults: Counter[str] = field(default_factory=Counter)
    stuck: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left: LeftBehind | None = None


def run(
    kind: str,
    folder: Path,
    *,
    seed: int,
    seconds: float,
    fault_every_s: float = 3.0,
    ways: Sequence[str] = FAULTS,
    longest_pause_s: float = LONGEST_PAUSE_S,
    has_enough: Callable[[Sequence[Op]], bool] = lambda ops: True,
) -> WorkloadResult:
    """Let clients work for some seconds, end all faults, read everything to its end, and inspect the files.

    On a slow machine the clients continue without faults for a while, until the history has enough transactions.
    """
    broker = make_broker(kind, folder)
    recorder = Recorder()
    result = WorkloadResult(recorder.ops)
    chance = random.Random(seed)
    try:
        broker.start()
        _create_topics(broker.address)
        clients = _clients(broker.address, recorder, chance)
        stop = threading.Event()
        threads = [_Thread(client, stop) for client in clients]
        for thread in threads:
            thread.start()
        nemesis = Nemesis(broker, recorder, chance, longest_pause_s)
        result.faults = nemesis.inject(time.monotonic() + seconds, fault_every_s, ways)
        wait_until(
            lambda: has_enough(recorder.ops[:]), "the history has enough transactions", deadline_s=_ENOUGH_DEADLINE_S
        )
        stop.set()
        for thread in threads:
            thread.finish()
        result.stuck = _drain(broker.address, clients)
        # With a hanging transaction no log is at rest.
        if not result.stuck:
            _inspect(kind, broker, folder / "copy", result)
    finally:
        broker.close()
    return result


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
    topics = [NewTopic(topic, PARTITIONS, 1, config=dict(_TOPIC_SETTINGS)) for topic in (IN, OUT)]
    for created in admin.create_topics(topics).values():
        created.result(END_DEADLINE_S)


class Nemesis:
    """A source of faults at random times."""

    def __init__(self, broker: Broker, recorder: Recorder, chance: random.Random, longest_pause_s: float) -> None:
        self._broker = broker
        self._recorder = recorder
        self._chance = chance
        self._longest_pause_s = longest_pause_s

    def inject(self, end: float, every_s: float, ways: Sequence[str]) -> Counter[str]:
        """Inject faults until `end`, and count them by kind; the broker runs when this returns."""
        faults: Counter[str] = Counter()
        known: dict[str, Callable[[], str]] = {
            "kill": self._kill,
            "pause": self._pause,
            "restart": self._restart,
        }
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, every_s * (0.5 + self._chance.random())))
            faults[known[self._chance.choice(sorted(ways))]()] += 1
        return faults

    def _kill(self) -> str:
        self._recorder.note("nemesis", INFO, "nemesis", "kill")
        self._broker.kill()
        self._broker.start()
        return "kill"

    def _restart(self) -> str:
        self._recorder.note("nemesis", INFO, "nemesis", "restart")
        self._broker.stop()
        self._broker.start()
        return "restart"

    def _pause(self) -> str:
        pause_s = draw_pause_s(self._chance, self._longest_pause_s)
        name = name_of_pause(pause_s)
        self._recorder.note("nemesis", INFO, "nemesis", f"{name}: {pause_s:.1f} s")
        self._broker.pause()
        time.sleep(pause_s)
        self._broker.resume()
        return name


def draw_pause_s(chance: random.Random, longest_s: float) -> float:
    """Draw the length of a pause: mostly short, sometimes longer than the session or the transaction timeout."""
    kind = chance.random()
    least_s, most_s = (
        (SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S)
        if kind < _LONG_SHARE
        else (TRANSACTION_TIMEOUT_S, LONGEST_PAUSE_S)
        if kind < 2 * _LONG_SHARE
        else (0, _SHORT_PAUSE_S)
    )
    return min(chance.uniform(least_s, most_s), longest_s)


def name_of_pause(pause_s: float) -> str:
    """Name a pause by the timeout that it exceeds."""
    if pause_s > TRANSACTION_TIMEOUT_S:
        return LONGEST_PAUSE
    return LONG_PAUSE if pause_s > SESSION_TIMEOUT_S else "pause"


def _drain(address: str, clients: list[Client]) -> list[str]:
    """Read everything to its end; return the transactions that do not end and the ends that readers do not reach."""
    deadline = time.monotonic() + _DRAIN_DEADLINE_S
    with RawClient(address) as client:
        while (open_still := under_way(client.send)) and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
        stuck = [f"transaction {name} does not end" for name in open_still]
        ends = {
            (topic, partition): high_watermark(client.send, topic, partition)
            for topic in (IN, OUT)
            for partition in range(PARTITIONS)
        }
    for each in clients:
        if isinstance(each, Reader):
            stuck += [f"{each.name} does not reach the end of {key}" for key in each.drain(ends, _DRAIN_DEADLINE_S)]
        each.close()
    return stuck


def _inspect(kind: str, broker: Broker, scratch: Path, result: WorkloadResult) -> None:
    """Kill the broker and inspect its folder; then restart it, stop it cleanly, and inspect the folder again."""
    restarts = result.faults["kill"] + result.faults["restart"]
    if kind != "broker_core":
        broker.stop()
        result.problems = inspect_files(broker.data, result.ops, restarts)
        return
    topics = {IN: PARTITIONS, OUT: PARTITIONS} | dict.fromkeys(
        ("__consumer_offsets", "__transaction_state"), _INTERNAL_PARTITIONS
    )
    before = _answers(broker, topics)
    left = LeftBehind(broker.data, SETTINGS, topics, (GROUP,), before, result.ops, restarts, cleanly=False)
    broker.kill()
    result.problems += [f"killed: {each}" for each in inspect_folder(left, scratch)]
    broker.start()
    result.problems += [f"restarted: {each}" for each in differences(before, _answers(broker, topics))]
    broker.stop()
    result.left = replace(left, restarts=restarts + 1, cleanly=True)
    result.problems += [f"stopped: {each}" for each in inspect_folder(result.left, scratch)]


def _answers(broker: Broker, topics: Mapping[str, int]) -> dict[str, Any]:
    with RawClient(broker.address) as client:
        return reported_state(client.send, topics, (GROUP,))


class _Thread(threading.Thread):
    """A thread that runs one client until it is stopped; `finish` raises the client's error."""

    def __init__(self, client: Client, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._stop_asked = stop
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._client.step()
        except Exception as failure:
            self._failure = failure

    def finish(self) -> None:
        """Wait until the client has stopped."""
        # An open transaction ends within its own deadlines: begin, commit and abort at most.
        self.join(4 * END_DEADLINE_S)
        assert not self.is_alive(), f"{self._client} does not end"
        if self._failure is not None:
            raise self._failure
