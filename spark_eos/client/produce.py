"""ProduceRequests and their responses, by topic name or by topic id."""

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition, counted
from spark_eos.client.coordinator_requests import RESENT
from spark_eos.client.error_table import Api, classify, failure
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import FIRST_TV2_PRODUCE, grouped
from spark_eos.client.response_reader import asked_part

ACKS_ALL: Final = -1
# The first version with record batches.
_FIRST_PRODUCE: Final = 3
FIRST_TOPIC_ID_PRODUCE: Final = 13
_REASONS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """A leader's response about one batch."""

    topic_partition: TopicPartition
    error_code: int
    base_offset: int
    detail: str


def produce_request(
    transactional_id: str | None,
    batches: Sequence[tuple[TopicPartition, bytearray]],
    topic_ids: Mapping[str, uuid.UUID | None],
    timeout_ms: int,
    transaction_version: int = 0,
) -> ProduceRequest:
    """Make a request of one sealed batch for each partition; it has both topic name and id, the version uses one.

    From version 12 on the leader adds the partition to the transaction itself, as TV2 needs it, and TV1 must not.
    """
    lowest, highest = _FIRST_PRODUCE, FIRST_TV2_PRODUCE - 1
    if transaction_version >= 2:
        lowest, highest = FIRST_TV2_PRODUCE, FIRST_TV2_PRODUCE if None in topic_ids.values() else FIRST_TOPIC_ID_PRODUCE
    topic_class = ProduceRequest.TopicProduceData
    by_topic = grouped(
        (tp.topic, topic_class.PartitionProduceData(index=tp.partition, records=data)) for tp, data in batches
    )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=ACKS_ALL,
        timeout_ms=timeout_ms,
        topic_data=[
            topic_class(name=name, topic_id=topic_ids.get(name) or uuid.UUID(int=0), partition_data=partitions)
            for name, partitions in by_topic.items()
        ],
        min_version=lowest,
        max_version=highest,
    )


def produce_answers(response: ProduceResponse, topic_ids: Mapping[str, uuid.UUID | None]) -> Iterator[PartitionAnswer]:
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for each in topic.partition_responses:
            yield PartitionAnswer(TopicPartition(name, each.index), each.error_code, each.base_offset, _reasons(each))


def _reasons(answer: ProduceResponse.TopicProduceResponse.PartitionProduceResponse) -> str:
    """Return why a batch was refused, each reason once with its number of records.

    The message about the batch repeats the reasons of its records.
    """
    messages = [each.batch_index_error_message for each in answer.record_errors or ()]
    counts = Counter(message for message in messages if message is not None)
    if not counts:
        return answer.error_message or ""
    lines = [f"{counted(number, 'record')}: {text.rstrip('.')}" for text, number in counts.most_common(_REASONS_SHOWN)]
    left = len(counts) - len(lines)
    return "; ".join([*lines, counted(left, "other reason")] if left else lines)


def produce_alone(client: KafkaClient, topic_partition: TopicPartition, batch: bytearray, *, timeout_ms: float) -> None:
    """Append one batch outside of any transaction, for its leader to accept or refuse.

    It is sent again only after a retriable refusal: without a response (`UnansweredError`) it may have been appended.
    """
    deadline = client.deadline(timeout_ms)
    topic, number = topic_partition
    answer: PartitionAnswer
    for _ in client.attempts(deadline):
        found = client.require_topics([topic], timeout_ms=client.remaining_ms(deadline))[topic]
        request = produce_request(None, [(topic_partition, batch)], {}, client.options.request_timeout_ms)
        response = client.send(found.partitions[number].leader, request, timeout_ms=client.remaining_ms(deadline))
        answer = asked_part(
            produce_answers(response, {}), lambda each: each.topic_partition == topic_partition, "Produce"
        )
        if answer.error_code == ErrorCode.NONE:
            return
        if classify(Api.PRODUCE, answer.error_code) not in RESENT:
            break
    raise failure(Api.PRODUCE, answer.error_code, str(topic_partition), detail=answer.detail)
