"""The settings that the cluster's metadata records, by the resource they are for."""

import json
from collections.abc import Mapping
from enum import IntEnum

from broker_core.broker.metadata_records import Fields

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

    The settings of the broker with the empty name are those of all brokers.
    """

    def __init__(self) -> None:
        self.configs: dict[tuple[int, str], Mapping[str, str]] = {}
        # Increases with each change, so that derived values can be cached.
        self.version = 0

    def of(self, resource: int, name: str) -> Mapping[str, str]:
        """Return the settings of a resource; empty if it has none."""
        return self.configs.get((resource, name), {})

    @staticmethod
    def config_record(resource: int, name: str, settings: Mapping[str, str]) -> Fields:
        """Return the record of a resource's settings, which replace the earlier ones."""
        return {"type": "config", "name": json.dumps([int(resource), name]), "settings": dict(settings)}

    def replay_config(self, record: Fields) -> None:
        resource, name = json.loads(record["name"])
        if record["settings"]:
            self.configs[resource, name] = dict(record["settings"])
        else:
            self.configs.pop((resource, name), None)
        self.version += 1
