"""What one broker says of a partition that another one does not know.

No single answer proves an absence: a broker that has just started, or is cut off from the others, lags behind them.
"""

from collections.abc import Mapping
from enum import Enum
from uuid import UUID

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.metadata import TopicMetadata, is_other_topic


class Word(Enum):
    """A broker has the partition, has none of this name, has another topic of this name, or it does not say."""

    HERE = "here"
    ABSENT = "absent"
    OTHER = "other"
    UNSURE = "unsure"


def word_of(answer: Mapping[str, TopicMetadata] | None, tp: TopicPartition, topic_id: UUID | None) -> Word:
    """Return what an answer (None: there is none) says of a partition of the topic with this id, if it is known."""
    topic = None if answer is None else answer.get(tp.topic)
    if topic is None:
        return Word.UNSURE
    if is_other_topic(topic_id, topic.topic_id):
        return Word.OTHER
    if tp.partition in topic.partitions:
        return Word.HERE
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Word.ABSENT
    if topic.error_code != ErrorCode.NONE:
        return Word.UNSURE
    # A topic keeps its partitions as long as it exists, so the answer is old if the ids are known and the same.
    return Word.UNSURE if None not in (topic_id, topic.topic_id) else Word.ABSENT
