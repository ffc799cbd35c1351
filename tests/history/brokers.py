"""Brokers of both kinds that can be stopped cleanly, and whose files can be read afterwards."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from tests.support.apache_kafka import DATA
from tests.support.broker_processes import Apache, Broker, BrokerCore

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class StoppableBroker(Broker, Protocol):
    """A broker whose files can be read after a clean stop."""

    @property
    def data(self) -> Path:
        """Return the folder that contains one folder for each partition."""


class StoppableBrokerCore(BrokerCore):
    """`python -m broker_core` with changed settings."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = _NOTHING) -> None:
        super().__init__(folder)
        with (folder / "broker.properties").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    @property
    def data(self) -> Path:
        """Return the folder of its logs."""
        return self._folder / "data"


class StoppableApache(Apache):
    """A KRaft node of Apache Kafka."""

    @property
    def data(self) -> Path:
        """Return the folder of its logs."""
        return self._folder / DATA


def make_broker(kind: str, folder: Path) -> StoppableBroker:
    """Return a broker that has not been started."""
    return {"broker_core": StoppableBrokerCore, "apache": StoppableApache}[kind](folder)
