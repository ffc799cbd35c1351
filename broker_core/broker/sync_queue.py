"""Effects that wait until what they promise is durable: persist before send."""

from collections.abc import Callable

Effect = Callable[[int], None]


class SyncQueue:
    """The effects of handled requests, in their order."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def put(self, effect: Effect) -> None:
        """Queue an effect; it is called with the time when it may happen."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Take all effects; the caller makes durable what they promise before it lets them happen."""
        effects, self._effects = self._effects, []
        return effects
