"""The login with a delegation token, which is a SCRAM login whose password is the token's HMAC."""

import base64
from collections.abc import Callable

from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import BrokerConfig
from broker_core.features.delegation_tokens.records import Tokens, hmac_of
from broker_core.ports import Entropy
from broker_core.security.sasl_passwords import TokenLogin, credential_of_password


def token_logins(
    metadata: ClusterMetadata, config: BrokerConfig, entropy: Entropy
) -> Callable[[str, str], TokenLogin | None]:
    """Return a function that finds the login of a SCRAM mechanism and token id; None if there is no such token."""
    tokens, secret_key = metadata.state(Tokens), config.delegation_token_secret_key

    def find(mechanism: str, token_id: str) -> TokenLogin | None:
        token = tokens.get(token_id) if secret_key else None
        if token is None:
            return None
        password = base64.b64encode(hmac_of(secret_key, token_id)).decode()
        return TokenLogin(credential_of_password(mechanism, password, entropy), token.owner.name, token.expires_ms)

    return find
