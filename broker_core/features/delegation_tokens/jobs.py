"""The periodic deletion of expired delegation tokens."""

import logging

from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import BrokerConfig
from broker_core.features.delegation_tokens.records import Tokens, set_token

logger = logging.getLogger(__name__)


class TokenExpiration:
    """The deletion of expired tokens, each `delegation.token.expiry.check.interval.ms`, as Kafka's controller does."""

    def __init__(self, metadata: ClusterMetadata, interval_ms: int, now_ms: int) -> None:
        self._metadata = metadata
        self._interval_ms = interval_ms
        self._due_ms = now_ms + interval_ms

    def advance(self, now_ms: int) -> None:
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + self._interval_ms
        for token in list(self._metadata.state(Tokens).values()):
            if token.has_expired(now_ms):
                logger.info("delegation token %s of %s has expired", token.token_id, token.owner)
                set_token(self._metadata, token.token_id, None)

    def next_deadline_ms(self) -> int | None:
        """Return when the next check is due, None without tokens."""
        return self._due_ms if self._metadata.state(Tokens) else None


def job(metadata: ClusterMetadata, config: BrokerConfig, now_ms: int) -> TokenExpiration:
    return TokenExpiration(metadata, config.delegation_token_expiry_check_interval_ms, now_ms)
