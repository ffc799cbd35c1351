"""The bytes of ApiVersions responses.

Every new connection asks for one, and all answers are equal until a feature's level changes: it is encoded once.
"""

from typing import Any, Final

_MOST: Final = 64
_bodies: dict[tuple[Any, ...], bytes] = {}


def encode_api_versions_response(response: Any, version: int) -> bytes:
    """Return the body of a response, from an earlier equal one if there is one."""
    content = (
        version,
        response.error_code,
        response.throttle_time_ms,
        response.finalized_features_epoch,
        response.zk_migration_ready,
        tuple((each.api_key, each.min_version, each.max_version) for each in response.api_keys),
        tuple((each.name, each.min_version, each.max_version) for each in response.supported_features),
        tuple((each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features),
    )
    body = _bodies.get(content)
    if body is None:
        if len(_bodies) >= _MOST:
            _bodies.clear()
        body = _bodies[content] = bytes(response.encode(version=version))
    return body
