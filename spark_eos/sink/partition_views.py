"""The view of many partitions as committed readers see them, at one place in each."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.types import IsolationLevel, ProducerIdentity, TopicPartition
from spark_eos.client.fetch import FetchedChunk, OffsetsGoneError, RangeFetch
from spark_eos.client.fetch_once import fetch_once
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import FRESH_ENOUGH_MS
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.errors import TopicError, UnansweredError
from spark_eos.options.source import FetchLimits
from spark_eos.sink.protocol.answers import BatchTrace, CommittedView

# If nothing is visible yet, the response shows that and need not be delayed.
_LOOK: Final = FetchLimits(
    max_bytes=8 << 20, partition_max_bytes=1 << 16, min_bytes=1, max_wait_ms=1, poll_timeout_ms=60_000
)


def look_at(
    client: KafkaClient, offsets: Mapping[TopicPartition, int], wait_ms: int
) -> dict[TopicPartition, CommittedView | None]:
    """Return a view of each partition: None if the place is gone, and no entry if no leader responds in time."""
    found: dict[TopicPartition, CommittedView | None] = {}
    monotonic = client.runtime.clock.monotonic
    until = monotonic() + wait_ms / 1000
    attempt = 0
    while len(found) < len(offsets):
        wanted = {place: offset for place, offset in offsets.items() if place not in found}
        # After the first attempt, look up a leader that has moved.
        max_age_ms = FRESH_ENOUGH_MS if attempt == 0 else 0
        found |= _look_once(client, wanted, max(1.0, (until - monotonic()) * 1000), max_age_ms)
        if len(found) < len(offsets) and not client.back_off(attempt, until):
            break
        attempt += 1
    return found


def _look_once(
    client: KafkaClient, offsets: Mapping[TopicPartition, int], wait_ms: float, max_age_ms: int
) -> dict[TopicPartition, CommittedView | None]:
    try:
        places = _places(client, {place.topic for place in offsets}, wait_ms, max_age_ms)
    except UnansweredError:
        return {}
    found: dict[TopicPartition, CommittedView | None] = {place: None for place in offsets if place not in places}
    wanted = {place: (places[place], offset) for place, offset in offsets.items() if place in places}
    answers = fetch_once(client, wanted, IsolationLevel.READ_COMMITTED, _LOOK, wait_ms)
    for place, answer in answers.items():
        if isinstance(answer, FetchedChunk):
            if answer.batches or answer.last_stable_offset <= answer.position:
                found[place] = _view(answer)
        elif answer == ErrorCode.OFFSET_OUT_OF_RANGE:
            found |= _judge(client, place, *wanted[place], wait_ms)
    return found


def _places(
    client: KafkaClient, topics: Collection[str], wait_ms: float, max_age_ms: int
) -> dict[TopicPartition, PartitionPlace]:
    """Return the partitions of topics; one that no longer exists has no entry."""
    found: dict[TopicPartition, PartitionPlace] = {}
    for topic in topics:
        try:
            known = client.require_topics([topic], need_leaders=False, max_age_ms=max_age_ms, timeout_ms=wait_ms)[topic]
        except TopicError:
            continue
        found |= {
            TopicPartition(topic, number): PartitionPlace(known.topic_id, each.leader, each.leader_epoch)
            for number, each in known.partitions.items()
        }
    return found


def _judge(
    client: KafkaClient, topic_partition: TopicPartition, place: PartitionPlace, offset: int, wait_ms: float
) -> dict[TopicPartition, CommittedView | None]:
    """Distinguish records that are gone from a leader that has yet to catch up."""
    limits = replace(_LOOK, poll_timeout_ms=int(max(1.0, wait_ms)))
    fetch = RangeFetch(client, topic_partition, place, IsolationLevel.READ_COMMITTED, limits)
    try:
        chunk = next(fetch.chunks(offset, offset + 1), None)
    except (OffsetsGoneError, TopicError):
        return {topic_partition: None}
    except UnansweredError:
        return {}
    return {topic_partition: None if chunk is None else _view(chunk)}


def _view(chunk: FetchedChunk) -> CommittedView:
    traces = tuple(
        BatchTrace(h.base_offset, h.last_offset, ProducerIdentity(h.producer_id, h.producer_epoch), h.is_control)
        for _, h in chunk.batches
    )
    return CommittedView(chunk.last_stable_offset, traces, tuple(chunk.aborted))
