"""The intervals of the maintenance of logs."""

from dataclasses import replace
from typing import Any, cast

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


def test_retention_is_first_checked_after_the_initial_delay_then_in_its_interval():
    checks: list[int] = []
    maintenance_ms: list[int] = []

    class Logs(NoLogs):
        def with_files(self) -> list[Any]:
            checks.append(maintenance_ms[-1])
            return []

    maintenance = LogMaintenance(cast(Any, Logs()), replace(BrokerConfig(), log_cleaner_enable=False), NOW_MS)
    for now_ms in (29_999, 30_000, 329_999, 330_000):
        maintenance_ms.append(NOW_MS + now_ms)
        maintenance.advance(NOW_MS + now_ms)
    assert checks == [NOW_MS + 30_000, NOW_MS + 330_000]
