"""The commits of a query's progress to a consumer group, for tools that show lag.

Only the checkpoint determines the position of a query. So the group is written and never read, and a failed commit is
reported and blocks nothing: the next micro-batch commits again.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.types import TopicPartition
from spark_eos.client.group_offsets import OffsetAndMetadata, commit_offsets
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import EosKafkaError

logger = logging.getLogger(__name__)

# The query waits during the commit.
_TIMEOUT_MS: Final = 5_000
# Brokers delete the offsets of an idle query (offsets.retention.minutes), so it repeats its commit from time to time.
_REPEAT_SECONDS: Final = 600.0


class GroupCommits:
    """The commits to one group; logs once when they begin to fail and once when they succeed again."""

    def __init__(self, client: KafkaClient, group_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._group_id = group_id
        self._clock = clock
        self._committed: Mapping[TopicPartition, int] | None = None
        self._committed_at = 0.0
        self._failing: bool | None = None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit where reading continues, unless the group has it already; a missing response never raises."""
        if offsets == self._committed and self._clock() - self._committed_at < _REPEAT_SECONDS:
            return
        self._committed, self._committed_at = dict(offsets), self._clock()
        try:
            self._commit(offsets)
        except EosKafkaError as error:
            if not self._failing:
                logger.warning(
                    "The query's offsets could not be committed to group '%s', so lag tools show old ones; the "
                    "query is not affected: %s", self._group_id, error,
                )  # fmt: skip
            self._failing = True
            return
        if self._failing is not False:
            logger.info("The query's offsets are committed to group '%s' for lag tools", self._group_id)
        self._failing = False

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        positions = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        if positions:
            commit_offsets(self._client, self._group_id, positions, timeout_ms=_TIMEOUT_MS)
