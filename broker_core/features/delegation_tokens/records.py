"""The delegation tokens in the cluster's metadata, and their records."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.metadata_records import Fields, Shape, are, is_count, is_text
from broker_core.features.delegation_tokens.tokens import DelegationToken

_TYPE: Final = "delegation_token"


class Tokens(dict[str, DelegationToken]):
    """The tokens by id; changed by replay only."""


def set_token(metadata: ClusterMetadata, token_id: str, token: DelegationToken | None) -> None:
    """Record a delegation token; None deletes it."""
    # The log does not contain the HMAC, which is the token's password.
    metadata.record({"type": _TYPE, "name": token_id, "token": None if token is None else token.as_record()})


def _replay(metadata: ClusterMetadata, record: Fields) -> None:
    tokens, token_id = metadata.state(Tokens), record["name"]
    if record["token"] is None:
        tokens.pop(token_id, None)
    else:
        tokens[token_id] = DelegationToken.from_record(token_id, record["token"])


def _is_principal(value: object) -> bool:
    return are(value, is_text) and len(value) == 2


def _is_token(value: Any) -> bool:
    if value is None:
        return True
    return (
        _is_principal(value["owner"])
        and _is_principal(value["requester"])
        and are(value["renewers"], _is_principal)
        and are(value["times"], is_count)
        and len(value["times"]) == 3
    )


SHAPES: Final[Mapping[str, Mapping[str, Shape]]] = {_TYPE: {"name": is_text, "token": _is_token}}
REPLAY: Final[Mapping[str, Callable[[ClusterMetadata, Fields], None]]] = {_TYPE: _replay}
