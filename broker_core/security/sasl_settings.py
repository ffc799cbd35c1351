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
from broker_core.security.sasl_jwt import KeySetPlace, OpenKeySet, SignedTokens
from broker_core.security.sasl_oauthbearer import OAuthBearer, TokenValidator, UnsecuredTokens
from broker_core.security.sasl_passwords import Plain, Scram, ScramCredential, TokenLoginOf

logger = logging.getLogger(__name__)

CredentialOf = Callable[[str, str], ScramCredential | None]
_VALIDATOR_OPTION: Final = "unsecuredValidator"
_USER_OPTION: Final = "user_"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_SIGNED: Final = f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
_HANDLERS: Final = (_SIGNED, f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler")


@dataclass(frozen=True, slots=True)
class SaslServices:
    """The dependencies of mechanisms that are not settings.

    These are SCRAM credentials, randomness, additional PLAIN users, the validator of tokens, what opens a key set, and
    the delegation tokens.
    """

    credential_of: CredentialOf
    entropy: Entropy
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_validator: TokenValidator | None = None
    open_key_set: OpenKeySet | None = None
    token_login_of: TokenLoginOf | None = None


def sasl_settings(config: BrokerConfig, listener: str, services: SaslServices) -> SaslSettings:
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
        return partial(OAuthBearer, services.token_validator or _validator(config, listener, key, options, services))
    return partial(Scram, name, services.credential_of, services.entropy, services.token_login_of)


def _validator(
    config: BrokerConfig, listener: str, key: str, options: dict[str, str], services: SaslServices
) -> TokenValidator:
    own = config.of_listener(listener)
    handler = config.callback_handler(listener, "OAUTHBEARER")
    if handler not in ("", *_HANDLERS):
        raise ConfigError(f"listener {listener}: the callback handler is not one of {', '.join(_HANDLERS)}")
    if own.sasl_oauthbearer_jwks_endpoint_url and handler in ("", _SIGNED):
        return _signed(own, options, services.open_key_set)
    if handler == _SIGNED:
        raise ConfigError(f"listener {listener}: {handler} needs sasl.oauthbearer.jwks.endpoint.url")
    logger.warning(
        "listener %s accepts unsigned tokens: clients can claim any name. Use this in tests only; set "
        "sasl.oauthbearer.jwks.endpoint.url, give a token_validator, or leave OAUTHBEARER out of "
        "sasl.enabled.mechanisms",
        listener,
    )
    skew = options.get(f"{_VALIDATOR_OPTION}AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ConfigError(f"{key}: {_VALIDATOR_OPTION}AllowableClockSkewMs is a number of milliseconds")
    return UnsecuredTokens(
        principal_claim=options.get(f"{_VALIDATOR_OPTION}PrincipalClaimName", "sub"),
        scope_claim=options.get(f"{_VALIDATOR_OPTION}ScopeClaimName", "scope"),
        required_scope=tuple(options.get(f"{_VALIDATOR_OPTION}RequiredScope", "").split()),
        clock_skew_ms=int(skew),
    )


def _signed(own: BrokerConfig, options: dict[str, str], open_key_set: OpenKeySet | None) -> SignedTokens:
    audiences = {each.strip() for each in own.sasl_oauthbearer_expected_audience.split(",")} - {""}
    issuer = own.sasl_oauthbearer_expected_issuer
    for name, is_missing, is_allowed in (
        ("audience", not audiences, own.sasl_oauthbearer_allow_unverified_audience),
        ("issuer", not issuer, own.sasl_oauthbearer_allow_unverified_issuer),
    ):
        if is_missing and not is_allowed:
            raise ConfigError(
                f"sasl.oauthbearer.jwks.endpoint.url needs sasl.oauthbearer.expected.{name}, or "
                f"sasl.oauthbearer.allow.unverified.{name}=true"
            )
    if open_key_set is None:
        raise ConfigError("sasl.oauthbearer.jwks.endpoint.url: key sets cannot be read here")
    place = KeySetPlace(
        own.sasl_oauthbearer_jwks_endpoint_url,
        own.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        own.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        own.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        options.get("ssl.truststore.location"),
        options.get("ssl.truststore.certificates"),
    )
    return SignedTokens(
        open_key_set(place),
        issuer or None,
        frozenset(audiences),
        1000 * own.sasl_oauthbearer_clock_skew_seconds,
        own.sasl_oauthbearer_sub_claim_name,
        own.sasl_oauthbearer_scope_claim_name,
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
