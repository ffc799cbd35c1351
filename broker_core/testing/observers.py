"""Observers of the embedded brokers of this process: the pytest plugin finds a failed test's brokers here.

The plugin is loaded in every run of pytest, so this module imports nothing that takes time.
"""

from typing import Any, Protocol


class BrokerObserver(Protocol):
    """What is called in the thread that starts or closes an `EmbeddedBroker`; it must not raise exceptions."""

    def started(self, broker: Any) -> None:
        """Take notice of a broker that has started."""

    def closing(self, broker: Any) -> None:
        """Take notice of a broker that is about to be closed, perhaps for the second time."""


OBSERVERS: list[BrokerObserver] = []
