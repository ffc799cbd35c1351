"""What the sink needs to know of every broker, and whether it verifies transactions (KIP-890, part 1).

A partition leader that verifies transactions asks the coordinator whether a transaction is open before it appends a
batch. Any other treats a late write as the beginning of a new transaction, which no coordinator knows and nothing ends.

Leaders verify from Kafka 3.6 on, unless `transaction.partition.verification.enable` is off. They ask the coordinator,
so a mixed cluster verifies only if both brokers are new. Under transactions V2 the setting does not matter: a leader
adds the partition to its transaction at the coordinator before the first append, the coordinator refuses an epoch that
has ended, and the marker raises the epoch in the partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.needed_apis import BrokerFacts, ask_brokers
from spark_eos.client.transactions import TV2

VERIFICATION: Final = "transaction.partition.verification.enable"
TIMEOUT_LIMIT: Final = "transaction.max.timeout.ms"
REPLICATION: Final = "default.replication.factor"
OFFSETS_REPLICATION: Final = "offsets.topic.replication.factor"
MIN_INSYNC: Final = "min.insync.replicas"
_SETTINGS: Final = (VERIFICATION, TIMEOUT_LIMIT, REPLICATION, OFFSETS_REPLICATION, MIN_INSYNC)
# The first version that asks instead of adding; brokers support it from Kafka 3.6 on.
_FIRST_VERIFYING: Final = 4
_PATIENCE_MS: Final = 5_000
# For a running query: a broker that is silent counts as before.
_LATER_PATIENCE_MS: Final = 1_000


@dataclass(slots=True)
class BrokerCapabilities:
    """What each broker has reported about itself last."""

    facts: dict[int, BrokerFacts] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()

    def complete(self, client: KafkaClient) -> None:
        """Query all brokers, which may have another version or other settings by now; wait only briefly again."""
        asked = {broker.node_id for broker in client.brokers()}
        patience_ms = _LATER_PATIENCE_MS if self.facts else _PATIENCE_MS
        self.facts |= ask_brokers(client, asked, _SETTINGS, timeout_ms=patience_ms)
        self.silent = frozenset(asked - self.facts.keys())

    def numbers(self, setting: str) -> list[int]:
        texts = (facts.settings.get(setting) for facts in self.facts.values())
        return [int(text) for text in texts if text]

    def unverifying(self, transaction_version: int) -> Mapping[int, str]:
        """Return the brokers that do not verify transactions, and why; an unreadable setting counts as the default."""
        found = {}
        for node_id, facts in sorted(self.facts.items()):
            highest = facts.add_partitions_version
            if highest < _FIRST_VERIFYING:
                found[node_id] = f"supports AddPartitionsToTxn only up to version {highest} (brokers before Kafka 3.6)"
            elif transaction_version < TV2 and (facts.settings.get(VERIFICATION) or "").strip().lower() == "false":
                found[node_id] = f"has {VERIFICATION}=false"
        return found

    @property
    def troubles(self) -> list[str]:
        silent = [f"broker {node_id} gives no usable response" for node_id in sorted(self.silent)]
        return silent + [str(facts.trouble) for facts in self.facts.values() if facts.trouble is not None]
