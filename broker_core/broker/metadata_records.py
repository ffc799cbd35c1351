"""The records of the cluster's metadata: JSON with the types and fields that `ClusterMetadata` writes.

The files may be read by another version of the program, so an unknown record is damage and is reported before it
changes anything: a cluster that started without some of its topics or rights would look complete.
"""

import json
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeGuard
from uuid import UUID

from broker_core.errors import DamageError
from broker_core.installed import parts
from broker_core.types import NO_LEADER

# The offset and the fields.
Fields = Mapping[str, Any]
MetadataRecord = tuple[int, Fields]
Shape = Callable[[Any], bool]
_SHOWN_BYTES: Final = 200
_MISSING: Final = object()
# The exceptions for values of the wrong type, and for JSON that is invalid or nested too deeply.
_MISFITS: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def read_metadata_record(offset: int, value: bytes) -> Fields:
    """Return a record whose fields have the types that `replay` relies on; raise `DamageError` for any other."""
    try:
        record: dict[str, Any] = json.loads(value)
        fields = shapes()[record["type"]]
    except _MISFITS as error:
        raise damaged(offset, value, f"{type(error).__name__}: {error}") from None
    wrong = [name for name, shape in fields.items() if not _fits(record.get(name, _MISSING), shape)]
    if wrong:
        raise damaged(offset, value, f"{', '.join(wrong)} missing or of a wrong kind")
    return record


def damaged(offset: int, value: bytes, why: str) -> DamageError:
    """Return the error that names an invalid record of the journal, and the reason."""
    return DamageError(
        f"record {offset} of the cluster's metadata cannot be read ({why}): {value[:_SHOWN_BYTES]!r}; "
        "the data folder may be of a newer version, or of a broker with a feature that this one lacks"
    )


def _fits(value: object, shape: Shape) -> bool:
    try:
        return shape(value)
    except _MISFITS:
        return False


def is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def is_count(value: object) -> bool:
    """Return whether a field is a whole number that Kafka's int64 holds, not negative."""
    return type(value) is int and 0 <= value < 2**63


def are(value: object, shape: Shape) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and all(map(shape, value))


def _is_leadership(value: Any) -> bool:
    leader, leader_epoch = value
    return isinstance(value, list) and (is_count(leader) or leader == NO_LEADER) and is_count(leader_epoch)


def _are_distinct(value: object) -> bool:
    return are(value, is_count) and len({*value}) == len(value)


def _is_reassignment(value: object) -> bool:
    return are(value, _are_distinct) and len(value) == 2


def _may_lack(shape: Shape) -> Shape:
    """Return the shape of a field that older versions of the program did not store."""
    return lambda value: value is _MISSING or shape(value)


def _by_name(shape: Shape) -> Shape:
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


def _json_of(*kinds: type) -> Shape:
    """Return the shape of a text with a JSON list of values of these types."""

    def fits(value: str) -> bool:
        parts = json.loads(value)
        return isinstance(parts, list) and len(parts) == len(kinds) and all(map(isinstance, parts, kinds))

    return fits


def _is_numbered(value: str, name: int) -> bool:
    parts = json.loads(value)
    return len(parts) == 2 and is_text(parts[name]) and is_count(parts[1 - name])


def _is_credential(value: Any) -> bool:
    if value is None:
        return True
    iterations, *keys = value
    return is_count(iterations) and len(keys) == 3 and all(bytes.fromhex(each) for each in keys)


_OF_THE_CORE: Final[Mapping[str, Mapping[str, Shape]]] = MappingProxyType(
    {
        "opened": {
            "cluster_id": is_text,
            "brokers": lambda value: are(value, is_count) and bool(value),
            "settings": _may_lack(_by_name(is_count)),
        },
        "topic": {
            "name": is_text,
            "id": lambda value: is_text(value) and str(UUID(value)) == value,
            "partitions": lambda value: are(value, _is_leadership) and bool(value),
            "replicas": _may_lack(lambda value: are(value, _are_distinct)),
            "reassignments": _may_lack(lambda value: are(value, _is_reassignment)),
            "config": _by_name(is_text),
        },
        "partition": {
            "name": lambda value: _is_numbered(value, 0),
            "leadership": _is_leadership,
            "replicas": _are_distinct,
            "reassignment": _is_reassignment,
        },
        "leader_epochs_raised": {"by": is_count},
        "topic_deleted": {"name": is_text},
        "producer_ids": {"next": is_count},
        "feature": {"name": is_text, "level": is_count},
        "acl": {"name": _json_of(int, int, str, str, str, int, int), "exists": lambda value: isinstance(value, bool)},
        "config": {"name": lambda value: _is_numbered(value, 1), "settings": _by_name(is_text)},
        "scram": {"name": _json_of(str, str), "credential": _is_credential},
    }
)


@cache
def shapes() -> Mapping[str, Mapping[str, Shape]]:
    """Return the fields of each type of record of the core and of features, with what their values have to be."""
    tables = (_OF_THE_CORE, *(each.SHAPES for each in parts("records")))
    return {kind: fields for table in tables for kind, fields in table.items()}


# The name under which settings of all brokers are stored.
ALL_BROKERS = ""


class ConfigResource(IntEnum):
    """The resources that have settings, as the protocol numbers them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class StoredSettings:
    """The settings of brokers, groups and client metrics; changed by `replay` only.

    The settings of the broker with the empty name hold for all brokers.
    """

    def __init__(self) -> None:
        self.configs: dict[tuple[int, str], Mapping[str, str]] = {}
        # Increases with each change, so that derived values can be cached.
        self.version = 0

    def of(self, resource: int, name: str) -> Mapping[str, str]:
        """Return the settings of a resource; empty if it has none."""
        return self.configs.get((resource, name), {})

    def replay_config(self, record: Fields) -> None:
        resource, name = json.loads(record["name"])
        if record["settings"]:
            self.configs[resource, name] = dict(record["settings"])
        else:
            self.configs.pop((resource, name), None)
        self.version += 1
