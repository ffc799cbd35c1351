"""The features of a cluster (KIP-584): those of Apache Kafka 4.4, with the levels that it supports and starts with.

`transaction.version`, `group.version` and `share.version` decide how the brokers behave, and their first levels are
settings. The others are finalized as a new cluster of Kafka 4.4 has them. Their levels can be changed, with no other
effect here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.errors import ErrorCode, KafkaError

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADERS_VERSION: Final = "eligible.leader.replicas.version"

# With eligible leaders this setting belongs to the cluster (KIP-966).
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
# The lowest level that the metadata of the highest one can be read at.
_SAFE_METADATA_VERSION: Final = 33


class Levels(NamedTuple):
    """The supported levels of a feature."""

    lowest: int
    highest: int


SUPPORTED: Final = {
    GROUP_VERSION: Levels(0, 1),
    KRAFT_VERSION: Levels(0, 1),
    METADATA_VERSION: Levels(7, 33),
    SHARE_VERSION: Levels(0, 2),
    "streams.version": Levels(0, 1),
    TRANSACTION_VERSION: Levels(0, 2),
    ELIGIBLE_LEADERS_VERSION: Levels(0, 1),
}
# The levels before any change; some are set when the cluster starts.
FIRST_LEVELS: Final[Mapping[str, int]] = {
    name: 0 if name in (TRANSACTION_VERSION, GROUP_VERSION) else levels.highest for name, levels in SUPPORTED.items()
}


def check_update(feature: str, wanted: int, level: int, upgrade_type: int, controller_id: int) -> None:
    """Raise INVALID_UPDATE_VERSION, with Kafka's message, for a level that cannot be set."""
    reason = _refusal(feature, wanted, level, upgrade_type, controller_id)
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {wanted} for feature {feature}. {reason}"
        )
    if feature == METADATA_VERSION and wanted < min(level, _SAFE_METADATA_VERSION):
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
        if upgrade_type == _UNSAFE_DOWNGRADE:
            why = "Unsafe metadata downgrade is not supported in this version."
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {level} to {wanted}. {why}",
        )


def _refusal(feature: str, wanted: int, level: int, upgrade_type: int, controller_id: int) -> str | None:
    supported = SUPPORTED.get(feature)
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


def check_min_insync_replicas(features: Mapping[str, int], broker: str, settings: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG for settings of a broker, or of all, that Kafka refuses with eligible leaders."""
    if not features[ELIGIBLE_LEADERS_VERSION]:
        return
    if not broker and MIN_INSYNC_REPLICAS not in settings:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )
    if broker and MIN_INSYNC_REPLICAS in settings:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
