"""The kinds of faults in a simulation, their probabilities, and the number of their occurrences.

A fault that is configured but never occurs tests nothing, so each is counted where it takes effect.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """A kind of fault."""

    DELAYED = "message delayed"
    FRAGMENTED = "message in pieces"
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    LATE_REQUEST = "request handled after its sender gave up"
    DUPLICATED = "request handled twice"
    REORDERED = "requests of one client reordered"
    REFUSED = "connection refused"
    PARTITIONED = "client cut off"
    HELD_BACK = "message delayed by a network partition"
    POWER_LOST = "power lost"
    POWER_LOST_WRITING = "power lost in the middle of writing"
    KILLED = "process killed"
    RESTARTED = "cluster started again"
    TORN_WRITE = "unsynced bytes survived in part"
    FORGOTTEN_WRITE = "unsynced bytes forgotten"
    DISK_FULL = "write refused by a full disk"
    STOPPED_FULL = "broker stopped by a full disk"
    SYNC_FAILED = "sync failed"
    STOPPED_UNSYNCED = "broker stopped by a failed sync"
    BROKER_DOWN = "broker shut down"
    LEADER_MOVED = "leader moved"
    COORDINATOR_MOVED = "coordinator moved"
    LEADER_AWAY = "leader offline for a while"
    COORDINATOR_AWAY = "coordinator offline for a while"
    STALE_BROKER = "broker cut off from the others"
    CLOCK_AHEAD = "clock jumped ahead"
    CLOCK_BACK = "clock set back at a start"
    CLIENT_CLOCK = "client's clock jumped"
    BROKER_PAUSED = "cluster paused"
    CLIENT_PAUSED = "client paused"
    CLIENT_KILLED = "client killed"
    ZOMBIE = "client returned as a zombie"
    DECIDED_AND_LOST = "driver died between decision and completion, and a part timed out"
    FEATURE_CHANGED = "feature level changed"


class FaultCounts:
    """The number of occurrences of each kind of fault."""

    def __init__(self) -> None:
        self.by_kind: Counter[FaultKind] = Counter()

    def record(self, fault: FaultKind, times: int = 1) -> None:
        self.by_kind[fault] += times


def never_occurred(counts: Counter[FaultKind], switched_off: Collection[FaultKind] = ()) -> list[FaultKind]:
    """Return the kinds that are switched on and have not occurred, in the order of `FaultKind`."""
    return [fault for fault in FaultKind if not counts[fault] and fault not in switched_off]


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """The latency of messages and the probability of each fault; times are in microseconds."""

    latency_us: tuple[int, int] = (200, 4_000)
    slow_chance: float = 0.0
    slow_us: tuple[int, int] = (100_000, 5_000_000)
    # The same for requests that write records or change a transaction: around and above a client's request timeout.
    aimed_slow_chance: float = 0.0
    aimed_slow_us: tuple[int, int] = (900_000, 3_000_000)
    fragment_chance: float = 0.0
    lose_request_chance: float = 0.0
    lose_answer_chance: float = 0.0
    settle_delay_us: tuple[int, int] = (0, 3_000)


NO_FAULTS = NetworkConditions()
