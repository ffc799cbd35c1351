"""Say what the core knows of the door a client came in by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.security.sasl import SaslSettings

if TYPE_CHECKING:
    from broker_core.broker.cluster import Address

PLAINTEXT = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Listener:
    """Hold a listener's name, where each broker has it, and what it asks of clients; no SASL: they are known already.

    A client can reach the other brokers by its own listener only, so those are the addresses it is told.
    """

    name: str
    addresses: "Mapping[int, Address]"
    sasl: SaslSettings | None = None
