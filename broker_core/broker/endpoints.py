"""The addresses at which clients reach brokers, and the listeners by which they come in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker_core.security.sasl import SaslSettings

PLAINTEXT = "PLAINTEXT"


class Address(NamedTuple):
    """The place where clients reach a broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener's name, where each broker has it, and what it asks of clients; no SASL: they are known already.

    A client can reach the other brokers by its own listener only, so those are the addresses it gets.
    """

    name: str
    addresses: Mapping[int, Address]
    sasl: SaslSettings | None = None
