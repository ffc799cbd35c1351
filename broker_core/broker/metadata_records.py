"""The records of the cluster's metadata: JSON with the types and fields that `ClusterMetadata` writes.

The files may be read by another version of the program, so an unknown record is damage and is reported before it
changes anything: a cluster that started without some of its topics or rights would look complete.
"""

import json
from collections.abc import Callable, Mapping
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
_ACL_SHAPES: Final[tuple[type, ...]] = (int, int, str, str, str, int, int)


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
    """Return whether a field is text."""
    return isinstance(value, str)


def is_count(value: object) -> bool:
    """Return whether a field is a whole number that Kafka's int64 holds, not negative."""
    return type(value) is int and 0 <= value < 2**63


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_uuid(value: object) -> bool:
    return is_text(value) and str(UUID(value)) == value


def are(value: object, shape: Shape) -> TypeGuard[list[Any]]:
    """Return whether a field is a list whose items all have the shape."""
    return isinstance(value, list) and all(map(shape, value))


def _are_brokers(value: object) -> bool:
    return are(value, is_count) and bool(value)


def _are_partitions(value: object) -> bool:
    return are(value, _is_leadership) and bool(value)


def _is_leadership(value: Any) -> bool:
    leader, leader_epoch = value
    return isinstance(value, list) and (is_count(leader) or leader == NO_LEADER) and is_count(leader_epoch)


def _are_replicas(value: object) -> bool:
    # Older versions of the program stored none.
    return value is _MISSING or are(value, _are_distinct)


def _are_reassignments(value: object) -> bool:
    return value is _MISSING or are(value, _is_reassignment)


def _is_reassignment(value: object) -> bool:
    return are(value, _are_distinct) and len(value) == 2


def _is_partition(value: str) -> bool:
    topic, index = json.loads(value)
    return is_text(topic) and is_count(index)


def _are_distinct(value: object) -> bool:
    return are(value, is_count) and len({*value}) == len(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_text, value.values()))


def _are_levels(value: object) -> bool:
    # Clusters created before the settings were recorded have none.
    return value is _MISSING or (isinstance(value, dict) and all(map(is_count, value.values())))


def _is_acl(value: str) -> bool:
    parts = json.loads(value)
    return len(parts) == len(_ACL_SHAPES) and all(map(isinstance, parts, _ACL_SHAPES))


def _is_resource(value: str) -> bool:
    resource, name = json.loads(value)
    return is_count(resource) and is_text(name)


def _is_user(value: str) -> bool:
    parts = json.loads(value)
    return are(parts, is_text) and len(parts) == 2


def _is_credential(value: Any) -> bool:
    if value is None:
        return True
    iterations, *keys = value
    return is_count(iterations) and len(keys) == 3 and all(bytes.fromhex(each) for each in keys)


_OF_THE_CORE: Final[Mapping[str, Mapping[str, Shape]]] = MappingProxyType(
    {
        "opened": {"cluster_id": is_text, "brokers": _are_brokers, "settings": _are_levels},
        "topic": {
            "name": is_text,
            "id": _is_uuid,
            "partitions": _are_partitions,
            "replicas": _are_replicas,
            "reassignments": _are_reassignments,
            "config": _are_texts,
        },
        "partition": {
            "name": _is_partition,
            "leadership": _is_leadership,
            "replicas": _are_distinct,
            "reassignment": _is_reassignment,
        },
        "leader_epochs_raised": {"by": is_count},
        "topic_deleted": {"name": is_text},
        "producer_ids": {"next": is_count},
        "feature": {"name": is_text, "level": is_count},
        "acl": {"name": _is_acl, "exists": _is_flag},
        "config": {"name": _is_resource, "settings": _are_texts},
        "scram": {"name": _is_user, "credential": _is_credential},
    }
)


@cache
def shapes() -> Mapping[str, Mapping[str, Shape]]:
    """Return the fields of each type of record of the core and of features, with what their values have to be."""
    tables = (_OF_THE_CORE, *(each.SHAPES for each in parts("records")))
    return {kind: fields for table in tables for kind, fields in table.items()}
