"""The declaration of settings as fields of dataclasses: Kafka's names, types, defaults and bounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

from broker_core.errors import ConfigError
from broker_core.java_values import double_text, parse_double, parse_whole, trim
from broker_core.kafka_settings import TYPES

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
HIDDEN: Final = "[hidden]"


def setting(
    name: str,
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    may_be_empty: bool = False,
    or_value: int | None = None,
    ignores_case: bool = False,
) -> Any:
    """Declare a setting: its name, its default, and the values that it may have."""
    return field(
        default=default,
        repr=not secret,
        metadata={
            "key": name,
            "low": low,
            "high": high,
            "choices": choices,
            "secret": secret,
            "may_be_empty": may_be_empty,
            "or_value": or_value,
            "ignores_case": ignores_case,
        },
    )


def parse_setting(spec: Any, text: str) -> Any:
    """Turn a property's text into the type of its default, checking the bounds."""
    key, default = spec.metadata["key"], spec.default
    text = trim(text)
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text!r}: expected true or false")
        return text.lower() == "true"
    if isinstance(default, int | float):
        return _parse_number(spec, text)
    choices = spec.metadata["choices"]
    if spec.metadata["ignores_case"]:
        text = text.lower()
    if not text and spec.metadata["may_be_empty"]:
        return text
    parts = [text]
    if TYPES.get(key) == "LIST":
        parts = [part.strip() for part in text.split(",")]
        # A value that is one of a few counts once.
        text = ",".join(dict.fromkeys(parts) if choices else parts)
    if choices and any(part not in choices for part in parts):
        raise ConfigError(f"{key}={text!r}: expected one of {', '.join(choices)}")
    return text


def _parse_number(spec: Any, text: str) -> int | float:
    key, default, bounds = spec.metadata["key"], spec.default, spec.metadata
    value: int | float | None = parse_double(text) if isinstance(default, float) else parse_whole(text)
    if value is None:
        raise ConfigError(f"{key}={text!r}: expected a number such as {default}")
    if value == bounds["or_value"]:
        return value
    if bounds["low"] is not None and value < bounds["low"]:
        raise ConfigError(f"{key}={text}: must be at least {bounds['low']}")
    high = bounds["high"]
    if high is None and isinstance(value, int):
        high = INT_MAX if TYPES.get(key) == "INT" else LONG_MAX
    if high is not None and value > high:
        raise ConfigError(f"{key}={text}: must be at most {high}")
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings by Kafka's keys; each field of a subclass is one."""

    @classmethod
    def keys(cls) -> dict[str, Any]:
        """Return each Kafka key with its dataclass field."""
        return {spec.metadata["key"]: spec for spec in fields(cls) if "key" in spec.metadata}

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed; `ConfigError` names a bad one."""
        known = self.keys()
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]!r}; known are: {', '.join(sorted(known))}")
        return replace(self, **{known[key].name: parse_setting(known[key], text) for key, text in settings.items()})

    def as_text(self) -> dict[str, str]:
        """Return every key with its value as Kafka's admin tools print it; a secret that is set is `[hidden]`."""
        texts = {}
        for key, spec in self.keys().items():
            value = getattr(self, spec.name)
            if spec.metadata["secret"] and value:
                value = HIDDEN
            if isinstance(value, float):
                value = double_text(value)
            texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return texts
