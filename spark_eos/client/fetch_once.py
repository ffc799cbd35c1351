"""One fetch from many partitions, each at one offset, with one request for each leader."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse

from broker_core.errors import ErrorCode
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.fetch import LAST_VERSION_WITH_TOPIC_NAMES, NO_SESSION_EPOCH, RETRIED, FetchedChunk, read_chunk
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import PartitionPlace, partition_error
from spark_eos.errors import EosKafkaError, UnansweredError
from spark_eos.options.source import FetchLimits

# So that a full response leaves out no partition.
_PARTITIONS_AT_ONCE: Final = 64
_ANSWERED: Final = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})
_Wanted = Mapping[TopicPartition, tuple[PartitionPlace, int]]


def fetch_once(
    client: KafkaClient, wanted: _Wanted, isolation: IsolationLevel, limits: FetchLimits, timeout_ms: float
) -> dict[TopicPartition, FetchedChunk | int]:
    """Return each leader's response, or its error code; a partition without a response is left out.

    A response may be empty if nothing is visible yet.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for place, (known, _) in wanted.items():
        by_leader.setdefault(known.leader_id, []).append(place)
    by_leader.pop(-1, None)
    shares = [
        (leader, places[at : at + _PARTITIONS_AT_ONCE])
        for leader, places in by_leader.items()
        for at in range(0, len(places), _PARTITIONS_AT_ONCE)
    ]
    with_ids = all(known.topic_id is not None for known, _ in wanted.values())
    newest = None if with_ids else LAST_VERSION_WITH_TOPIC_NAMES
    responses = client.send_all(
        [(leader, _request(wanted, places, isolation, limits, newest)) for leader, places in shares],
        timeout_ms=timeout_ms,
    )
    found: dict[TopicPartition, FetchedChunk | int] = {}
    for response in responses:
        if isinstance(response, EosKafkaError) and not isinstance(response, UnansweredError):
            raise response
        if not isinstance(response, EosKafkaError) and response.error_code == ErrorCode.NONE:
            found |= _answers(response, wanted, isolation)
    return found


def _request(
    wanted: _Wanted,
    places: Sequence[TopicPartition],
    isolation: IsolationLevel,
    limits: FetchLimits,
    newest: int | None,
) -> FetchRequest:
    form = FetchRequest.FetchTopic
    topics: dict[str, list[FetchRequest.FetchTopic.FetchPartition]] = {}
    for place in places:
        known, offset = wanted[place]
        topics.setdefault(place.topic, []).append(
            form.FetchPartition(
                partition=place.partition,
                current_leader_epoch=known.leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=limits.partition_max_bytes,
            )
        )
    ids = {place.topic: wanted[place][0].topic_id for place in places}
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(isolation),
        session_id=0,
        session_epoch=NO_SESSION_EPOCH,
        topics=[form(topic=name, topic_id=ids[name] or UUID(int=0), partitions=each) for name, each in topics.items()],
        forgotten_topics_data=[],
        max_version=newest,
    )


def _answers(
    response: FetchResponse, wanted: _Wanted, isolation: IsolationLevel
) -> dict[TopicPartition, FetchedChunk | int]:
    names = {known.topic_id: place.topic for place, (known, _) in wanted.items()}
    found: dict[TopicPartition, FetchedChunk | int] = {}
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for each in topic.partitions:
            place = TopicPartition(name, each.partition_index)
            if place in wanted:
                offset, code = wanted[place][1], each.error_code
                if code not in _ANSWERED and code not in RETRIED:
                    raise partition_error(place, code, f"fetching from offset {offset}")
                found[place] = read_chunk(place, each, offset, isolation) if code == ErrorCode.NONE else code
    return found
