"""The faults, outages and snapshots of a control port, by the ids that its clients use."""

import threading
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class UnknownIdError(LookupError):
    """An id that does not exist, or not any more."""


class Handles(Generic[T]):
    """Objects of one kind by their ids, `most` at a time."""

    def __init__(self, kind: str, most: int) -> None:
        self._kind, self._most = kind, most
        self._found: dict[str, T] = {}
        self._numbers = count(1)
        self._lock = threading.RLock()

    def reserve(self) -> None:
        """Raise RuntimeError if there are as many objects as are allowed."""
        if len(self._found) >= self._most:
            raise RuntimeError(f"there are {self._most} {self._kind}s: remove some before you create another")

    def add(self, item: T) -> str:
        with self._lock:
            name = f"{self._kind}-{next(self._numbers)}"
            self._found[name] = item
            return name

    def get(self, name: str) -> T:
        with self._lock:
            if name not in self._found:
                known = ", ".join(self._found) or "none"
                raise UnknownIdError(f"there is no {self._kind} {name!r}; there are {known}")
            return self._found[name]

    def remove(self, name: str) -> T:
        with self._lock:
            found = self.get(name)
            del self._found[name]
            return found

    def ids(self) -> list[str]:
        return [name for name, _ in self.items()]

    def items(self) -> list[tuple[str, T]]:
        with self._lock:
            return list(self._found.items())
