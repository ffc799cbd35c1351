"""Offset maps: Spark's JSON form, and how much of a backlog one micro-batch takes.

An offset is always the next one to read, as in Spark's checkpoints.
"""

from collections.abc import Mapping
from typing import Any

from broker_core.types import TopicPartition
from spark_eos.errors import EosKafkaError

OffsetMap = dict[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]


def to_json_offsets(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """Return `{"topic": {"0": 23}}`, with topics and partitions in order.

    Spark compares offsets as text to detect new data, so the order must always be the same.
    """
    form: JsonOffsets = {}
    for topic_partition in sorted(offsets):
        form.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return form


def from_json_offsets(form: Mapping[str, Any]) -> OffsetMap:
    """Parse what `to_json_offsets`, or Spark's own Kafka source, stored in a checkpoint."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in form.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise EosKafkaError(
            f"The checkpoint contains an offset that is not a Kafka offset: {form!r}",
            checked="""Expected e.g. {"topicA":{"0":23,"1":7}}""",
            remedy="Use the checkpoint that the query was started with, or a new one, which begins at startingOffsets: "
            "rows that were read are read again, or rows are skipped",
        ) from None


def new_offset_count(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Count the offsets between two maps; a partition that is in only one of them counts as empty."""
    return sum(max(0, offset - start.get(topic_partition, offset)) for topic_partition, offset in end.items())


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_offsets: int
) -> OffsetMap:
    """Take at most `max_offsets` of a backlog, from each partition in proportion to its share.

    A share below one is one: otherwise a small partition next to a huge one would never be read. The sum can therefore
    exceed the limit by less than the number of partitions, as with Spark's own source.
    """
    sizes = {tp: size for tp, offset in end.items() if (size := offset - start.get(tp, offset)) > 0}
    total = sum(sizes.values())
    return {
        tp: min(offset, offset - sizes[tp] + max(1, max_offsets * sizes[tp] // total)) if tp in sizes else offset
        for tp, offset in end.items()
    }
