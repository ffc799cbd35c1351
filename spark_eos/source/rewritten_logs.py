"""The detection, between micro-batches, of a log that was replaced although its offsets look right.

Two events put other records at offsets that were read: a leader that lagged behind was elected and truncated the log
(KIP-320), or the topic was deleted and created again. Offsets show neither once the new log is as long as the old one
was. What is compared here is known only while the query runs. A checkpoint, as Spark's own, contains offsets but
neither leader epochs nor topic ids, so what happened while no query ran shows as an end before the start or not at all.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from broker_core.types import NO_LEADER_EPOCH, TopicPartition
from spark_eos.client.leader_epoch_check import LogPoint
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.source.data_loss import DataLoss, DataLossPolicy


class EpochLookup(Protocol):
    """The look-up of where leader epochs ended: `OffsetLookup` queries brokers, tests use a table."""

    def epoch_ends(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return where leader epochs ended in the current logs, or None if there is no trace of one."""


class _Seen(NamedTuple):
    topic_id: UUID | None
    leader_epoch: int


class RewrittenLogs:
    """The comparison of what each partition's leader reports with what it reported before the last micro-batch."""

    def __init__(self, lookup: EpochLookup, losses: DataLossPolicy) -> None:
        self._lookup = lookup
        self._losses = losses
        self._seen: dict[TopicPartition, _Seen] = {}

    def check(
        self,
        read: Mapping[TopicPartition, int],
        places: Mapping[TopicPartition, PartitionPlace],
        ends: Mapping[TopicPartition, LogPoint],
    ) -> None:
        """Report partitions of which something below the offsets in `read` has changed."""
        before = self._seen
        # A partition that is invisible for a moment is remembered while it is read: it may return as another log.
        self._seen = {tp: seen for tp, seen in before.items() if tp in read} | {
            tp: _Seen(place.topic_id, ends.get(tp, LogPoint()).leader_epoch) for tp, place in places.items()
        }
        recreated = [tp for tp in sorted(read) if self._is_recreated(tp, before) and read[tp] > 0]
        # The plan reports a log that is shorter than what was read, with Spark's texts.
        recreated = [tp for tp in recreated if ends.get(tp, LogPoint()).offset >= read[tp]]
        if recreated:
            self._losses.report(
                DataLoss.TOPIC_RECREATED,
                "; ".join(
                    f"offsets 0 to {read[tp] - 1} of {tp} now contain records that are not read" for tp in recreated
                ),
            )
        doubted = {
            tp: before[tp].leader_epoch
            for tp in read
            if tp in before
            and before[tp].topic_id == self._topic_id(tp)
            and NO_LEADER_EPOCH < before[tp].leader_epoch < self._seen[tp].leader_epoch
        }
        ended = self._lookup.epoch_ends(doubted) if doubted else {}
        cut = [tp for tp in sorted(ended) if not LogPoint(doubted[tp], read[tp]).survives(ended[tp])]
        if cut:
            self._losses.report(
                DataLoss.LOG_TRUNCATED,
                "; ".join(
                    f"{tp} was read up to offset {read[tp]}, but leader epoch {doubted[tp]} "
                    + (
                        "is not in the current log; its records"
                        if ended[tp] is None
                        else f"ends at offset {ended[tp]} in the current log; the records from there"
                    )
                    + f" to offset {read[tp] - 1} are not read"
                    for tp in cut
                ),
            )

    def _topic_id(self, topic_partition: TopicPartition) -> UUID | None:
        seen = self._seen.get(topic_partition)
        return None if seen is None else seen.topic_id

    def _is_recreated(self, topic_partition: TopicPartition, before: Mapping[TopicPartition, _Seen]) -> bool:
        old = before[topic_partition].topic_id if topic_partition in before else None
        new = self._topic_id(topic_partition)
        return old is not None and new is not None and old != new
