"""The transactional ids that a run uses."""

import logging
from collections.abc import Sequence
from typing import Final

from spark_eos.metrics import SINK_METRICS
from spark_eos.sink.messages import Prepared, TaskMessage

logger = logging.getLogger(__name__)
_REMEMBERED: Final = 10_000


class IdUsage:
    """The transactional ids that a run uses; warns if each task creates one.

    A transactional id belongs to one Python worker process. While Spark keeps its workers, a run needs about one id for
    each concurrent task. If Spark does not, each task of each micro-batch creates one, and coordinators remember each
    of them for seven days. Only the last ones are remembered here, so an id that returns may count twice.
    """

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._is_warned = False

    def note(self, query: str, messages: Sequence[TaskMessage]) -> None:
        """Count new ids; warn once about workers that serve only one task."""
        prepared = [message for message in messages if isinstance(message, Prepared)]
        new = dict.fromkeys(name for each in prepared if (name := each.transaction.transactional_id) not in self._seen)
        SINK_METRICS.add("transactional_ids_used", len(new))
        self._seen |= new
        for oldest in list(self._seen)[:-_REMEMBERED]:
            del self._seen[oldest]
        if not self._is_warned and any(not each.is_worker_kept for each in prepared):
            self._is_warned = True
            logger.warning(
                "query %s: spark.python.worker.reuse is false, so every task creates its own transactional id, "
                "and brokers keep each in memory for transactional.id.expiration.ms (7 days by default). Set "
                "spark.python.worker.reuse=true",
                query,
            )
