"""The SASL settings of a listener, read from its configuration."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.jaas import read_jaas
from broker_core.ports import Entropy
from broker_core.security.sasl import Mechanism, SaslSettings
from broker_core.security.sasl_oauthbearer import OAuthBearer, TokenValidator, UnsecuredTokens
from broker_core.security.sasl_passwords import Plain, Scram, ScramCredential

logger = logging.getLogger(__name__)

CredentialOf = Callable[[str, str], ScramCredential | None]
_VALIDATOR_OPTION: Final = "unsecuredValidator"
_USER_OPTION: Final = "user_"


@dataclass(frozen=True, slots=True)
class SaslServices:
    """The dependencies of mechanisms that are not settings.

    These are SCRAM credentials, randomness, additional PLAIN users, and the validator of tokens.
    """

    credential_of: CredentialOf
    entropy: Entropy
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_validator: TokenValidator | None = None


def sasl_settings(config: BrokerConfig, listener: str, services: SaslServices) -> SaslSettings:
    """Return the listener's SASL settings; raises `ConfigError`."""
    own = config.of_listener(listener)
    names = [name.strip() for name in own.sasl_enabled_mechanisms.split(",")]
    return SaslSettings(
        mechanisms={name: _mechanism(config, listener, name, services) for name in names},
        max_reauth_ms={name: config.max_reauth_ms(listener, name) for name in names},
        max_receive_bytes=own.sasl_server_max_receive_size,
        failure_delay_ms=config.failed_authentication_delay_ms,
    )


def _mechanism(config: BrokerConfig, listener: str, name: str, services: SaslServices) -> Callable[[], Mechanism]:
    key, text = config.jaas_config(listener, name)
    options = parse_jaas(key, text) if text else {}
    if name == "PLAIN":
        return partial(Plain, {**services.passwords, **users_of(options)})
    if name == "OAUTHBEARER":
        if services.token_validator is None:
            logger.warning(
                "listener %s accepts unsigned tokens: clients can claim any name. Use this in "
                "tests only; give a token_validator, or leave OAUTHBEARER out of sasl.enabled.mechanisms",
                listener,
            )
        return partial(OAuthBearer, services.token_validator or _unsecured(key, options))
    return partial(Scram, name, services.credential_of, services.entropy)


def _unsecured(key: str, options: dict[str, str]) -> UnsecuredTokens:
    skew = options.get(f"{_VALIDATOR_OPTION}AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ConfigError(f"{key}: {_VALIDATOR_OPTION}AllowableClockSkewMs is a number of milliseconds")
    return UnsecuredTokens(
        principal_claim=options.get(f"{_VALIDATOR_OPTION}PrincipalClaimName", "sub"),
        scope_claim=options.get(f"{_VALIDATOR_OPTION}ScopeClaimName", "scope"),
        required_scope=tuple(options.get(f"{_VALIDATOR_OPTION}RequiredScope", "").split()),
        clock_skew_ms=int(skew),
    )


def parse_jaas(key: str, text: str) -> dict[str, str]:
    """Return the options of the line; raise `ConfigError` without quoting the line, which contains secrets.

    >>> parse_jaas("k", 'PlainLoginModule required user_alice="secret";')
    {'user_alice': 'secret'}
    """
    line = read_jaas(text)
    if not line.is_complete:
        raise ConfigError(f'{key}: expected one login module, such as PlainLoginModule required user_alice="secret";')
    return line.options


def users_of(options: dict[str, str]) -> dict[str, str]:
    """Return the user names and passwords in options of the form `user_<name>="<password>"`.

    >>> users_of({"username": "x", "user_alice": "secret"})
    {'alice': 'secret'}
    """
    return {
        name.removeprefix(_USER_OPTION): password for name, password in options.items() if name.startswith(_USER_OPTION)
    }
