"""The addresses of brokers, and the listeners that clients connect to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.security.sasl import SaslSettings

PLAINTEXT = "PLAINTEXT"


class Address(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener: its name, its address on each broker, and its SASL settings, None for a listener without SASL.

    A client connects to the other brokers through the same listener, so those are the addresses it is given.
    `all_addresses` has the addresses of every listener by name, where there are several.
    """

    name: str
    addresses: Mapping[int, Address]
    sasl: SaslSettings | None = None
    all_addresses: Mapping[str, Mapping[int, Address]] = field(default_factory=dict)
