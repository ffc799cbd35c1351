"""The translation of a real broker's settings into settings that brokers here serve."""

from collections.abc import Collection, Mapping, Set

from broker_core.errors import ConfigError
from broker_core.java_values import parse_whole, trim
from broker_core.listener_keys import LISTENER_PREFIX, listener_key
from broker_core.settings.catalog import LONGER_UNITS, SETTINGS, TYPES
from broker_core.settings.values import parse_kind

_RETENTION_MS = "log.retention.ms"


def in_milliseconds(settings: Mapping[str, str], served: Set[str]) -> dict[str, str]:
    """Replace minutes and hours of served settings by milliseconds; the shortest unit counts, as in Kafka."""
    found = dict(settings)
    for key in served & LONGER_UNITS.keys():
        for name, factor in LONGER_UNITS[key]:
            text = found.pop(name, None)
            if text is None or key in found:
                continue
            found[key] = str(parse_kind(name, TYPES[name], text) * factor)
    # Kafka keeps records forever for every negative time.
    retention_ms = parse_whole(trim(found.get(_RETENTION_MS, "")))
    if retention_ms is not None and retention_ms < 0:
        found[_RETENTION_MS] = "-1"
    return found


def without_controllers(settings: Mapping[str, str]) -> dict[str, str]:
    """Leave out the listeners of the controller and their settings: brokers here have none."""
    names = {name.strip().upper() for name in settings.get("controller.listener.names", "").split(",")} - {""}
    prefixes = tuple(f"{LISTENER_PREFIX}{name.lower()}." for name in names)
    found = {key: text for key, text in settings.items() if not key.startswith(prefixes)}
    for key in ("listeners", "advertised.listeners"):
        if key in found:
            entries = [entry.strip() for entry in found[key].split(",")]
            found[key] = ",".join(entry for entry in entries if entry.partition(":")[0].upper() not in names)
    return found


def effectless(settings: Collection[str], served: Collection[str]) -> list[str]:
    """Return the settings that Kafka has and that are not served here."""
    return sorted(key for key in settings if key not in served and key in TYPES)


def setting_of_kafka(key: str) -> str | None:
    """Return Kafka's setting that a key sets, maybe of one listener or mechanism, None for an unknown name."""
    found = listener_key(key)
    if found is None:
        return key if key in TYPES else None
    if found.base in TYPES:
        return found.base
    mechanism, _, rest = found.base.partition(".")
    return rest if rest in TYPES and mechanism == mechanism.lower() else None


def check_usable(settings: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings that have no effect here and without which a broker is less protected."""
    for key, text in settings.items():
        value, declared = trim(text), SETTINGS.get(setting_of_kafka(key) or key)
        known = None if declared is None else declared.java
        if known is not None and value not in ("", *known):
            remedy = f"remove it, or set it to {' or '.join(known)}" if known else "remove it"
            raise ConfigError(f"{key}={value!r} protects a broker by Java code, which does not run here: {remedy}")
    if trim(settings.get("config.providers", "")) and any("${" in text for text in settings.values()):
        raise ConfigError(
            "config.providers: variables such as ${file:name:key} are not replaced; write their values instead"
        )
