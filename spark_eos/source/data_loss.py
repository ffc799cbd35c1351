"""The kinds of data loss, and the effect of `failOnDataLoss`."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker_core.types import NO_LEADER_EPOCH, TopicPartition
from spark_eos.client.metadata import is_earlier, is_other_topic
from spark_eos.client.offset_lookup import LogPoint, OffsetLookup, PartitionPlace
from spark_eos.errors import DataLossError
from spark_eos.metrics import SOURCE_METRICS
from spark_eos.source.offsets import SourceOffset

logger = logging.getLogger(__name__)
_CHECKED: Final = "The records may have been removed by retention, or the topic was deleted, before they were read"
_REMEDY: Final = "To continue without them, set the source option 'failOnDataLoss' to 'false'"
_HOW_TO_GO_ON: Final = (
    "To continue where the logs part, set the source option 'failOnDataLoss' to 'false': the records that the current "
    "log has from there are new, and each is read once"
)


class DataLoss(Enum):
    """Spark's error classes below KAFKA_DATA_LOSS, and two for losses that Spark does not detect."""

    ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO = "an added partition does not start at offset 0"
    COULD_NOT_READ_OFFSET_RANGE = "offsets of the planned range are no longer in the log"
    INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS = "added partitions have no first offset; they may have been deleted again"
    LOG_TRUNCATED = (
        "a new leader truncated the log below the offsets already read; other records may have the same offsets now"
    )
    PARTITIONS_DELETED = "partitions that were being read no longer exist"
    PARTITION_OFFSET_CHANGED = "an end offset lies before the start; the topic was probably deleted and created again"
    START_OFFSET_RESET = "a starting offset is not in the log"
    TOPIC_RECREATED = (
        "a topic that the checkpoint has read was deleted and created again, or these brokers are another cluster"
    )


_WORDS: Final[Mapping[DataLoss, tuple[str, str]]] = {
    DataLoss.TOPIC_RECREATED: (
        "The topic's id in the checkpoint, and at every broker now. What was not read of a deleted topic is gone",
        "To read the topic that is there now from its first record, set the source option 'failOnDataLoss' to 'false' "
        "and start the query with the same checkpoint. If it is the copy of another cluster, that reads its records a "
        "second time: to go on at the offsets of the checkpoint, see docs/spark/source.md#move-to-another-cluster",
    ),
    DataLoss.LOG_TRUNCATED: (
        "Asked the newer leader where the leader epoch that was read ends in its log. Records read past that "
        "offset are gone from the topic, but the output written from them remains",
        _HOW_TO_GO_ON,
    ),
}


@dataclass(frozen=True)
class DataLossPolicy:
    """The reaction to a detected loss."""

    fail: bool

    def report(self, loss: DataLoss, details: str) -> None:
        """Raise `DataLossError`, or warn if the user has chosen to continue without the records."""
        SOURCE_METRICS.add("data_losses")
        if not self.fail:
            logger.warning("KAFKA_DATA_LOSS.%s: %s: %s", loss.name, loss.value, details)
            return
        checked, remedy = _WORDS.get(loss, (_CHECKED, _REMEDY))
        raise DataLossError(
            f"[KAFKA_DATA_LOSS.{loss.name}] Some data may have been lost: {loss.value}: {details}",
            checked=checked,
            remedy=remedy,
        )


class RewrittenLogs:
    """The comparison of what each partition's leader reports with what it reported before the last micro-batch.

    It finds a log that was truncated although its offsets look right. A leader that lagged behind was elected and
    truncated the log (KIP-320): other records are now at offsets that were read. Offsets do not show that once the new
    log is as long as the old one was. The checkpoint has the leader epochs for what happened while no query ran; one of
    another format or an earlier version has none. A topic that was deleted and created again has another id, which the
    checkpoint contains, too.
    """

    def __init__(self, lookup: OffsetLookup, losses: DataLossPolicy) -> None:
        self._lookup = lookup
        self._losses = losses
        self._seen: dict[TopicPartition, PartitionPlace] = {}
        # What was read of a log, and where it parts; kept until the checkpoint says that it was read from there.
        self._cut: dict[TopicPartition, tuple[LogPoint, int]] = {}

    def check(
        self,
        read: Mapping[TopicPartition, int],
        places: Mapping[TopicPartition, PartitionPlace],
        ends: Mapping[TopicPartition, LogPoint],
        checkpoint: SourceOffset,
    ) -> dict[TopicPartition, int]:
        """Report partitions of which something below the offsets in `read` has changed.

        Return where the logs part. The current log's records from there are of later epochs, so none was read.
        """
        # An answer without an epoch takes nothing from what is known.
        before = self._seen | {
            tp: PartitionPlace(checkpoint.topic_ids.get(tp.topic), leader_epoch=epoch)
            for tp, epoch in checkpoint.leader_epochs.items()
            if self._seen.get(tp, PartitionPlace()).leader_epoch == NO_LEADER_EPOCH
        }
        # A partition that is invisible for a moment is remembered while it is read: it may return as another log.
        now = {tp: seen for tp, seen in before.items() if tp in read} | {
            tp: place._replace(leader_epoch=ends.get(tp, LogPoint()).leader_epoch) for tp, place in places.items()
        }
        doubted = {
            tp: before[tp].leader_epoch
            for tp in read
            if tp in before
            and not is_other_topic(before[tp].topic_id, now[tp].topic_id)
            and is_earlier(before[tp].leader_epoch, now[tp].leader_epoch)
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
                    + f" to offset {read[tp] - 1} were not read"
                    for tp in cut
                ),
            )
        # Not before: a look-up without a response is repeated, and a loss is reported until it is accepted.
        self._seen = now
        points = {
            tp: LogPoint(checkpoint.leader_epochs.get(tp, NO_LEADER_EPOCH), offset) for tp, offset in read.items()
        }
        self._cut = {tp: each for tp, each in self._cut.items() if points.get(tp) == each[0]}
        for tp in cut:
            if (parted := ended[tp]) is not None:
                _, earlier = self._cut.get(tp, (None, parted))
                self._cut[tp] = points[tp], min(parted, earlier)
        return {tp: offset for tp, (_, offset) in self._cut.items() if tp in ends}
