"""The declarations of all options, from `options.json` and `client_settings.json`, and what follows from them.

`options.json` has the options of sink and source. `client_settings.json` has the verdict on every setting of Apache
Kafka's producer, consumer and admin client, and on settings of librdkafka, of libraries and of platforms that users of
Spark bring along. The parsers, the messages for misspelled names and the tables in docs/reference come from here.
"""

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from importlib.resources import files
from typing import Any, Final, NamedTuple

from broker_core.types import INT_MAX, LONG_MAX
from spark_eos.errors import OptionError

# The sides of this package, named as the clients of Apache Kafka that they correspond to.
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ADMIN: Final = "admin client"
_EVERY: Final = frozenset({PRODUCER, CONSUMER, ADMIN})
_Row = Mapping[str, Any]


class OptionDefinition(NamedTuple):
    """One option, its name spelled as users write it.

    `default` is the text that has the same effect as leaving the option out, or empty; `default_note` describes a
    default that is not one text. `choices` are all allowed values, `minimum` and `maximum` bound a number, and
    `values` describes what neither can say. A number has at most 32 bits, and 64 if `is_long`.
    """

    name: str
    meaning: str
    default: str = ""
    default_note: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    values: str = ""
    is_long: bool = False

    @property
    def is_flag(self) -> bool:
        return self.choices == ("true", "false")

    @property
    def is_whole(self) -> bool:
        return type(self.minimum) is int

    @property
    def highest(self) -> int:
        """The highest whole number: Java's type has one if the declaration has none."""
        if self.maximum is None:
            return LONG_MAX if self.is_long else INT_MAX
        return int(self.maximum)

    @property
    def default_value(self) -> Any:
        if self.is_flag:
            return self.default == "true"
        if self.minimum is None:
            return self.default
        return int(self.default) if self.is_whole else float(self.default)

    def parse(self, text: str, shown: str) -> Any:
        """Return the value that a text stands for; raise `OptionError`, which calls the option `shown`."""
        if self.choices:
            return self._chosen(text, shown)
        return text if self.minimum is None else self._number(text, shown)

    def _chosen(self, text: str, shown: str) -> str | bool:
        found = next((each for each in self.choices if each.lower() == text.strip().lower()), None)
        if found is None:
            words = " or ".join(self.choices) if len(self.choices) == 2 else f"one of {', '.join(self.choices)}"
            raise OptionError(f"Option '{shown}' is {text!r}", remedy=f"Use {words}")
        return found == "true" if self.is_flag else found

    def _number(self, text: str, shown: str) -> float:
        low, high = self.minimum or 0, self.highest if self.maximum is None else self.maximum
        try:
            number = (int if self.is_whole else float)(text.strip())
        except ValueError:
            number = math.nan
        if low <= number <= high:
            return number
        limits = f"up to {high}" if number > high else f"of at least {low}"
        bounds = limits if self.maximum is None else f"from {low} to {high}"
        whole = "whole " if self.is_whole else ""
        raise OptionError(f"Option '{shown}' is {text!r}", remedy=f"Give a {whole}number {bounds}")


