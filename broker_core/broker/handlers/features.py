"""The API that changes the cluster's feature levels while it runs (KIP-584).

Open transactions continue as they were recorded, so a change needs no pause: the level only decides
the advertised version, how state is written, and how the broker aborts a transaction itself.
"""

from typing import Any

from broker_core.broker.authorization import refusal
from broker_core.broker.kafka_version import check_levels
from broker_core.broker.metadata import FEATURES
from broker_core.broker.request_context import RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_FIRST_WITH_TYPES = 1
_FIRST_WITHOUT_RESULTS = 2
# The message of a success, in responses with a result for each feature.
_NO_ERROR = "NONE"


def update_features(context: RequestContext) -> None:
    """Set feature levels, all or none; if a feature is named twice, the last level counts."""
    refused = refusal(context, Operation.ALTER, ResourceType.CLUSTER)
    if refused:
        context.answer(
            m.UpdateFeaturesResponse(
                error_code=refused, error_message=f"{context.principal} has no right to ALTER the cluster", results=[]
            )
        )
        return
    updates = {update.feature: update for update in context.body.feature_updates}
    try:
        levels = {name: update.max_version_level for name, update in updates.items()}
        check_levels(context.broker.config.kafka_version, levels)
        for update in updates.values():
            _check(context, update)
    except KafkaError as error:
        message = f"no feature was changed because one update is invalid: {error.message}"
        context.answer(m.UpdateFeaturesResponse(error_code=error.code, error_message=message, results=[]))
        return
    if not (context.version >= _FIRST_WITH_TYPES and context.body.validate_only):
        for update in updates.values():
            if update.max_version_level != context.broker.metadata.features[update.feature]:
                context.broker.metadata.set_feature(update.feature, update.max_version_level)
    context.answer(
        m.UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=_results(context, updates))
    )


def _check(context: RequestContext, update: Any) -> None:
    """Raise INVALID_UPDATE_VERSION for a level that cannot be set."""
    wanted, level = update.max_version_level, context.broker.metadata.features.get(update.feature, 0)
    # Version 0 has a flag for downgrades that Kafka now ignores: version 0 can only upgrade.
    kind = update.upgrade_type if context.version >= _FIRST_WITH_TYPES else _UPGRADE
    reason = None
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        reason = f"unknown upgrade type {kind}"
    elif update.feature not in FEATURES:
        reason = f"unknown feature; the features are {' and '.join(FEATURES)}"
    elif not 0 <= wanted <= FEATURES[update.feature]:
        reason = f"the level is outside 0..{FEATURES[update.feature]}"
    elif wanted < level and kind == _UPGRADE:
        reason = f"the level is {level}; a lower level requires the upgrade type of a downgrade"
    elif wanted > level and kind != _UPGRADE:
        reason = f"the level is {level}; a higher level is not a downgrade"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{update.feature} {wanted}: {reason}")


def _results(context: RequestContext, updates: dict[str, Any]) -> list[Any]:
    if context.version >= _FIRST_WITHOUT_RESULTS:
        return []
    form = m.UpdateFeaturesResponse.UpdatableFeatureResult
    return [form(feature=feature, error_code=ErrorCode.NONE, error_message=_NO_ERROR) for feature in updates]
