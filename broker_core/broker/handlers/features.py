"""Change the cluster's feature levels while it runs (KIP-584)."""

from typing import Any

from broker_core.broker.call import Call
from broker_core.broker.catalog import MAX_TRANSACTION_VERSION, TRANSACTION_VERSION
from broker_core.errors import ErrorCode, KafkaError
from broker_core.wire import messages as m

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_FIRST_WITH_TYPES = 1
_FIRST_WITHOUT_RESULTS = 2


def update_features(call: Call) -> None:
    """Set feature levels, all of them or none; from version 2 on the answer has one error for all."""
    updates = call.body.feature_updates
    try:
        for update in updates:
            _check(call, update)
    except KafkaError as error:
        call.answer(_response(call, error.code, error.message))
        return
    if not (call.version >= _FIRST_WITH_TYPES and call.body.validate_only):
        for update in updates:
            if update.max_version_level != call.broker.catalog.transaction_version:
                call.broker.catalog.set_transaction_version(update.max_version_level)
    call.answer(_response(call, ErrorCode.NONE, None))


def _check(call: Call, update: Any) -> None:
    if update.feature != TRANSACTION_VERSION:
        raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED,
                         f"feature {update.feature!r} is not known; there is {TRANSACTION_VERSION}")
    wanted, level = update.max_version_level, call.broker.catalog.transaction_version
    if not 0 <= wanted <= MAX_TRANSACTION_VERSION:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION,
                         f"{TRANSACTION_VERSION} {wanted} is outside 0..{MAX_TRANSACTION_VERSION}")
    may_downgrade = (
        update.upgrade_type in (_SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE) if call.version >= _FIRST_WITH_TYPES
        else update.allow_downgrade)
    if wanted < level and not may_downgrade:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION,
                         f"{TRANSACTION_VERSION} is at {level}; {wanted} must be asked for as a downgrade")
    if wanted > level and call.version >= _FIRST_WITH_TYPES and update.upgrade_type != _UPGRADE:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION,
                         f"{TRANSACTION_VERSION} is at {level}; {wanted} is no downgrade")


def _response(call: Call, code: ErrorCode, message: str | None) -> Any:
    response = m.UpdateFeaturesResponse
    results = [] if call.version >= _FIRST_WITHOUT_RESULTS else [
        response.UpdatableFeatureResult(feature=update.feature, error_code=code, error_message=message)
        for update in call.body.feature_updates
    ]
    top = code if call.version >= _FIRST_WITHOUT_RESULTS else ErrorCode.NONE
    return response(error_code=top, error_message=message if top else None, results=results)
