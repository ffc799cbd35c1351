"""Offset maps: Spark's JSON form, and how much of a backlog one micro-batch takes.

An offset is always the next one to read, as in Spark's checkpoints.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from broker_core.types import NO_LEADER_EPOCH, TopicPartition
from spark_eos.client.metadata import is_other_topic
from spark_eos.errors import EosKafkaError
from spark_eos.options.source import SourceOptions
from spark_eos.runtime import Clock
from spark_eos.spark_api import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

OffsetMap = dict[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]

# No topic can have such a name, and an entry without partitions means nothing to a reader of offsets: Spark's own Kafka
# source continues from a checkpoint that has one, and drops it.
_NOTE: Final = "eos-kafka: "


@dataclass(frozen=True)
class SourceOffset:
    """What Spark stores for each micro-batch in the checkpoint: the offsets, and what else has to survive a restart.

    `topic_ids` are the topics that the offsets belong to: another topic can have the same name later. `begins` is
    set if the micro-batch does not begin where the one before ends: a source's first one, whose start Spark does not
    store and asks for again, and one after the loss of a log's end. `leader_epochs` belong to leaders that had all
    records before the offsets: a log that was truncated since and has grown again does not show otherwise.
    """

    offsets: OffsetMap
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    begins: OffsetMap | None = None
    leader_epochs: OffsetMap = field(default_factory=dict)

    def to_json(self) -> JsonOffsets:
        """Return the form that Spark stores; all notes are in one entry without partitions, as JSON in its name."""
        note: dict[str, Any] = {}
        if self.topic_ids:
            note["topicIds"] = {topic: str(self.topic_ids[topic]) for topic in sorted(self.topic_ids)}
        if self.begins is not None:
            note["firstStart"] = to_json_offsets(self.begins)
        if self.leader_epochs:
            note["leaderEpochs"] = to_json_offsets(self.leader_epochs)
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
            epochs = from_json_offsets(note.get("leaderEpochs", {}))
        except (AttributeError, TypeError, ValueError):
            raise _not_an_offset(form) from None
        return cls(offsets, topic_ids, None if start is None else from_json_offsets(start), epochs)

    def is_other_topic(self, topic: str, topic_id: UUID | None) -> bool:
        """Return whether an id shows that the offsets belong to another topic of this name."""
        return is_other_topic(self.topic_ids.get(topic), topic_id)


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


@dataclass(frozen=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition, and what the driver knew about their place.

    The topic id lets a task detect that the topic was deleted and created again since the plan; the leader is a hint,
    and the task looks for another if it has moved. `end_epoch` is the epoch of the leader that returned the end: a task
    that reads from a newer one asks it whether the log still reaches that far (-1: the end comes from the user, or from
    a checkpoint without epochs).
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    leader_id: int = -1
    leader_epoch: int = NO_LEADER_EPOCH
    end_epoch: int = NO_LEADER_EPOCH

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Return the number of offsets; there can be fewer records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Drop empty ranges, limit each to `max_records` offsets, then split until there are about `min_partitions`."""
    pieces = [piece for piece in ranges if piece.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-piece.size // max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = list(_reach(pieces, min_partitions))
    return pieces


def _reach(pieces: Sequence[OffsetRange], wanted: int) -> Iterator[OffsetRange]:
    """Split large ranges in proportion to their size; ranges too small to split do not affect the others' shares."""
    total = sum(piece.size for piece in pieces)
    whole = {piece for piece in pieces if _share(piece.size, total, wanted) == 1}
    rest = total - sum(piece.size for piece in whole)
    shares = max(wanted - len(whole), 1)
    for piece in pieces:
        yield from [piece] if piece in whole else _cut(piece, _share(piece.size, rest, shares))


def _share(size: int, total: int, wanted: int) -> int:
    return max(1, (2 * size * wanted + total) // (2 * total))


def _cut(piece: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """Split into `count` parts whose sizes differ by one at most; fewer if there are not as many offsets."""
    count = min(count, piece.size)
    bounds = [piece.start + piece.size * part // count for part in range(count + 1)]
    for start, end in pairwise(bounds):
        if end > start:
            yield replace(piece, start=start, end=end)


def default_limit(options: SourceOptions) -> ReadLimit:
    """Return the limit of a query whose trigger sets none."""
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    least = options.min_offsets_per_trigger
    return ReadAllAvailable() if least is None else ReadMinRows(least)


class AdmissionControl:
    """The rules of `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

    Spark's Python API has no composite limit, so the default limit has one number and the rest is kept here.
    """

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self.default_limit = default_limit(options)
        self._least = options.min_offsets_per_trigger
        self._longest_wait_seconds = options.max_trigger_delay_ms / 1_000
        self._clock = clock
        self._last_batch_at: float | None = None

    def admit(
        self,
        start: Mapping[TopicPartition, int],
        available: Mapping[TopicPartition, int],
        limit: ReadLimit,
        *,
        may_wait: bool = True,
    ) -> OffsetMap:
        """Return where the micro-batch ends: at `start` if it should wait for more.

        `may_wait` is false for Trigger.AvailableNow, for which nothing more will arrive.
        """
        if isinstance(limit, ReadAllAvailable):
            return dict(available)
        if not isinstance(limit, ReadMaxRows | ReadMinRows):
            raise EosKafkaError(
                f"The read limit {limit!r} cannot be applied to Kafka", remedy="Limit with maxOffsetsPerTrigger"
            )
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._least
        if least is not None and may_wait and self._should_wait(new_offset_count(start, available), least):
            return dict(start)
        return limit_offsets(start, available, limit.max_rows) if isinstance(limit, ReadMaxRows) else dict(available)

    def _should_wait(self, new_offsets: int, least: int) -> bool:
        now = self._clock.monotonic()
        first = self._last_batch_at is None
        waited = first or now - (self._last_batch_at or 0.0) >= self._longest_wait_seconds
        if new_offsets < least and not waited:
            return True
        self._last_batch_at = now
        return False
