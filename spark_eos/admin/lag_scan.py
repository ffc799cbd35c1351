"""What the console and `watch` request: partitions, offsets, open transactions, coordinators, verdicts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from broker_core.types import IsolationLevel, TopicPartition, TransactionState
from spark_eos.admin.hanging import HangingFinding, PartitionTransaction, judge
from spark_eos.client.active_producers import ActiveProducer
from spark_eos.client.inspection import TransactionListing, list_by_broker
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import TopicMetadata
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace
from spark_eos.client.transaction_admin import TransactionAdmin
from spark_eos.options.positions import LATEST

# The states of a transaction that has not ended. Brokers refuse a filter with a state that they do not know.
ACTIVE_STATES: Final = tuple(
    each.label for each in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
)
Ends = dict[TopicPartition, int | None]


def partition_places(client: KafkaClient) -> tuple[dict[TopicPartition, PartitionPlace], int]:
    """Return all partitions, the internal ones included, and the number of topics."""
    topics = client.metadata(None)
    return places_of(topics.values()), len(topics)


def places_of(topics: Iterable[TopicMetadata]) -> dict[TopicPartition, PartitionPlace]:
    """Return the partitions of topics with their leaders."""
    return {
        TopicPartition(topic.name, number): PartitionPlace(topic.topic_id, each.leader, each.leader_epoch)
        for topic in topics
        for number, each in topic.partitions.items()
    }


def ends(
    client: KafkaClient, places: Mapping[TopicPartition, PartitionPlace], wanted: Iterable[TopicPartition]
) -> tuple[Ends, Ends]:
    """Return the last stable offsets and the high watermarks, with two requests to each leader.

    The high watermark is requested first: so a last stable offset below it is blocked, and not only read earlier. A
    partition without a leader is left out, as looking it up would wait for an election.
    """
    led = [place for place in wanted if place in places and places[place].leader_id >= 0]
    if not led:
        return {}, {}
    lookup = OffsetLookup(client, places)
    high = lookup.offsets(dict.fromkeys(led, LATEST), IsolationLevel.READ_UNCOMMITTED)
    stable = lookup.offsets(dict.fromkeys(high, LATEST), IsolationLevel.READ_COMMITTED)
    return stable, high


def active_listing(client: KafkaClient) -> dict[str, tuple[int, TransactionListing]]:
    """Return the ids with a transaction that has not ended, each with its coordinator."""
    return {
        each.transactional_id: (node, each)
        for node, listings in list_by_broker(client, states=ACTIVE_STATES).items()
        for each in listings
        if each.state in ACTIVE_STATES
    }


def open_producers(
    client: KafkaClient, wanted: Collection[TopicPartition], max_in_flight: int
) -> tuple[dict[TopicPartition, list[ActiveProducer]], dict[TopicPartition, str]]:
    """Return the open transactions of partitions, oldest first, and why partitions could not be described."""
    unreadable: dict[TopicPartition, str] = {}
    admin = TransactionAdmin(client)
    described = admin.describe_producers(wanted, max_in_flight=max_in_flight, unreadable=unreadable)
    found = {
        place: sorted((each for each in producers if each.is_in_transaction), key=lambda each: each.first_offset)
        for place, producers in described.items()
    }
    return found, unreadable


def verdicts(client: KafkaClient, suspects: Sequence[PartitionTransaction]) -> list[HangingFinding]:
    """Judge open transactions as `find-hanging` does."""
    return judge(TransactionAdmin(client), suspects)
