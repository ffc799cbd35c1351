"""The API that changes the cluster's feature levels while it runs (KIP-584).

Open transactions continue as they were recorded, so a change needs no pause: the level only decides
the advertised version, how state is written, and how the broker aborts a transaction itself.
"""

from collections.abc import Iterable
from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import refusal
from broker_core.broker.feature_levels import ELIGIBLE_LEADERS_VERSION, check_update
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import needs
from broker_core.wire import messages as m
from broker_core.wire.kafka_versions import is_before

_Update: TypeAlias = m.UpdateFeaturesRequest.FeatureUpdateKey
_Result: TypeAlias = m.UpdateFeaturesResponse.UpdatableFeatureResult
_FIRST_WITHOUT_RESULTS = 2
# Older versions of Kafka answer for each feature, and set those that can be set.
_FIRST_WITH_ALL_OR_NONE = "4.0"
# The message of a success, in responses with a result for each feature.
_NO_ERROR = "NONE"


def update_features(context: ApiCall[m.UpdateFeaturesRequest]) -> m.UpdateFeaturesResponse:
    """Set feature levels, from Kafka 4.0 all or none; if a feature is named twice, the last level counts."""
    refused = refusal(context, Operation.ALTER, ResourceType.CLUSTER)
    if refused:
        return m.UpdateFeaturesResponse(
            error_code=refused, error_message=f"{context.principal} has no right to ALTER the cluster"
        )
    updates = {update.feature: update for update in context.body.feature_updates}
    refusals = {name: error for name, update in updates.items() if (error := _refusal(context, update)) is not None}
    if is_before(context.broker.metadata.kafka_version, _FIRST_WITH_ALL_OR_NONE):
        _set_levels(context, (update for name, update in updates.items() if name not in refusals))
        results = [
            _result(name, refusals[name].message, refusals[name].code) if name in refusals else _result(name, None)
            for name in sorted(updates)
        ]
        return m.UpdateFeaturesResponse(results=results)
    for error in refusals.values():
        message = f"The update failed for all features since the following feature had an error: {error.message}"
        return m.UpdateFeaturesResponse(error_code=error.code, error_message=message)
    _set_levels(context, updates.values())
    return m.UpdateFeaturesResponse(
        error_message=None,
        results=[] if context.version >= _FIRST_WITHOUT_RESULTS else [_result(name, _NO_ERROR) for name in updates],
    )


def _refusal(context: RequestContext, update: _Update) -> KafkaError | None:
    metadata = context.broker.metadata
    level, controller = metadata.features.get(update.feature, 0), min(context.broker.controller.addresses)
    try:
        # Version 0 has a flag for downgrades that Kafka now ignores: version 0 can only upgrade.
        check_update(
            metadata.kafka_version, update.feature, update.max_version_level, level, update.upgrade_type, controller
        )
    except KafkaError as error:
        return error
    return None


def _set_levels(context: ApiCall[m.UpdateFeaturesRequest], updates: Iterable[_Update]) -> None:
    if context.body.validate_only:
        return
    metadata, settings = context.broker.metadata, context.broker.services.settings
    for update in updates:
        name, before = update.feature, metadata.features[update.feature]
        if update.max_version_level != before:
            metadata.set_feature(name, update.max_version_level)
            if name == ELIGIBLE_LEADERS_VERSION and not before:
                metadata.enable_eligible_leaders(settings.static.min_insync_replicas)
                settings.changed()


def _result(name: str, message: str | None, code: ErrorCode = ErrorCode.NONE) -> _Result:
    return _Result(feature=name, error_code=code, error_message=message)


APIS = (api(m.UpdateFeaturesRequest, (0, 2), update_features, needs(Operation.ALTER, ResourceType.CLUSTER)),)
