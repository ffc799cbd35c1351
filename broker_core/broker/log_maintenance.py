"""The periodic maintenance of logs: retention, compaction, expiration of producers."""

import logging
from collections.abc import Callable

from broker_core.broker.log_manager import LogManager
from broker_core.config import BrokerConfig
from broker_core.errors import DamageError

logger = logging.getLogger(__name__)


class LogMaintenance:
    """The maintenance jobs and their intervals."""

    def __init__(self, logs: LogManager, config: BrokerConfig, now_ms: int) -> None:
        self._logs = logs
        # Each job with its interval.
        self._jobs: dict[Callable[[int], None], int] = {
            self._apply_retention: config.log_retention_check_interval_ms,
            self._expire_producers: config.producer_id_expiration_check_interval_ms,
        }
        if config.log_cleaner_enable:
            self._jobs[self._compact] = _backoff_ms(config)
        self._due_ms = {job: now_ms + interval_ms for job, interval_ms in self._jobs.items()}

    def reconfigure(self, config: BrokerConfig, now_ms: int) -> None:
        """Apply another `log.cleaner.backoff.ms`, the only interval that changes while brokers run."""
        backoff_ms = _backoff_ms(config)
        if self._jobs.get(self._compact, backoff_ms) != backoff_ms:
            self._jobs[self._compact] = backoff_ms
            self._due_ms[self._compact] = now_ms + backoff_ms

    def advance(self, now_ms: int) -> None:
        for job, interval_ms in self._jobs.items():
            if now_ms >= self._due_ms[job]:
                self._due_ms[job] = now_ms + interval_ms
                job(now_ms)

    def next_deadline_ms(self) -> int:
        return min(self._due_ms.values())

    def _apply_retention(self, now_ms: int) -> None:
        for each in self._logs.open_all(now_ms):
            if each.apply_retention(now_ms):
                self._logs.moved(each.topic_partition)

    def _expire_producers(self, now_ms: int) -> None:
        for each in self._logs.opened():
            each.expire_producers(now_ms)

    def _compact(self, now_ms: int) -> None:
        for each in self._logs.opened():
            if not each.compaction_due(now_ms):
                continue
            try:
                result = each.compact(now_ms)
            except DamageError as damage:
                # Its other segments stay readable, and recovery handles the damage at the next start.
                logger.warning("%s is not compacted: %s", each.topic_partition, damage)
                continue
            if result is not None:
                logger.info(
                    "%s compacted from %d to %d bytes", each.topic_partition, result.bytes_before, result.bytes_after
                )
                self._logs.moved(each.topic_partition)


def _backoff_ms(config: BrokerConfig) -> int:
    """Return the time between two compactions; without any, time would never pass."""
    return max(config.log_cleaner_backoff_ms, 1)
