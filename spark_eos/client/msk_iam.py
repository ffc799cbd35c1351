"""AWS_MSK_IAM: a request signed with AWS credentials, which botocore finds and renews."""

import contextlib
import functools
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

from kafka.net.sasl.msk import AwsMskIamClient, SaslMechanismAwsMskIam

from spark_eos.errors import AuthenticationError, OptionError
from spark_eos.options.logins import AwsLogin

# The host names of provisioned and serverless clusters; a name of your own needs the region from elsewhere.
_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?$", re.IGNORECASE)
_SESSION_NAME: Final = "eos-kafka"
_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 10
_ATTEMPTS: Final = 3
# botocore logs requests and responses at DEBUG, with tokens and keys.
_LOGGERS: Final = ("auth", "endpoint", "parsers", "httpsession", "hooks", "utils", "credentials", "awsrequest")
_fetching: ContextVar[bool] = ContextVar("fetching", default=False)


def msk_iam_mechanism(login: AwsLogin) -> Callable[[str], SaslMechanismAwsMskIam]:
    try:
        import botocore.session  # noqa: F401
    except ImportError:
        raise OptionError(
            "AWS_MSK_IAM needs the package botocore, which is not installed",
            remedy="Install botocore on the driver and on every executor",
        ) from None
    return functools.partial(_MskIam, _shared(login, os.getpid()))


class _MskIam(SaslMechanismAwsMskIam):  # type: ignore[misc]
    """The exchange of one connection: kafka-python's, with our credentials."""

    def __init__(self, credentials: "_AwsCredentials", host: str) -> None:
        self.host = host
        self._credentials = credentials
        self._auth = None
        self._is_done = False
        self._is_authenticated = False

    def _build_client(self) -> Any:
        region, frozen = self._credentials.current(self.host)
        return AwsMskIamClient(
            host=self.host,
            access_key=frozen.access_key,
            secret_key=frozen.secret_key,
            region=region,
            token=frozen.token,
        )


class _AwsCredentials:
    """The credentials of one login in one process.

    botocore renews temporary credentials ahead of their expiry; other ones are looked up for each connection, because
    the file or the environment that they come from may have changed.
    """

    def __init__(self, login: AwsLogin) -> None:
        self._login = login
        self._temporary: Any = None

    def current(self, host: str) -> tuple[str, Any]:
        """Return the region of a broker and valid credentials; raise `AuthenticationError`."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with _quiet_logs():
                return self._look_up(host)
        except (BotoCoreError, ClientError) as error:
            raise AuthenticationError(
                f"AWS returned no credentials for AWS_MSK_IAM: {error}",
                remedy="Check the AWS profile, role and endpoint of this machine, and the awsProfileName, awsRoleArn "
                "and awsStsRegion of kafka.sasl.jaas.config",
            ) from None

    def _look_up(self, host: str) -> tuple[str, Any]:
        from botocore.credentials import RefreshableCredentials

        found, session = self._temporary, _session(self._login)
        region = _region(host, session)
        if found is None:
            found = _resolve(self._login, session, region)
            if isinstance(found, RefreshableCredentials):
                self._temporary = found
        return region, found.get_frozen_credentials()


@functools.lru_cache(maxsize=16)
def _shared(login: AwsLogin, _process_id: int) -> _AwsCredentials:
    # A forked child must not use its parent's, whose locks may be held.
    return _AwsCredentials(login)


def _session(login: AwsLogin) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    session = Session(profile=login.profile)
    session.set_default_client_config(
        Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, retries={"total_max_attempts": _ATTEMPTS})
    )
    return session


def _region(host: str, session: Any) -> str:
    named = _REGION.search(host)
    region = named[1] if named else os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not region:
        raise AuthenticationError(
            f"The AWS region of broker {host} is not known",
            remedy="Use the cluster's own host names, or set AWS_REGION on the driver and on every executor",
        )
    return str(region)


def _resolve(login: AwsLogin, session: Any, region: str) -> Any:
    from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials

    if login.access_key is not None:
        source = Credentials(login.access_key, login.secret_key, login.session_token)
    else:
        source = session.get_credentials()
    if source is None:
        raise AuthenticationError(
            "There are no AWS credentials for AWS_MSK_IAM",
            checked="Environment, shared files, web identity, container and instance metadata have none",
            remedy="Give the driver and every executor a role or a profile, or set awsProfileName or awsRoleArn in "
            "kafka.sasl.jaas.config",
        )
    # As in Java, a profile comes before a role.
    if login.role_arn is None or login.profile is not None:
        return source
    arguments = {"RoleSessionName": login.role_session_name or _SESSION_NAME}
    if login.role_external_id is not None:
        arguments["ExternalId"] = login.role_external_id
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=functools.partial(session.create_client, region_name=login.sts_region or region),
        source_credentials=source,
        role_arn=login.role_arn,
        extra_args=arguments,
    )
    return DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    for name in _LOGGERS:
        logging.getLogger(f"botocore.{name}").addFilter(_is_shown)
    token = _fetching.set(True)
    try:
        yield
    finally:
        _fetching.reset(token)


def _is_shown(record: logging.LogRecord) -> bool:
    """Hide what botocore logs at DEBUG while it fetches our credentials; other users of it keep their logs."""
    return record.levelno > logging.DEBUG or not _fetching.get()
