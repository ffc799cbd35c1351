"""The declarations of all settings, from `settings.json`, and what follows from them.

A line of the file has, where they differ from the defaults of `Declaration`: Kafka's type and default, where the
setting belongs, the bounds of its value, how it changes while a broker runs, and what it means here.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from operator import itemgetter
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Declaration:
    """One setting; texts are as Kafka shows them.

    Attributes:
        name: Kafka's name.
        type: Kafka's type, such as INT or LIST.
        scope: What has the setting: "broker" and "internal" (not documented by Kafka), "topic", "group",
            "client-metrics", "dynamic" (only set while brokers run), "authorizer" (brokers describe it like an
            unknown name), "own" (brokers here, not Kafka's).
        default: Kafka's default, None for null.
        here: The default of brokers here, where it differs.
        default_of: The broker setting with the default of a topic's or a group's setting.
        low: The lowest value.
        low_in_kafka: The lowest value in Kafka's messages, where it differs.
        high: The highest value, where it is below the highest one of the type.
        other: A value outside of these bounds that is allowed as well.
        unit_of: The setting in milliseconds that this one sets in a longer unit, and the unit in ms.
        choices: The values that a setting may have, in the order of Kafka's messages.
        names_choices: Whether Kafka's message for another value names the choices.
        may_be_empty: Whether an empty text is allowed beside the choices.
        ignores_case: Whether upper case means the same.
        is_set: Whether no value of the list may be repeated.
        is_replicas: Whether it is a list of replicas whose replication Kafka throttles.
        is_thread_pool: Whether it is a number of threads, which Kafka halves and doubles at most in one change.
        java: For a setting that protects a broker by Java code, which does not run here: the values that mean what
            happens here. Other values are refused, because clients could do what they forbid.
        changes: How it changes while brokers run: "broker" has a value for each only, "cluster" also one for all.
        of_listeners: Whether single listeners change it while brokers run, with effect here.
        of_mechanisms: Whether a mechanism of a listener has a value of its own.
        per_listener: Whether a single listener may have a value of its own here.
        field: The name in Python's settings objects; by default Kafka's with underscores.
        meaning: What it means here; empty if it has no effect.
    """

    name: str
    type: str
    scope: tuple[str, ...] = ("broker",)
    default: str | None = None
    here: Any = None
    default_of: str | None = None
    low: int | None = None
    low_in_kafka: int | None = None
    high: int | None = None
    other: int | None = None
    unit_of: tuple[str, int] | None = None
    choices: tuple[str, ...] = ()
    names_choices: bool = False
    may_be_empty: bool = False
    ignores_case: bool = False
    is_set: bool = False
    is_replicas: bool = False
    is_thread_pool: bool = False
    java: tuple[str, ...] | None = None
    changes: str | None = None
    of_listeners: bool = False
    of_mechanisms: bool = False
    per_listener: bool = False
    field: str = ""
    meaning: str = ""


def _read() -> dict[str, Declaration]:
    rows: dict[str, dict[str, Any]] = json.loads(files(__package__).joinpath("settings.json").read_text("utf-8"))
    found = {}
    for name, row in rows.items():
        fields: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in row.items()}
        found[name] = Declaration(name, **{"field": name.replace(".", "_"), **fields})
    return found


SETTINGS: Final = _read()


def _of(*scopes: str) -> dict[str, Declaration]:
    return {name: each for name, each in SETTINGS.items() if not set(scopes).isdisjoint(each.scope)}


# The settings of Kafka's brokers and topics.
TYPES: Final = {name: each.type for name, each in _of("broker", "internal", "topic").items()}
# Kafka's defaults of documented settings of brokers, and of settings that DescribeConfigs shows only if a file sets
# them; None is null.
DEFAULTS: Final = {name: each.default for name, each in _of("broker").items()}
INTERNAL_DEFAULTS: Final = {name: each.default for name, each in _of("internal").items()}
GROUP_SETTINGS: Final = _of("group")
CLIENT_METRICS: Final = _of("client-metrics")
# The broker setting with the default of each topic setting.
TOPIC_DEFAULTS: Final = {name: each.default_of for name, each in _of("topic").items() if each.default_of is not None}
PER_BROKER: Final = frozenset(name for name, each in SETTINGS.items() if each.changes == "broker")
CLUSTER_WIDE: Final = frozenset(name for name, each in SETTINGS.items() if each.changes == "cluster")
DYNAMIC: Final = PER_BROKER | CLUSTER_WIDE | _of("dynamic").keys()
# The settings of key stores and trust stores, which take effect for the next connection. Single listeners change them.
OF_STORES: Final = frozenset(
    name for name in SETTINGS if name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
)
OF_LISTENERS: Final = frozenset(name for name, each in SETTINGS.items() if each.of_listeners)
OF_MECHANISMS: Final = tuple(name for name, each in SETTINGS.items() if each.of_mechanisms)


def _longer_units() -> dict[str, tuple[tuple[str, int], ...]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for name, each in SETTINGS.items():
        if each.unit_of is not None:
            found.setdefault(each.unit_of[0], []).append((name, each.unit_of[1]))
    return {name: tuple(sorted(units, key=itemgetter(1))) for name, units in found.items()}


# Longer units of a setting in milliseconds, the shorter one first; the shortest that is given counts.
LONGER_UNITS: Final = _longer_units()


def kind_of(name: str) -> str | None:
    """Return the type of a setting of Kafka's brokers, None for a name that they do not have."""
    found = SETTINGS.get(name)
    return None if found is None or {"broker", "internal", "dynamic"}.isdisjoint(found.scope) else found.type
