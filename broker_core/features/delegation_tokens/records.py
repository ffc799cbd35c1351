"""The delegation tokens in the cluster's metadata, their records and their HMACs."""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.metadata_records import Fields, Shape, are, is_count, is_text
from broker_core.security.principals import Principal
from broker_core.types import LONG_MAX

_TYPE: Final = "delegation_token"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token, without its HMAC, which depends on the broker's secret key; times in ms."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def has_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Return whether the principal may renew the token, or let it expire."""
        return principal == self.owner or principal in self.renewers

    def belongs_to(self, principal: Principal) -> bool:
        """Return whether the principal may describe the token without a right."""
        return principal == self.requester or self.may_be_renewed_by(principal)

    def as_record(self) -> dict[str, Any]:
        """Return the token in a form for JSON, without its id."""
        return {
            "owner": [self.owner.kind, self.owner.name],
            "requester": [self.requester.kind, self.requester.name],
            "renewers": [[each.kind, each.name] for each in self.renewers],
            "times": [self.issued_ms, self.max_ms, self.expires_ms],
        }

    @classmethod
    def from_record(cls, token_id: str, record: Mapping[str, Any]) -> Self:
        renewers = tuple(Principal(*each) for each in record["renewers"])
        return cls(token_id, Principal(*record["owner"]), Principal(*record["requester"]), renewers, *record["times"])


def hmac_of(secret_key: str, token_id: str) -> bytes:
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def later(now_ms: int, duration_ms: int) -> int:
    """Return the sum, at most the largest time."""
    return min(now_ms + duration_ms, LONG_MAX)


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
