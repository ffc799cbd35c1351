"""The settings of a share group that the leaders of partitions use."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.config import BrokerConfig
from broker_core.java_values import trim
from broker_core.types import IsolationLevel

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"
# A duration in the format of ISO 8601, as far as Java's `Duration` reads it.
_PARTS = ("days", "hours", "minutes", "seconds")
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


class ShareFetchSettings(NamedTuple):
    """The settings in force for one group."""

    delivery_count_limit: int
    record_lock_duration_ms: int
    max_record_locks: int
    auto_offset_reset: str
    isolation: IsolationLevel
    may_renew: bool


def share_fetch_settings(own: Mapping[str, str], config: BrokerConfig) -> ShareFetchSettings:
    """Return the settings of a group: its own, within the broker's bounds, or those of the broker."""

    def bounded(key: str, default: int, low: int, high: int) -> int:
        return min(max(int(own[key]), low), high) if key in own else default

    own = {key: trim(text) for key, text in own.items()}
    isolation = own.get("share.isolation.level", "read_uncommitted")
    return ShareFetchSettings(
        bounded(
            "share.delivery.count.limit",
            config.group_share_delivery_count_limit,
            config.group_share_min_delivery_count_limit,
            config.group_share_max_delivery_count_limit,
        ),
        bounded(
            "share.record.lock.duration.ms",
            config.group_share_record_lock_duration_ms,
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        ),
        bounded(
            "share.partition.max.record.locks",
            config.group_share_partition_max_record_locks,
            config.group_share_min_partition_max_record_locks,
            config.group_share_max_partition_max_record_locks,
        ),
        own.get("share.auto.offset.reset", LATEST).lower(),
        IsolationLevel[isolation.upper()],
        own.get("share.renew.acknowledge.enable", "true").lower() == "true",
    )


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration such as `PT1H30M`, None for an invalid one."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.group(*_PARTS)):
        return None
    days, hours, minutes, seconds = (found[name] or "0" for name in _PARTS)
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60_000
    duration = whole + int(float(seconds.replace(",", ".")) * 1000)
    return -duration if found["sign"] == "-" else duration
