"""The transaction that blocks a partition's last stable offset, for a warning in the log."""

from collections.abc import Callable
from typing import NamedTuple

from broker_core.types import TopicPartition
from spark_eos.client.active_producers import ActiveProducer, open_transactions
from spark_eos.client.inspection import (
    LOST_ITS_MARKER,
    SEE_EVERY_ID,
    TransactionDescription,
    describe_transactions,
    list_by_broker,
    sees_every_id,
)
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.errors import EosKafkaError
from spark_eos.options.operator_commands import OperatorCommands

_TIMEOUT_MS = 5_000


class LsoBlocker(NamedTuple):
    """The text about a blocking transaction, and all partitions it will end in, if known."""

    words: str
    partitions: frozenset[TopicPartition] = frozenset()


def name_lso_blocker(client: KafkaClient, topic_partition: TopicPartition) -> str:
    """Describe the oldest open transaction of a partition and how to end it; a missing response never raises."""
    return LsoBlockerSearch(client).find(topic_partition).words


class LsoBlockerSearch:
    """A search for the transactions that block some partitions, which looks up each producer once.

    A partition costs one request to its leader. A producer costs one to each broker, since any of them can be its
    coordinator, and one to the coordinator.
    """

    def __init__(self, client: KafkaClient, clock: Callable[[], float] | None = None) -> None:
        self._client = client
        self._clock = clock or (lambda: client.runtime.clock.time_ns() / 1_000_000_000)
        self._commands = OperatorCommands.of(client.options)
        self._owners: dict[int, list[str]] = {}

    def find(self, topic_partition: TopicPartition) -> LsoBlocker:
        """Describe the oldest open transaction of a partition; a missing response never raises."""
        try:
            return self._find(topic_partition)
        except EosKafkaError as error:
            return LsoBlocker(f"The transaction could not be identified: {error}")

    def _find(self, topic_partition: TopicPartition) -> LsoBlocker:
        place = OffsetLookup(self._client).places([topic_partition.topic]).get(topic_partition)
        if place is None:
            return LsoBlocker("Its topic was deleted in the meantime.")
        opened = open_transactions(self._client, topic_partition, place.leader_id, timeout_ms=_TIMEOUT_MS)
        if not opened:
            return LsoBlocker("It ended in the meantime.")
        oldest = opened[0]
        owners = self._owners_of(oldest.producer_id)
        described = describe_transactions(self._client, owners[:1], timeout_ms=_TIMEOUT_MS)
        for each in described.values():
            if each.will_end(topic_partition, oldest.producer_id, oldest.producer_epoch):
                return LsoBlocker(self._live(oldest, each), frozenset(each.topic_partitions))
        again = open_transactions(self._client, topic_partition, place.leader_id, timeout_ms=_TIMEOUT_MS)
        if oldest.transaction not in [each.transaction for each in again]:
            # Its marker was written while the coordinators were queried, so they rightly did not know it.
            return LsoBlocker("It ended in the meantime.")
        who = f"It is a transaction of producer id {oldest.producer_id}, epoch {oldest.producer_epoch}"
        if not owners and not sees_every_id(self._client, timeout_ms=_TIMEOUT_MS):
            # A live transaction with a hidden id must not be mistaken for one that hangs.
            return LsoBlocker(
                f"{who}, whose transactional id is hidden from the query's principal. {SEE_EVERY_ID} to have it "
                f"named, or have an operator run `{self._commands.find_hanging(topic_partition.topic)}`."
            )
        committed = any(each.has_committed(oldest.producer_id, oldest.producer_epoch) for each in described.values())
        lost = f" {LOST_ITS_MARKER}" if committed else ""
        command = self._commands.abort(topic_partition, oldest.first_offset, commit=committed)
        return LsoBlocker(f"{who}, which no coordinator manages any more: it hangs.{lost} `{command}` ends it.")

    def _owners_of(self, producer_id: int) -> list[str]:
        if producer_id not in self._owners:
            listed = list_by_broker(self._client, producer_ids=[producer_id], timeout_ms=_TIMEOUT_MS)
            # A broker that does not know the filter lists every id.
            self._owners[producer_id] = sorted(
                {
                    each.transactional_id
                    for found in listed.values()
                    for each in found
                    if each.producer_id == producer_id
                }
            )
        return self._owners[producer_id]

    def _live(self, opened: ActiveProducer, described: TransactionDescription) -> str:
        age_seconds = max(0.0, self._clock() - described.start_time_ms / 1_000)
        return (
            f"It is the transaction of '{described.transactional_id}' (producer id {opened.producer_id}, epoch "
            f"{opened.producer_epoch}), in state {described.state} for {age_seconds:.0f} s, timeout "
            f"{described.transaction_timeout_ms / 1000:.0f} s. If its producer is dead, "
            f"`{self._commands.force_terminate(described.transactional_id)}` ends it."
        )
