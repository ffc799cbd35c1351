"""Name the ways in which records can be gone, and fail or go on as `failOnDataLoss` says."""

import logging
from dataclasses import dataclass
from enum import Enum

from spark_eos.errors import DataLossError

logger = logging.getLogger(__name__)


class DataLoss(Enum):
    """Carry the names of Spark's error classes below KAFKA_DATA_LOSS, and two for what Spark does not notice."""

    ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO = "an added partition does not start at offset 0"
    COULD_NOT_READ_OFFSET_RANGE = "offsets of the planned range are not in the log any more"
    INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS = "added partitions have no first offset; they may be deleted again"
    LOG_TRUNCATED = "a new leader has cut the log below what was read; other records may have the same offsets now"
    PARTITIONS_DELETED = "partitions that were being read are gone"
    PARTITION_OFFSET_CHANGED = "an end offset lies before the start; the topic was probably deleted and created again"
    START_OFFSET_RESET = "a starting offset is not in the log"
    TOPIC_RECREATED = "a topic was deleted and created again while it was being read"


@dataclass(frozen=True)
class DataLossPolicy:
    """Decide what becomes of a loss that was found."""

    fail: bool

    def report(self, loss: DataLoss, details: str) -> None:
        """Raise `DataLossError`, or warn when the user has said to go on without the records."""
        if not self.fail:
            logger.warning("KAFKA_DATA_LOSS.%s: %s: %s", loss.name, loss.value, details)
            return
        raise DataLossError(
            f"[KAFKA_DATA_LOSS.{loss.name}] Some data may have been lost: {loss.value}: {details}",
            checked="Retention may have removed the records, or the topic was deleted, before they were read",
            remedy="To go on without them, set the source option 'failOnDataLoss' to 'false'",
        )
