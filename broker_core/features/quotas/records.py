"""The quotas in the cluster's metadata, and their records."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.metadata_records import Fields, Shape, is_text

# Pairs of type and name, in the order of the types; None names the default of a type.
QuotaEntity = tuple[tuple[str, str | None], ...]
_TYPE: Final = "client_quota"


class Quotas(dict[QuotaEntity, Mapping[str, float]]):
    """The quotas of each entity; changed by replay only."""


def set_quotas(metadata: ClusterMetadata, entity: QuotaEntity, values: Mapping[str, float]) -> None:
    """Record all quotas of an entity, which replace the earlier ones."""
    metadata.record({"type": _TYPE, "name": json.dumps(entity), "values": dict(values)})


def _replay(metadata: ClusterMetadata, record: Fields) -> None:
    entity = tuple((kind, name) for kind, name in json.loads(record["name"]))
    quotas = metadata.state(Quotas)
    if record["values"]:
        quotas[entity] = dict(record["values"])
    else:
        quotas.pop(entity, None)


def _is_quota_entity(value: str) -> bool:
    parts = json.loads(value)
    return bool(parts) and all(is_text(kind) and (name is None or is_text(name)) for kind, name in parts)


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(type(each) in (int, float) for each in value.values())


SHAPES: Final[Mapping[str, Mapping[str, Shape]]] = {_TYPE: {"name": _is_quota_entity, "values": _are_numbers}}
REPLAY: Final[Mapping[str, Callable[[ClusterMetadata, Fields], None]]] = {_TYPE: _replay}
