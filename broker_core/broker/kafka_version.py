"""The limits of a broker that behaves as an older version of Kafka, by the setting `kafka.version`.

The APIs are limited where requests are decoded (`wire.kafka_versions`), and the features here. Other behavior does not
depend on the version.
"""

from collections.abc import Mapping
from typing import Any

from broker_core.config import BrokerConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.wire.kafka_versions import highest_level

_WITH_PREVIEW_OF_SHARE_GROUPS = "4.1"


def limited(config: BrokerConfig) -> BrokerConfig:
    """Return settings whose feature levels are not above those of the version."""
    version = config.kafka_version
    if not version:
        return config
    levels = {
        "transaction.version": config.transaction_version,
        "group.version": config.group_version,
        # Kafka 4.1 knows share groups as a preview, which an administrator has to enable.
        "share.version": 0 if version == _WITH_PREVIEW_OF_SHARE_GROUPS else config.share_version,
    }
    return config.override({name: str(min(level, highest_level(version, name) or 0)) for name, level in levels.items()})


def limit_features(version: str, tags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tags of an ApiVersions response with the features that the version knows, up to its levels."""
    if not version:
        return dict(tags)
    found = dict(tags)
    for name in tags.keys() & {"supported_features", "finalized_features"}:
        kept = []
        for feature in tags[name]:
            highest = highest_level(version, feature.name)
            if highest is not None:
                field = "max_version" if name == "supported_features" else "max_version_level"
                setattr(feature, field, min(getattr(feature, field), highest))
                kept.append(feature)
        found[name] = kept
    return found


def check_levels(version: str, wanted: Mapping[str, int]) -> None:
    """Raise INVALID_UPDATE_VERSION for a feature or level that the version does not know."""
    for name, level in wanted.items() if version else ():
        highest = highest_level(version, name)
        if highest is None:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Kafka {version} has no feature {name}")
        if level > highest:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Kafka {version} has {name} up to {highest}")
