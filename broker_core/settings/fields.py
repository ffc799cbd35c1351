"""The base of settings objects, whose fields are settings of the catalog."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final, Self

from broker_core.errors import ConfigError
from broker_core.java_values import double_text, parse_double, parse_whole, trim
from broker_core.settings.catalog import SETTINGS, Declaration
from broker_core.settings.values import WHOLE_MAX

HIDDEN: Final = "[hidden]"


def parse_setting(name: str, text: str) -> Any:
    declared, text = SETTINGS[name], trim(text)
    if declared.type == "BOOLEAN":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name}={text!r}: expected true or false")
        return text.lower() == "true"
    if declared.type in WHOLE_MAX or declared.type == "DOUBLE":
        return _parse_number(declared, text)
    if declared.ignores_case:
        text = text.lower()
    if not text and declared.may_be_empty:
        return text
    parts, choices = [text], declared.choices
    if declared.type == "LIST":
        parts = [part.strip() for part in text.split(",")]
        # A value that is one of a few counts once.
        text = ",".join(dict.fromkeys(parts) if choices else parts)
    if choices and any(part not in choices for part in parts):
        raise ConfigError(f"{name}={text!r}: expected one of {', '.join(choices)}")
    return text


def _parse_number(declared: Declaration, text: str) -> int | float:
    name, is_whole = declared.name, declared.type in WHOLE_MAX
    value: int | float | None = parse_whole(text) if is_whole else parse_double(text)
    if value is None:
        example = declared.default if declared.here is None else declared.here
        raise ConfigError(f"{name}={text!r}: expected a number such as {example}")
    if value == declared.other:
        return value
    if declared.low is not None and value < declared.low:
        raise ConfigError(f"{name}={text}: must be at least {declared.low}")
    high = WHOLE_MAX.get(declared.type) if declared.high is None else declared.high
    if high is not None and value > high:
        raise ConfigError(f"{name}={text}: must be at most {high}")
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings by Kafka's keys; each field of a subclass is one."""

    @classmethod
    @cache
    def keys(cls) -> Mapping[str, Any]:
        """Return each Kafka key with its dataclass field."""
        return {spec.metadata["key"]: spec for spec in fields(cls) if "key" in spec.metadata}

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed; `ConfigError` names a bad one."""
        known = self.keys()
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]!r}; known are: {', '.join(sorted(known))}")
        return replace(self, **{known[key].name: parse_setting(key, text) for key, text in settings.items()})

    def as_text(self) -> dict[str, str]:
        """Return every key with its value as Kafka's admin tools print it; a secret that is set is `[hidden]`."""
        texts = {}
        for key, spec in self.keys().items():
            value = getattr(self, spec.name)
            if SETTINGS[key].type == "PASSWORD" and value:
                value = HIDDEN
            if isinstance(value, float):
                value = double_text(value)
            texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return texts
