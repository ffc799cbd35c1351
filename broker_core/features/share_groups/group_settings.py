"""The settings of a share group that the leaders of partitions use, and the values that they may have."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.config import BrokerConfig
from broker_core.java_values import trim
from broker_core.settings.values import wrong
from broker_core.types import IsolationLevel

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"
_ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
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
    """Return the settings of a group: its own, within the broker's bounds, or the broker's."""

    def bounded(name: str) -> int:
        value, least, most = (int(getattr(config, f"group_share_{each}{name}")) for each in ("", "min_", "max_"))
        key = f"share.{name.replace('_', '.')}"
        return min(max(int(own[key]), least), most) if key in own else value

    own = {key: trim(text) for key, text in own.items()}
    isolation = own.get("share.isolation.level", "read_uncommitted")
    return ShareFetchSettings(
        bounded("delivery_count_limit"),
        bounded("record_lock_duration_ms"),
        bounded("partition_max_record_locks"),
        own.get("share.auto.offset.reset", LATEST).lower(),
        IsolationLevel[isolation.upper()],
        own.get("share.renew.acknowledge.enable", "true").lower() == "true",
    )


def duration_ms(text: str) -> int | None:
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.group(*_PARTS)):
        return None
    days, hours, minutes, seconds = (found[name] or "0" for name in _PARTS)
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60_000
    duration = whole + int(float(seconds.replace(",", ".")) * 1000)
    return -duration if found["sign"] == "-" else duration


def check(key: str, value: Any) -> None:
    if key == "share.auto.offset.reset" and not _is_reset(value):
        problem = (
            f"Invalid value `{value}` for configuration {key}. The value must be either 'earliest', 'latest' or of "
            "the format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise wrong(key, value, problem)
    if key == "share.isolation.level" and value not in _ISOLATION_LEVELS:
        raise wrong(key, value, f"String must be one of: {', '.join(_ISOLATION_LEVELS)}")


def _is_reset(text: str) -> bool:
    if not text.startswith(BY_DURATION):
        return text in (EARLIEST, LATEST)
    duration = duration_ms(text.removeprefix(BY_DURATION))
    return duration is not None and duration >= 0
