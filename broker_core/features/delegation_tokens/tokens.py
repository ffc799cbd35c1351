"""A delegation token: what it consists of, its HMAC and its stored form."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from broker_core.security.principals import Principal

_LONG_MAX: Final = 2**63 - 1


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
        """Return whether the token can no longer be renewed."""
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
        """Return the token of that form."""
        renewers = tuple(Principal(*each) for each in record["renewers"])
        return cls(token_id, Principal(*record["owner"]), Principal(*record["requester"]), renewers, *record["times"])


def hmac_of(secret_key: str, token_id: str) -> bytes:
    """Return the token's HMAC, which is its password."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def later(now_ms: int, duration_ms: int) -> int:
    """Return the sum, at most the largest time."""
    return min(now_ms + duration_ms, _LONG_MAX)
