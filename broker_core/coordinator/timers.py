"""The deadlines of a group coordinator: sessions, joins, syncs, revocations and the next expiration.

They read no clock and take no action; they only return what is due.
"""

import heapq
from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    """The kind of a deadline."""

    MEMBER = "a member sent nothing for its session timeout, or a new member did not return"
    JOIN = "the time for members to join is over"
    SYNC = "the time for members to sync is over"
    CONSUMER_SESSION = "a member of a consumer group sent no heartbeat for its session timeout"
    CONSUMER_REVOCATION = "the time for a member of a consumer group to revoke partitions is over"
    FEATURE = "a deadline of a member of a group of a feature"
    CONSUMER_JOIN = "the time for a classic member of a consumer group to join again is over"
    CONSUMER_SYNC = "the time for a classic member of a consumer group to sync is over"
    EXPIRY = "find expired offsets and groups"


class TimerKey(NamedTuple):
    """The key of one deadline; there is at most one for each key."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Timers:
    """One deadline for each key.

    Every heartbeat postpones its member's deadline, so a later deadline costs one dictionary write: the
    heap keeps the earlier entry and corrects it when that entry is due.
    """

    def __init__(self) -> None:
        self._deadline_ms: dict[TimerKey, int] = {}
        self._queued_ms: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._serial = 0

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        self._deadline_ms[key] = deadline_ms
        if key not in self._queued_ms or self._queued_ms[key] > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: TimerKey) -> None:
        self._deadline_ms.pop(key, None)

    def deadline_ms(self, key: TimerKey) -> int | None:
        return self._deadline_ms.get(key)

    def next_deadline_ms(self) -> int | None:
        self._drop_superseded()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> TimerKey | None:
        """Remove and return the key with the earliest deadline if it is due, else return None."""
        self._drop_superseded()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        key = self._pop()
        del self._deadline_ms[key]
        return key

    def _push(self, key: TimerKey, deadline_ms: int) -> None:
        self._serial += 1
        self._queued_ms[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._serial, key))

    def _pop(self) -> TimerKey:
        queued_ms, _, key = heapq.heappop(self._heap)
        if self._queued_ms.get(key) == queued_ms:
            del self._queued_ms[key]
        return key

    def _drop_superseded(self) -> None:
        while self._heap:
            queued_ms, _, key = self._heap[0]
            deadline_ms = self._deadline_ms.get(key)
            if deadline_ms == queued_ms:
                return
            self._pop()
            if deadline_ms is not None and key not in self._queued_ms:
                self._push(key, deadline_ms)
