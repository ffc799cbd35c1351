"""Our SASL mechanisms in kafka-python's connections, which look a mechanism up by name and configure it by name.

A login takes the place of the token provider: the one object of a configuration that reaches the mechanism. Other users
of kafka-python in this process have no login and keep its own mechanisms.
"""

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kafka.net.sasl import get_sasl_mechanism, register_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from spark_eos.client.delegation_tokens import delegation_token_mechanism
from spark_eos.client.kerberos import kerberos_mechanism
from spark_eos.client.msk_iam import msk_iam_mechanism
from spark_eos.options.client import ClientOptions
from spark_eos.options.logins import AwsLogin, KerberosLogin

# Makes the mechanism of one connection from the broker's host name.
MakeMechanism: TypeAlias = Callable[[str], Any]
_REPLACED: Final = ("AWS_MSK_IAM", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SaslLogin(AbstractTokenProvider):  # type: ignore[misc]
    """A mechanism of ours, in the guise of a token provider."""

    def __init__(self, make: MakeMechanism) -> None:
        super().__init__()
        self.make = make

    def token(self) -> str:
        raise NotImplementedError


def sasl_login(options: ClientOptions) -> SaslLogin | None:
    """Return the login of a client whose mechanism is ours; raise `OptionError` if its package is missing."""
    make = _maker(options) if options.security_protocol.startswith("SASL") else None
    if make is None:
        return None
    for name in _REPLACED:
        _replace(name)
    return SaslLogin(make)


def _maker(options: ClientOptions) -> MakeMechanism | None:
    login = options.sasl_login
    if isinstance(login, AwsLogin):
        return msk_iam_mechanism(login)
    if isinstance(login, KerberosLogin):
        return kerberos_mechanism(login)
    if options.sasl_delegation_token:
        return delegation_token_mechanism(options)
    return None


def _replace(name: str) -> None:
    usual = get_sasl_mechanism(name)
    if not isinstance(usual, functools.partial):
        register_sasl_mechanism(name, functools.partial(_mechanism, usual), overwrite=True)


def _mechanism(usual: Any, **config: Any) -> Any:
    login = config.get("sasl_oauth_token_provider")
    return login.make(config["host"]) if isinstance(login, SaslLogin) else usual(**config)
