"""The settings and quotas that the cluster's metadata records, by the resource or client they are for."""

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from broker_core.broker.metadata_records import Fields

Key = TypeVar("Key")
Value = TypeVar("Value")

# The entity of a quota: pairs of type and name, in the order of the types; None names the default of a type.
QuotaEntity = tuple[tuple[str, str | None], ...]

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
    """The settings of brokers, groups and client metrics, and the quotas of clients; changed by `replay` only.

    The settings of the broker with the empty name are those of all brokers.
    """

    def __init__(self) -> None:
        self.configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self.quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        # Increases with each change, so that derived values can be cached.
        self.version = 0

    def of(self, resource: int, name: str) -> Mapping[str, str]:
        """Return the settings of a resource; empty if it has none."""
        return self.configs.get((resource, name), {})

    @staticmethod
    def config_record(resource: int, name: str, settings: Mapping[str, str]) -> Fields:
        """Return the record of a resource's settings, which replace the earlier ones."""
        return {"type": "config", "name": json.dumps([int(resource), name]), "settings": dict(settings)}

    @staticmethod
    def quota_record(entity: QuotaEntity, values: Mapping[str, float]) -> Fields:
        """Return the record of an entity's quotas, which replace the earlier ones."""
        return {"type": "client_quota", "name": json.dumps(entity), "values": dict(values)}

    def replay_config(self, record: Fields) -> None:
        """Apply a record of settings."""
        resource, name = json.loads(record["name"])
        _put(self.configs, (resource, name), record["settings"])
        self.version += 1

    def replay_quota(self, record: Fields) -> None:
        """Apply a record of quotas."""
        entity = tuple((kind, name) for kind, name in json.loads(record["name"]))
        _put(self.quotas, entity, record["values"])
        self.version += 1


def _put(table: dict[Key, Mapping[str, Value]], key: Key, values: Mapping[str, Value]) -> None:
    if values:
        table[key] = dict(values)
    else:
        table.pop(key, None)
