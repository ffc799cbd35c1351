"""What the console has seen, kept in memory with bounds: states of transactional ids, and standstills of partitions."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_core.types import TopicPartition

MOST_IDS: Final = 20_000
MOST_STATES: Final = 50


class SeenState(NamedTuple):
    """A state of a transactional id and the time at which it was first seen."""

    at_ms: int
    state: str
    producer_id: int
    producer_epoch: int | None
    partition_count: int | None = None


class StateHistory:
    """The last states of transactional ids; the ids that have changed least recently are dropped first."""

    def __init__(self, most_ids: int = MOST_IDS, most_states: int = MOST_STATES) -> None:
        self._most_ids, self._most_states = most_ids, most_states
        self._seen: OrderedDict[str, deque[SeenState]] = OrderedDict()
        # The collector writes while pages read.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._seen)

    def note(self, transactional_id: str, state: SeenState) -> None:
        """Add a state if it differs from the last one; a state without an epoch adds nothing to one that has it."""
        with self._lock:
            self._note(transactional_id, state)

    def _note(self, transactional_id: str, state: SeenState) -> None:
        states = self._seen.get(transactional_id)
        if states is None:
            states = self._seen[transactional_id] = deque(maxlen=self._most_states)
        elif states and _repeats(states[-1], state):
            return
        elif states and states[-1].state == state.state and states[-1].producer_epoch is None:
            # The listing showed it first, without the epoch.
            state = state._replace(at_ms=states.pop().at_ms)
        states.append(state)
        self._seen.move_to_end(transactional_id)
        while len(self._seen) > self._most_ids:
            self._seen.popitem(last=False)

    def of(self, transactional_id: str) -> tuple[SeenState, ...]:
        """Return the states of an id, the oldest first."""
        with self._lock:
            return tuple(self._seen.get(transactional_id, ()))

    def matching(self, beginning: str) -> dict[str, tuple[SeenState, ...]]:
        """Return the histories of the ids that begin with a text."""
        with self._lock:
            return {name: tuple(states) for name, states in self._seen.items() if name.startswith(beginning)}


def _repeats(last: SeenState, state: SeenState) -> bool:
    same = last.state == state.state and last.producer_id == state.producer_id
    return same and (state.producer_epoch in (None, last.producer_epoch))


@dataclass(frozen=True, slots=True)
class Standstill:
    """A partition whose LSO is below its high watermark; `since_ms` is when this LSO was first seen so."""

    topic_partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    since_ms: int

    @property
    def lag(self) -> int:
        """Return the number of offsets that committed readers cannot reach."""
        return self.high_watermark - self.last_stable_offset


class Standstills:
    """The partitions that wait; the wait of one whose LSO moves begins again."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, Standstill] = {}

    def note(
        self,
        stable: Mapping[TopicPartition, int | None],
        high: Mapping[TopicPartition, int | None],
        looked_at: Iterable[TopicPartition],
        now_ms: int,
    ) -> None:
        """Replace what is known of the partitions that were looked at."""
        for place in looked_at:
            last, end, before = stable.get(place), high.get(place), self._known.get(place)
            if last is None or end is None or last >= end:
                self._known.pop(place, None)
                continue
            is_same = before is not None and before.last_stable_offset == last
            since_ms = before.since_ms if before is not None and is_same else now_ms
            self._known[place] = Standstill(place, last, end, since_ms)

    def keep_only(self, existing: Iterable[TopicPartition]) -> None:
        """Drop partitions that no longer exist."""
        kept = set(existing)
        self._known = {place: each for place, each in self._known.items() if place in kept}

    @property
    def known(self) -> dict[TopicPartition, Standstill]:
        """Return all of them."""
        return dict(self._known)
