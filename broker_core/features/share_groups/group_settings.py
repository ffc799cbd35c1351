"""The values that settings of share groups may have."""

from typing import Any, Final

from broker_core.features.share_groups.partitions.settings import BY_DURATION, EARLIEST, LATEST, duration_ms
from broker_core.settings.values import wrong

_ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")


def check(key: str, value: Any) -> None:
    """Raise Kafka's error for a value that is wrong by itself."""
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
