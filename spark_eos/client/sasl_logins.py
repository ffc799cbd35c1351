"""Our SASL mechanisms in kafka-python's connections, which look a mechanism up by name and configure it by name.

A login takes the place of the token provider: the one object of a configuration that reaches the mechanism. Other users
of kafka-python in this process have no login and keep its own mechanisms.
"""

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kafka.net.sasl import get_sasl_mechanism, register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.sasl.scram import SaslMechanismScram

from spark_eos.client.msk_iam import msk_iam_mechanism
from spark_eos.errors import AuthenticationError, OptionError
from spark_eos.options.client import ClientOptions
from spark_eos.options.logins import AwsLogin, KerberosLogin

# Makes the mechanism of one connection from the broker's host name.
MakeMechanism: TypeAlias = Callable[[str], Any]
_REPLACED: Final = ("AWS_MSK_IAM", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512")


def kerberos_mechanism(login: KerberosLogin) -> Callable[[str], SaslMechanismGSSAPI]:
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError) as error:
        # OSError: the package is there and the Kerberos library that it loads is not.
        raise OptionError(
            f"GSSAPI needs the package gssapi and the Kerberos library of MIT: {error}",
            remedy="Install gssapi and the system's Kerberos library on the driver and on every executor",
        ) from None
    return functools.partial(_Kerberos, login)


class _Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]
    """The exchange of one connection: kafka-python's, with the login's credentials and errors that name the step."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        import gssapi
        from gssapi.raw.misc import GSSError

        self._is_done = False
        self._is_authenticated = False
        # The broker takes the user from the ticket; another name here would ask to act for another user.
        self.auth_id = ""
        self._service = f"{login.service_name}@{login.domain_name or host}"
        self._errors: Any = GSSError
        try:
            credentials = _credentials(login)
        except GSSError as error:
            raise AuthenticationError(
                f"Kerberos has no ticket for {_owner(login)}: {error}",
                remedy="Check the keytab and the principal, and that the KDC of krb5.conf is reachable"
                if login.keytab
                else "Run kinit on the driver and on every executor, or give them a keytab with "
                "kafka.sasl.kerberos.keytab",
            ) from None
        try:
            service = gssapi.Name(self._service, name_type=gssapi.NameType.hostbased_service)
            self.gssapi_name = service.canonicalize(gssapi.MechType.kerberos)
            self._client_ctx = gssapi.SecurityContext(name=self.gssapi_name, creds=credentials, usage="initiate")
            self._next_token = self._client_ctx.step(None)
        except GSSError as error:
            raise AuthenticationError(
                f"Kerberos has no ticket of {_owner(login)} for the broker's service {self._service}: {error}",
                remedy="Check that the ticket is valid, that the KDC has this service, and "
                "kafka.sasl.kerberos.service.name",
            ) from None

    def receive(self, auth_bytes: bytes) -> None:
        try:
            super().receive(auth_bytes)
        except self._errors as error:
            raise AuthenticationError(
                f"The broker's Kerberos token for {self._service} is not valid: {error}"
            ) from None


def _owner(login: KerberosLogin) -> str:
    where = login.keytab or login.ticket_cache or "the default ticket cache"
    return f"{login.principal} in {where}" if login.principal else where


def _credentials(login: KerberosLogin) -> Any:
    """Acquire credentials; the library renews the ticket of a keytab at the KDC when it is due."""
    import gssapi

    name = None
    if login.principal is not None:
        name = gssapi.Name(login.principal, name_type=gssapi.NameType.kerberos_principal)
    store: dict[bytes | str, bytes | str] = {}
    if login.keytab is not None:
        # Tickets of a keytab stay in this process's memory: the user's ticket cache may be another principal's.
        store = {
            "client_keytab": f"FILE:{login.keytab}",
            "ccache": f"MEMORY:eos-kafka:{login.keytab}:{login.principal}",
        }
    elif login.ticket_cache is not None:
        store = {"ccache": login.ticket_cache}
    return gssapi.Credentials(usage="initiate", name=name, store=store or None)


def delegation_token_mechanism(options: ClientOptions) -> Callable[[str], SaslMechanismScram]:
    """Return SCRAM with a delegation token (KIP-48): its id and HMAC are the user name and password."""

    def make(host: str) -> SaslMechanismScram:
        made = SaslMechanismScram(
            sasl_plain_username=options.sasl_username,
            sasl_plain_password=options.sasl_password,
            sasl_mechanism=options.sasl_mechanism,
            security_protocol=options.security_protocol,
        )
        # The extension follows the nonce in the client's first message, and the broker's answer repeats the nonce
        # alone; kafka-python has no extensions, so only the message is changed.
        client = made._scram_client
        first_message = client.first_message

        def with_extension() -> bytes:
            message: bytes = first_message() + b",tokenauth=true"
            client.auth_message += b",tokenauth=true"
            return message

        client.first_message = with_extension
        return made

    return make


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
