"""The states of transactional ids that the console has seen, kept in memory with bounds."""

import threading
from collections import OrderedDict, deque
from typing import Final, NamedTuple

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
