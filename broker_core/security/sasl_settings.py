"""Turn a listener's settings into what it asks of its clients."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.ports import Entropy
from broker_core.security.jaas import parse_jaas, users_of
from broker_core.security.sasl import Mechanism, SaslSettings
from broker_core.security.sasl_oauthbearer import OAuthBearer, TokenValidator
from broker_core.security.sasl_plain import Plain
from broker_core.security.sasl_scram import Scram, ScramCredential
from broker_core.security.unsecured_tokens import UnsecuredTokens

log = logging.getLogger(__name__)

CredentialOf = Callable[[str, str], ScramCredential | None]
_OPTION = "unsecuredValidator"


@dataclass(frozen=True, slots=True)
class SaslWorld:
    """Hold what mechanisms need besides settings.

    That is where SCRAM's credentials are, chance, users of PLAIN that no setting names, and who vouches for tokens.
    """

    credential_of: CredentialOf
    entropy: Entropy
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_validator: TokenValidator | None = None


def sasl_settings(config: BrokerConfig, listener: str, world: SaslWorld) -> SaslSettings:
    """Return what the listener asks of clients; raises `ConfigError`."""
    own = config.of_listener(listener)
    names = [name.strip() for name in own.sasl_enabled_mechanisms.split(",")]
    return SaslSettings(
        mechanisms={name: _mechanism(config, listener, name, world) for name in names},
        max_reauth_ms={name: config.max_reauth_ms(listener, name) for name in names},
        max_receive_bytes=own.sasl_server_max_receive_size,
        failure_delay_ms=config.failed_authentication_delay_ms,
    )


def _mechanism(config: BrokerConfig, listener: str, name: str, world: SaslWorld) -> Callable[[], Mechanism]:
    key, text = config.jaas_config(listener, name)
    options = parse_jaas(key, text) if text else {}
    if name == "PLAIN":
        return partial(Plain, {**world.passwords, **users_of(options)})
    if name == "OAUTHBEARER":
        if world.token_validator is None:
            log.warning(
                "listener %s takes unsigned tokens at their word: whoever reaches it can be anybody. For tests "
                "only; give a token_validator, or leave OAUTHBEARER out of sasl.enabled.mechanisms",
                listener,
            )
        return partial(OAuthBearer, world.token_validator or _unsecured(key, options))
    return partial(Scram, name, world.credential_of, world.entropy)


def _unsecured(key: str, options: dict[str, str]) -> UnsecuredTokens:
    skew = options.get(f"{_OPTION}AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ConfigError(f"{key}: {_OPTION}AllowableClockSkewMs is a number of milliseconds")
    return UnsecuredTokens(
        principal_claim=options.get(f"{_OPTION}PrincipalClaimName", "sub"),
        scope_claim=options.get(f"{_OPTION}ScopeClaimName", "scope"),
        required_scope=tuple(options.get(f"{_OPTION}RequiredScope", "").split()),
        clock_skew_ms=int(skew),
    )
