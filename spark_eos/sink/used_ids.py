"""Count the transactional ids that a run uses, and warn where each task makes one.

A transactional id belongs to one Python worker process. As long as Spark keeps its workers, a run needs about one id
for each task that runs at a time. Where it does not, each task of each micro-batch makes one, and coordinators remember
each of them for seven days.
"""

import logging
from collections.abc import Sequence
from typing import Final

from spark_eos.sink.messages import Prepared, TaskMessage
from spark_eos.sink.metrics import METRICS

LOG: Final = logging.getLogger("spark_eos.sink")
_REMEMBERED: Final = 10_000


class UsedIds:
    """Remember the ids of one run; of very many the last ones only, so that one that comes back may count twice."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._is_warned = False

    def note(self, query: str, messages: Sequence[TaskMessage]) -> None:
        """Count what was not seen before; warn once of workers that serve one task only."""
        prepared = [message for message in messages if isinstance(message, Prepared)]
        new = dict.fromkeys(name for each in prepared if (name := each.transaction.transactional_id) not in self._seen)
        METRICS.add("transactional_ids_used", len(new))
        self._seen |= new
        for oldest in list(self._seen)[:-_REMEMBERED]:
            del self._seen[oldest]
        if not self._is_warned and any(not each.is_worker_kept for each in prepared):
            self._is_warned = True
            LOG.warning(
                "query %s: spark.python.worker.reuse is false, so every task makes a transactional id of its own, and "
                "brokers keep each in memory for transactional.id.expiration.ms (7 days by default). Set "
                "spark.python.worker.reuse=true",
                query,
            )
