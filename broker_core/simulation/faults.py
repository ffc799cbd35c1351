"""The kinds of faults a simulation injects, how likely they are, and how often each has occurred.

A planned fault that never occurs proves nothing, so each is counted where it takes effect.
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
        """Count `times` occurrences of a fault."""
        self.by_kind[fault] += times


def never_occurred(counts: Counter[FaultKind], switched_off: Collection[FaultKind] = ()) -> list[FaultKind]:
    """Return the kinds that have not occurred, without those that are switched off, in the order of `FaultKind`."""
    return [fault for fault in FaultKind if not counts[fault] and fault not in switched_off]


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """The latency of messages and the probability of each fault; times are in microseconds."""

    latency_us: tuple[int, int] = (200, 4_000)
    slow_chance: float = 0.0
    slow_us: tuple[int, int] = (100_000, 5_000_000)
    # The same for requests that write or change a transaction: just long enough for their client to give up.
    aimed_slow_chance: float = 0.0
    aimed_slow_us: tuple[int, int] = (900_000, 3_000_000)
    fragment_chance: float = 0.0
    lose_request_chance: float = 0.0
    lose_answer_chance: float = 0.0
    settle_delay_us: tuple[int, int] = (0, 3_000)


NO_FAULTS = NetworkConditions()
