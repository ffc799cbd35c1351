"""The intervals of the maintenance of logs."""

from dataclasses import replace
from typing import Any, cast

import pytest

from broker_core.broker.cluster import LogMaintenance
from broker_core.config import BrokerConfig

NOW_MS = 1_000


class NoLogs:
    """Logs of which none is open."""

    def opened(self) -> list[Any]:
        return []

    def with_files(self) -> list[Any]:
        return []


def test_time_passes_between_compactions_without_a_backoff():
    config = replace(BrokerConfig(), log_cleaner_backoff_ms=0)
    maintenance = LogMaintenance(cast(Any, NoLogs()), config, NOW_MS)
    assert maintenance.next_deadline_ms() == NOW_MS + 1
    maintenance.advance(NOW_MS + 1)
    assert maintenance.next_deadline_ms() == NOW_MS + 2
    maintenance.reconfigure(replace(config, log_cleaner_backoff_ms=50), NOW_MS + 2)
    assert maintenance.next_deadline_ms() == NOW_MS + 52


@pytest.mark.parametrize(("delay_ms", "interval_ms"), [(30_000, 300_000), (300_000, 300_000), (30_000, 1_000)])
def test_retention_is_first_checked_after_the_initial_delay_or_a_shorter_interval(delay_ms: int, interval_ms: int):
    checks: list[int] = []
    maintenance_ms: list[int] = []

    class Logs(NoLogs):
        def with_files(self) -> list[Any]:
            checks.append(maintenance_ms[-1])
            return []

    config = replace(
        BrokerConfig(),
        log_cleaner_enable=False,
        log_initial_task_delay_ms=delay_ms,
        log_retention_check_interval_ms=interval_ms,
    )
    maintenance = LogMaintenance(cast(Any, Logs()), config, NOW_MS)
    first_ms = min(delay_ms, interval_ms)
    for after_ms in (first_ms - 1, first_ms, first_ms + interval_ms - 1, first_ms + interval_ms):
        maintenance_ms.append(NOW_MS + after_ms)
        maintenance.advance(NOW_MS + after_ms)
    assert checks == [NOW_MS + first_ms, NOW_MS + first_ms + interval_ms]
