"""The features of a cluster (KIP-584), with the levels that the cluster's version of Kafka supports and starts with.

`transaction.version`, `group.version` and `share.version` decide how the brokers behave, and settings can lower their
first levels. With `eligible.leader.replicas.version` the setting `min.insync.replicas` belongs to the cluster. The
levels of the others can be changed, with no other effect here.
"""

from collections.abc import Collection, Mapping
from typing import Final

from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.wire.kafka_versions import changes_metadata, feature_levels, first_version_with, is_before, unsupported

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADERS_VERSION: Final = "eligible.leader.replicas.version"

# With eligible leaders this setting belongs to the cluster (KIP-966).
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3

# The levels of features of which the metadata log has no record. They are part of its format.
FIRST_LEVELS: Final[Mapping[str, int]] = {
    GROUP_VERSION: 0,
    KRAFT_VERSION: 1,
    METADATA_VERSION: 33,
    SHARE_VERSION: 2,
    "streams.version": 1,
    TRANSACTION_VERSION: 0,
    ELIGIBLE_LEADERS_VERSION: 1,
}


def levels_of_new_cluster(version: str, settings: Mapping[str, int]) -> dict[str, int]:
    """Return the levels that a new cluster of a version of Kafka has; `settings` can lower some of them."""
    known = feature_levels(version)
    levels = {name: known[name].initial if name in known else 0 for name in FIRST_LEVELS}
    return levels | {name: min(level, levels[name]) for name, level in settings.items()}


def check_supported(version: str, levels: Mapping[str, int]) -> None:
    """Raise `ConfigError` for a cluster with a level that the version does not support; Kafka does not start then."""
    beyond = unsupported(version, levels)
    if not beyond:
        return
    known = feature_levels(version)
    listed = []
    for name, level in sorted(beyond.items()):
        range_ = f"supported: {known[name].lowest} to {known[name].highest}" if name in known else "unknown"
        listed.append(f"{name} {level} ({range_})")
    raise ConfigError(
        f"Kafka {version} cannot open a cluster with {', '.join(listed)}: open it with kafka.version="
        f"{first_version_with(levels)} or later, or begin with new data"
    )


def check_update(version: str, feature: str, wanted: int, level: int, upgrade_type: int, controller_id: int) -> None:
    """Raise INVALID_UPDATE_VERSION, with Kafka's message, for a level that cannot be set."""
    reason = _refusal(version, feature, wanted, level, upgrade_type, controller_id)
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {wanted} for feature {feature}. {reason}"
        )
    if feature == METADATA_VERSION and any(changes_metadata(version, each) for each in range(wanted + 1, level + 1)):
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
        if upgrade_type == _UNSAFE_DOWNGRADE:
            why = "Unsafe metadata downgrade is not supported in this version."
        what = f"Unsupported metadata.version downgrade from {level} to {wanted}."
        if is_before(version, "4.2"):
            what = f"Invalid metadata.version {wanted}."
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} {why}")


def _refusal(version: str, feature: str, wanted: int, level: int, upgrade_type: int, controller_id: int) -> str | None:
    supported = feature_levels(version).get(feature)
    reason = None
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        reason = "The controller does not support the given upgrade type."
    elif wanted < 0:
        reason = "A feature version cannot be less than 0."
    elif supported is None:
        found = f"Local controller {controller_id} does not support this feature."
        reason = found if wanted else f"Feature {feature} not found."
    elif not supported.lowest <= wanted <= supported.highest:
        reason = f"Local controller {controller_id} only supports versions {supported.lowest}-{supported.highest}"
    elif wanted < level and upgrade_type == _UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif wanted < level and feature == KRAFT_VERSION:
        reason = "Can't downgrade the version of this feature."
    elif wanted > level and upgrade_type != _UPGRADE:
        reason = "Can't downgrade to a newer version."
    return reason


def check_min_insync_replicas(
    features: Mapping[str, int], broker: str, settings: Mapping[str, str], changes: Collection[str]
) -> None:
    """Raise INVALID_CONFIG for settings of a broker, or of all, that Kafka refuses with eligible leaders.

    `changes` are the names that the request sets or deletes, and `settings` what results from it.
    """
    if not features[ELIGIBLE_LEADERS_VERSION]:
        return
    if not broker and MIN_INSYNC_REPLICAS not in settings:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )
    if broker and MIN_INSYNC_REPLICAS in changes:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
