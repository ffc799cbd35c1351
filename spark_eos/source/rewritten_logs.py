"""The detection, between micro-batches, of a log that was truncated although its offsets look right.

A leader that lagged behind was elected and truncated the log (KIP-320): other records are now at offsets that were
read. Offsets do not show that once the new log is as long as the old one was. Leader epochs are known only while the
query runs, so what happened while no query ran shows as an end before the start or not at all. A topic that was deleted
and created again has another id, which the checkpoint contains.
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
        now = {tp: seen for tp, seen in before.items() if tp in read} | {
            tp: _Seen(place.topic_id, ends.get(tp, LogPoint()).leader_epoch) for tp, place in places.items()
        }
        doubted = {
            tp: before[tp].leader_epoch
            for tp in read
            if tp in before
            and before[tp].topic_id == now[tp].topic_id
            and NO_LEADER_EPOCH < before[tp].leader_epoch < now[tp].leader_epoch
        }
        ended = self._lookup.epoch_ends(doubted) if doubted else {}
        # Not before: a look-up without a response is repeated.
        self._seen = now
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
