"""Name the transaction that holds a partition's last stable offset, for the warning a user reads."""

import time
from collections.abc import Callable

from broker_core.types import TopicPartition
from spark_eos.client.active_producers import open_transactions
from spark_eos.client.connection import KafkaClient
from spark_eos.client.inspection import (
    LOST_ITS_MARKER,
    SEE_EVERY_ID,
    describe_transactions,
    list_transactions,
    sees_every_id,
)
from spark_eos.client.lookup import OffsetLookup
from spark_eos.errors import EosKafkaError
from spark_eos.operator_commands import OperatorCommands

# The query waits while this is asked, so a slow cluster must not hold it up for long.
_TIMEOUT_MS = 5_000


def name_blocker(client: KafkaClient, topic_partition: TopicPartition, clock: Callable[[], float] = time.time) -> str:
    """Describe the oldest open transaction of a partition and how to end it; never raises for want of an answer."""
    try:
        return _name(client, topic_partition, clock)
    except EosKafkaError as error:
        return f"It could not be named: {error}"


def _name(client: KafkaClient, topic_partition: TopicPartition, clock: Callable[[], float]) -> str:
    place = OffsetLookup(client).places([topic_partition.topic]).get(topic_partition)
    if place is None:
        return "Its topic was deleted meanwhile."
    opened = open_transactions(client, topic_partition, place.leader_id, timeout_ms=_TIMEOUT_MS)
    if not opened:
        return "It ended meanwhile."
    oldest = opened[0]
    commands = OperatorCommands.of(client.options)
    listed = list_transactions(client, timeout_ms=_TIMEOUT_MS)
    owners = [each.transactional_id for each in listed if each.producer_id == oldest.producer_id]
    described = describe_transactions(client, owners[:1], timeout_ms=_TIMEOUT_MS)
    for each in described.values():
        if each.will_end(topic_partition):
            age_seconds = max(0.0, clock() - each.start_time_ms / 1_000)
            return (
                f"It is the transaction of '{each.transactional_id}' (producer id {oldest.producer_id}, epoch "
                f"{oldest.producer_epoch}), {each.state} for {age_seconds:.0f} s, timeout "
                f"{each.transaction_timeout_ms / 1_000:.0f} s. If its producer is dead, "
                f"`{commands.force_terminate(each.transactional_id)}` ends it."
            )
    if oldest not in open_transactions(client, topic_partition, place.leader_id, timeout_ms=_TIMEOUT_MS):
        # Its marker was written while the coordinators were asked, so they had good reason not to know it.
        return "It ended meanwhile."
    if not owners and not sees_every_id(client, timeout_ms=_TIMEOUT_MS):
        # A live transaction whose id is hidden must not be taken for one that hangs.
        return (
            f"It is a transaction of producer id {oldest.producer_id}, epoch {oldest.producer_epoch}, whose "
            f"transactional id is hidden from the query's principal. {SEE_EVERY_ID} to have it named, or have an "
            f"operator run `{commands.find_hanging(topic_partition.topic)}`."
        )
    committed = any(each.has_committed(oldest.producer_id, oldest.producer_epoch) for each in described.values())
    lost = f" {LOST_ITS_MARKER}" if committed else ""
    return (
        f"It is a transaction of producer id {oldest.producer_id}, epoch {oldest.producer_epoch}, that no coordinator "
        f"has in hand any more: it hangs.{lost} "
        f"`{commands.abort(topic_partition, oldest.first_offset, commit=committed)}` ends it."
    )
