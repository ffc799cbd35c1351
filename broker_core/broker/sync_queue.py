"""The queue of effects that wait until the writes they confirm are durable."""

from collections.abc import Callable

Effect = Callable[[int], None]


class SyncQueue:
    """The effects of handled requests, in order."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def put(self, effect: Effect) -> None:
        """Queue an effect; it is called with the time when it runs."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Take all effects; the caller syncs the writes they confirm before it runs them."""
        effects, self._effects = self._effects, []
        return effects
