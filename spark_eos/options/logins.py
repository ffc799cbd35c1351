"""Settings of the ways to authenticate that have more than a user name and a password: Amazon MSK IAM and Kerberos."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker_core.jaas import JaasLine, read_jaas
from spark_eos.errors import OptionError

MSK_IAM: Final = "AWS_MSK_IAM"
KERBEROS: Final = "GSSAPI"
# Java's handler that puts a signed URL into OAUTHBEARER; the listener of MSK IAM accepts both mechanisms.
_MSK_TOKEN_HANDLER: Final = "iamoauthbearerlogincallbackhandler"
_AWS_OPTIONS: Final = {
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session_name",
    "awsRoleExternalId": "role_external_id",
    "awsRoleAccessKeyId": "access_key",
    "awsRoleSecretAccessKey": "secret_key",
    "awsRoleSessionToken": "session_token",
    "awsStsRegion": "sts_region",
}
# They tune what botocore does by itself.
_AWS_IGNORED: Final = frozenset(
    {"awsMaxRetries", "awsMaxBackOffTimeMs", "awsDebugCreds", "awsAddDefaultProviders", "awsShouldUseFips"}
)


@dataclass(frozen=True, slots=True)
class AwsLogin:
    """Where the AWS credentials come from; with no field set, the default chain of the AWS SDKs."""

    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = field(default=None, repr=False)
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    sts_region: str | None = None


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """Whose ticket to use, and the brokers' service; without a keytab, the ticket is in a cache."""

    service_name: str
    domain_name: str | None = None
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


def sasl_mechanism(settings: Mapping[str, str]) -> str:
    """Return the mechanism; Java's ways to ask for MSK IAM all mean `AWS_MSK_IAM`."""
    mechanism = settings.get("sasl.mechanism", KERBEROS).strip().upper()
    handler = settings.get("sasl.login.callback.handler.class", "").strip().lower()
    if mechanism == "OAUTHBEARER" and handler.endswith(_MSK_TOKEN_HANDLER):
        return MSK_IAM
    return mechanism


def sasl_login(settings: Mapping[str, str]) -> AwsLogin | KerberosLogin | None:
    mechanism = sasl_mechanism(settings)
    if mechanism == MSK_IAM:
        return _aws_login(settings)
    if mechanism == KERBEROS:
        return _kerberos_login(settings)
    return None


def is_delegation_token(settings: Mapping[str, str]) -> bool:
    line = read_jaas(settings.get("sasl.jaas.config", ""))
    return line.module.endswith("ScramLoginModule") and line.options.get("tokenauth", "").lower() == "true"


def _aws_login(settings: Mapping[str, str]) -> AwsLogin:
    if settings.get("security.protocol", "").strip().upper() != "SASL_SSL":
        raise OptionError(
            f"{MSK_IAM} needs TLS, and kafka.security.protocol is not SASL_SSL",
            remedy="Set kafka.security.protocol=SASL_SSL",
        )
    options = _jaas(settings, ("IAMLoginModule", "OAuthBearerLoginModule")).options
    for name in options:
        if not name.startswith("aws") or name in _AWS_OPTIONS or name in _AWS_IGNORED:
            continue
        near = difflib.get_close_matches(name, _AWS_OPTIONS, n=1)
        raise OptionError(
            f"kafka.sasl.jaas.config has the unknown option {name!r}",
            remedy=f"Did you mean {near[0]!r}?" if near else "Remove it",
        )
    login = AwsLogin(**{field: options[name] for name, field in _AWS_OPTIONS.items() if name in options})
    if (login.access_key is None) != (login.secret_key is None) or (login.access_key and not login.role_arn):
        raise OptionError(
            "kafka.sasl.jaas.config has an incomplete set of awsRoleArn, awsRoleAccessKeyId and awsRoleSecretAccessKey",
            remedy="Set all three, or only awsRoleArn",
        )
    return login


def _kerberos_login(settings: Mapping[str, str]) -> KerberosLogin:
    options = _jaas(settings, ("Krb5LoginModule",)).options
    keytab = settings.get("sasl.kerberos.keytab", options.get("keyTab"))
    if keytab is None and options.get("useKeyTab", "").lower() == "true":
        raise OptionError(
            "kafka.sasl.jaas.config has useKeyTab=true and no keyTab", remedy='Add keyTab="/path/client.keytab"'
        )
    if options.get("useKeyTab", "true").lower() != "true" and "sasl.kerberos.keytab" not in settings:
        keytab = None
    service_name = settings.get("sasl.kerberos.service.name", options.get("serviceName", "kafka"))
    return KerberosLogin(
        service_name,
        settings.get("sasl.kerberos.domain.name"),
        settings.get("sasl.kerberos.principal", options.get("principal")),
        None if keytab is None else keytab.removeprefix("file://").removeprefix("FILE:"),
        options.get("ticketCache"),
    )


def _jaas(settings: Mapping[str, str], modules: tuple[str, ...]) -> JaasLine:
    """Read `sasl.jaas.config`, which may be absent; its login module must match the mechanism."""
    text = settings.get("sasl.jaas.config")
    if text is None:
        return JaasLine("", {}, True)
    line = read_jaas(text)
    if not settings.get("security.protocol", "").strip().upper().startswith("SASL"):
        # Left over in a file, and not used.
        return line
    return of_module(line, modules)


def of_module(line: JaasLine, modules: tuple[str, ...]) -> JaasLine:
    """Return a line of `sasl.jaas.config`; raise if its login module does not match the mechanism."""
    if not line.module.endswith(modules):
        # Other words may be secrets in the wrong place.
        named = f"the login module {line.module!r}" if line.module.endswith("LoginModule") else "no login module"
        raise OptionError(
            f"kafka.sasl.jaas.config names {named}", remedy=f"Use {' or '.join(modules)}, to match kafka.sasl.mechanism"
        )
    return line