class Treatment(StrEnum):
    """What becomes of a setting."""

    HONORED = "honored"
    MAPPED = "mapped"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its treatment, and the reason for it or the meaning of the setting.

    `clients` are the clients of Apache Kafka that have the setting; none, if only others have it. The treatment is that
    of `sides`; on another side the setting has no effect. `target` is the setting that a mapped one is read as. A
    refused setting is accepted with one of the values `allowed`, in lower case.
    """

    name: str
    clients: frozenset[str]
    treatment: Treatment
    text: str
    sides: frozenset[str] = _EVERY
    target: str = ""
    allowed: frozenset[str] = frozenset()

    def allows(self, value: str) -> bool:
        """Return whether a refused setting may have this value; a class may be one that a platform has renamed."""
        given = value.strip().lower()
        return any(given == each or ("." in each and given.endswith(f".{each}")) for each in self.allowed)


@dataclass(frozen=True, slots=True)
class PlatformOption:
    """An option of a platform's own Kafka connector, by which that platform finds brokers or credentials.

    A query that ignored it would connect elsewhere, or without authentication.
    """

    name: str
    platform: str
    meaning: str
    remedy: str


def _rows(name: str) -> Any:
    return json.loads(files(__package__).joinpath(name).read_text("utf-8"))


def _definition(row: _Row) -> OptionDefinition:
    given = {key: row[key] for key in OptionDefinition._fields if key in row}
    return OptionDefinition(**{**given, "choices": tuple(row.get("choices", ()))})


def _definitions(rows: Iterable[_Row], side: str) -> tuple[OptionDefinition, ...]:
    return tuple(_definition(row) for row in rows if side in row["of"])


_OPTIONS: Final = _rows("options.json")
_CLIENT: Final = _rows("client_settings.json")
SINK_OPTIONS: Final = _definitions(_OPTIONS, "sink")
SOURCE_OPTIONS: Final = _definitions(_OPTIONS, "source")

HONORED: Final = {row["name"]: _definition(row) for row in _CLIENT["honored"]}


def _settings() -> Iterable[Setting]:
    for row in _CLIENT["honored"]:
        sides = frozenset(row.get("sides", _EVERY))
        yield Setting(row["name"], frozenset(row.get("clients", sides)), Treatment.HONORED, row["meaning"], sides)
    for row in _CLIENT["refused"]:
        clients = frozenset(row.get("clients", _EVERY))
        allowed = frozenset(row.get("allowed", ()))
        yield Setting(row["name"], clients, Treatment.REFUSED, row["text"], clients or _EVERY, allowed=allowed)
    for row in _CLIENT["no effect"]:
        for name in row["names"]:
            yield Setting(name, frozenset(row.get("clients", _EVERY)), Treatment.NO_EFFECT, row["text"])
    for name, target in _CLIENT["mapped"].items():
        yield Setting(name, frozenset(), Treatment.MAPPED, f"The same as {target}.", target=target)


# What a parser reads; an option stands for the setting of its name.
DECLARED: Final[Mapping[str, OptionDefinition]] = {
    **HONORED,
    **{each.name: each for each in (*SINK_OPTIONS, *SOURCE_OPTIONS)},
}
SETTINGS: Final[Mapping[str, Setting]] = {each.name: each for each in _settings()}
PLATFORM_OPTIONS: Final[Mapping[str, PlatformOption]] = {
    name.lower(): PlatformOption(name, row["platform"], row["meaning"], row["remedy"])
    for row in _CLIENT["of platforms"]
    for name in row["names"]
}


def declared(name: str) -> Any:
    return field(default=DECLARED[name].default_value, metadata={"option": name})


def setting_value(settings: Mapping[str, str], name: str) -> Any:
    """Parse a setting of Kafka's clients; `settings` has names without the prefix."""
    return DECLARED[name].parse(settings.get(name, DECLARED[name].default), f"kafka.{name}")


def option_text(options: Mapping[str, str], option: str) -> str:
    """Return an option of sink or source, or its declared default; `options` has names in lower case."""
    return options.get(option.lower(), DECLARED[option].default)


def option_value(options: Mapping[str, str], option: str) -> Any:
    return DECLARED[option].parse(option_text(options, option), option)


def declared_values(
    kind: type, given: Mapping[str, str], read: Callable[[Mapping[str, str], str], Any] = setting_value
) -> dict[str, Any]:
    """Return the values of the fields that `declared` made, by their names, from what is given or their defaults."""
    named = {each.name: each.metadata["option"] for each in fields(kind) if "option" in each.metadata}
    return {name: read(given, option) for name, option in named.items()}


def setting_of(name: str) -> Setting | None:
    """Return the row of a setting, in lower case and without the prefix, or None if there is no such setting."""
    if name.startswith("config.providers."):
        name = "config.providers"
    return SETTINGS.get(name)


def nearest_setting(name: str, *, cutoff: float) -> str | None:
    near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=cutoff)
    return near[0] if near else None
