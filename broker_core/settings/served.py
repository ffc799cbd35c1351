"""The fields of the settings objects: one for each setting of the catalog that has a meaning here.

`served.pyi` lists them for type checkers.
"""

from collections.abc import Iterable
from dataclasses import field, make_dataclass
from typing import Any, Final

from broker_core.settings.catalog import SETTINGS, Declaration
from broker_core.settings.fields import Settings
from broker_core.settings.values import parse_kind

_PYTHON_TYPES: Final = {"BOOLEAN": bool, "INT": int, "LONG": int, "SHORT": int, "DOUBLE": float}
_OF_BROKERS: Final = {"broker", "internal", "authorizer", "own"}


def _with_fields(name: str, base: type[Settings], settings: Iterable[Declaration], described: str) -> Any:
    return make_dataclass(
        name,
        [(each.field, _PYTHON_TYPES.get(each.type, str), _field(each)) for each in settings],
        bases=(base,),
        namespace={"__module__": __name__, "__doc__": described},
        frozen=True,
        slots=True,
    )


def _field(declared: Declaration) -> Any:
    default = declared.here
    if default is None:
        default = parse_kind(declared.name, declared.type, declared.default or "")
    return field(default=default, repr=declared.type != "PASSWORD", metadata={"key": declared.name})


_SERVED: Final = [each for each in SETTINGS.values() if each.meaning and not _OF_BROKERS.isdisjoint(each.scope)]
# Of a topic's settings, Kafka's tools print `retention.ms` after `segment.bytes`.
_OF_TOPICS: Final = sorted(
    (each for each in SETTINGS.values() if "topic" in each.scope),
    key=lambda each: "segment.bytes, then" if each.name == "retention.ms" else each.name,
)
TopicFields = _with_fields("TopicFields", Settings, _OF_TOPICS, "The settings of a topic.")
ListenerConfig = _with_fields(
    "ListenerConfig",
    Settings,
    [each for each in _SERVED if each.per_listener],
    "The settings that a single listener can have, as `listener.name.<listener>.<key>`.",
)
BrokerFields = _with_fields(
    "BrokerFields", ListenerConfig, [each for each in _SERVED if not each.per_listener], "The settings of a broker."
)
