"""Offset maps: Spark's JSON form, and how much of a backlog one micro-batch takes.

An offset is always the next one to read, as in Spark's checkpoints.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from broker_core.types import TopicPartition
from spark_eos.errors import EosKafkaError

OffsetMap = dict[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]

# No topic can have such a name, and an entry without partitions means nothing to a reader of offsets: Spark's own Kafka
# source continues from a checkpoint that has one, and drops it.
_NOTE: Final = "eos-kafka: "


@dataclass(frozen=True)
class SourceOffset:
    """What Spark stores for each micro-batch in the checkpoint: the offsets, and what else has to survive a restart.

    `topic_ids` are the topics that the offsets belong to: another topic can have the same name later. `first_start` is
    set in the end of a source's first micro-batch and says where that begins. Spark stores no start, and asks for it
    again if that micro-batch is run again.
    """

    offsets: OffsetMap
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    first_start: OffsetMap | None = None

    def to_json(self) -> JsonOffsets:
        """Return the form that Spark stores; both notes are in one entry without partitions, as JSON in its name."""
        note: dict[str, Any] = {}
        if self.topic_ids:
            note["topicIds"] = {topic: str(self.topic_ids[topic]) for topic in sorted(self.topic_ids)}
        if self.first_start is not None:
            note["firstStart"] = to_json_offsets(self.first_start)
        form = to_json_offsets(self.offsets)
        return form | ({_NOTE + json.dumps(note, separators=(",", ":")): {}} if note else {})

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "SourceOffset":
        """Parse what `to_json`, an earlier version or Spark's own Kafka source stored in a checkpoint."""
        offsets = from_json_offsets(form)
        try:
            note: dict[str, Any] = next(
                (json.loads(name.removeprefix(_NOTE)) for name in form if name.startswith(_NOTE)), {}
            )
            topic_ids = {topic: UUID(topic_id) for topic, topic_id in note.get("topicIds", {}).items()}
            start = note.get("firstStart")
        except (AttributeError, TypeError, ValueError):
            raise _not_an_offset(form) from None
        return cls(offsets, topic_ids, None if start is None else from_json_offsets(start))

    def is_other_topic(self, topic: str, topic_id: UUID | None) -> bool:
        """Return whether an id shows that the offsets belong to another topic of this name."""
        known = self.topic_ids.get(topic)
        return known is not None and topic_id is not None and known != topic_id


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
        raise _not_an_offset(form) from None


def _not_an_offset(form: Mapping[str, Any]) -> EosKafkaError:
    return EosKafkaError(
        f"The checkpoint contains an offset that is not a Kafka offset: {form!r}",
        checked="""Expected e.g. {"topicA":{"0":23,"1":7}}""",
        remedy="Use the checkpoint that the query was started with, or a new one, which begins at startingOffsets: "
        "rows that were read are read again, or rows are skipped",
    )


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
