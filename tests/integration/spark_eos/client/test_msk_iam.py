"""AWS_MSK_IAM against a broker that checks signatures, with credentials from each place that botocore looks in."""

import json
import logging
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from broker_core import EmbeddedBroker
from spark_eos.admin.command import ExitCode, main
from spark_eos.client import msk_iam
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.sasl_logins import sasl_login
from spark_eos.errors import AuthenticationError, EosKafkaError, OptionError
from spark_eos.options.client import client_options
from tests.support.spark_eos.msk_broker import AwsServices, Identities, aws_services, msk_iam_brokers
from tests.support.waiting import wait_until

AUTHORITY = trustme.CA()
KEY, SECRET = "AKIAOFTHETESTS", "the/secret+of-the-tests"
MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"
HANDLERS = "software.amazon.msk.auth.iam"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
ROLE = "arn:aws:iam::123456789012:role/writer"


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def identities() -> Identities:
    return Identities()


@pytest.fixture(scope="module")
def kafka(identities: Identities) -> Iterator[EmbeddedBroker]:
    with msk_iam_brokers(identities):
        with EmbeddedBroker(listeners={"IAM": "SASL_SSL"}, tls=server_context(), users={"a": "b"}) as running:
            yield running


@pytest.fixture(scope="module")
def sts(identities: Identities) -> Iterator[AwsServices]:
    with aws_services(identities, server_context()) as running:
        yield running


class Aws:
    """An environment without any AWS credentials but those that a test adds."""

    def __init__(self, folder: Path, kafka: EmbeddedBroker, sts: AwsServices, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.kafka, self.sts, self.patch = folder, kafka, sts, patch
        self.authority = folder / "ca.pem"
        self.authority.write_bytes(AUTHORITY.cert_pem.bytes())
        self.set("AWS_REGION", "eu-west-3")
        self.set("AWS_EC2_METADATA_DISABLED", "true")
        self.set("AWS_CONFIG_FILE", str(folder / "config"))
        self.set("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
        self.set("AWS_ENDPOINT_URL_STS", sts.url)
        self.set("AWS_CA_BUNDLE", str(self.authority))
        sts.requests.clear()
        sts.identities.seen.clear()
        sts.refuses, sts.lifetime_s = False, 3_600

    def set(self, name: str, value: str) -> None:
        self.patch.setenv(name, value)

    def keys(self) -> None:
        self.set("AWS_ACCESS_KEY_ID", KEY)
        self.set("AWS_SECRET_ACCESS_KEY", SECRET)
        self.sts.identities.secrets[KEY] = SECRET

    def options(self, jaas: str = f"{MODULE};", **more: str) -> dict[str, str]:
        settings = {
            "bootstrap.servers": self.kafka.bootstrap("IAM"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": jaas,
            "sasl.client.callback.handler.class": f"{HANDLERS}.IAMClientCallbackHandler",
            "ssl.truststore.location": str(self.authority),
            "default.api.timeout.ms": "20000",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return {f"kafka.{name}": value for name, value in settings.items()}

    def connect(self, jaas: str = f"{MODULE};", **more: str) -> str:
        """Connect, and return the access key that the broker saw."""
        with KafkaClient(client_options(self.options(jaas, **more))) as client:
            client.metadata([])
        return self.sts.identities.seen[-1]["x-amz-credential"].split("/")[0]

    def refused(self, jaas: str = f"{MODULE};", **more: str) -> str:
        with pytest.raises(EosKafkaError) as caught:
            self.connect(jaas, **more)
        assert isinstance(caught.value, AuthenticationError | OptionError)
        return str(caught.value)


@pytest.fixture
def aws(tmp_path: Path, kafka: EmbeddedBroker, sts: AwsServices, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    msk_iam._shared.cache_clear()
    yield Aws(tmp_path, kafka, sts, monkeypatch)
    msk_iam._shared.cache_clear()


def test_keys_of_the_environment_sign(aws: Aws) -> None:
    aws.keys()
    assert aws.connect() == KEY
    [message] = aws.sts.identities.seen[-1:]
    assert message["x-amz-credential"].split("/")[2:] == ["eu-west-3", "kafka-cluster", "aws4_request"]
    assert message["host"] == "127.0.0.1"
    assert "x-amz-security-token" not in message
    aws.set("AWS_SECRET_ACCESS_KEY", "another")
    aws.sts.identities.secrets[KEY] = "another"
    assert aws.connect() == KEY, "static keys are looked up again for each connection"


@pytest.mark.parametrize(
    "more",
    [
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_login_callback_handler_class": f"{HANDLERS}.IAMOAuthBearerLoginCallbackHandler",
        },
        {"sasl_client_callback_handler_class": f"shadedmskiam.{HANDLERS}.IAMClientCallbackHandler"},
    ],
)
def test_java_settings_mean_msk_iam(aws: Aws, more: dict[str, str]) -> None:
    aws.keys()
    jaas = f"{OAUTH_MODULE};" if "sasl_mechanism" in more else f"shadedmskiam.{MODULE};"
    assert aws.connect(jaas, **more) == KEY


def test_mechanism_alone_is_enough(aws: Aws) -> None:
    aws.keys()
    given = aws.options()
    del given["kafka.sasl.jaas.config"], given["kafka.sasl.client.callback.handler.class"]
    with KafkaClient(client_options(given)) as client:
        client.metadata([])


def test_profile_of_the_jaas_line_is_used(aws: Aws) -> None:
    aws.keys()
    (aws.folder / "credentials").write_text(
        f"[default]\naws_access_key_id=x\naws_secret_access_key=y\n"
        f"[writer]\naws_access_key_id=AKIAOFAPROFILE\naws_secret_access_key={SECRET}\n"
    )
    aws.sts.identities.secrets["AKIAOFAPROFILE"] = SECRET
    assert aws.connect(f'{MODULE} awsProfileName="writer";') == "AKIAOFAPROFILE"
    assert "profile (unknown) could not be found" in aws.refused(f'{MODULE} awsProfileName="unknown";')


def test_role_is_assumed_once_and_renewed_ahead_of_expiry(aws: Aws) -> None:
    aws.keys()
    jaas = f'{MODULE} awsRoleArn="{ROLE}" awsRoleSessionName="s1" awsRoleExternalId="e1" awsStsRegion="us-west-2";'
    first = aws.connect(jaas)
    assert first.startswith("ASIATEMPORARY")
    assert aws.connect(jaas) == first
    [request] = aws.sts.requests
    assert {name: request[name] for name in ("Action", "RoleArn", "RoleSessionName", "ExternalId")} == {
        "Action": "AssumeRole", "RoleArn": ROLE, "RoleSessionName": "s1", "ExternalId": "e1",
    }  # fmt: skip
    # botocore renews credentials whose last ten minutes have begun.
    msk_iam._shared.cache_clear()
    aws.sts.lifetime_s = 500
    short = aws.connect(jaas)
    aws.sts.lifetime_s = 3_600
    assert aws.connect(jaas) not in (first, short)
    assert len(aws.sts.requests) > 2


def test_role_is_assumed_with_keys_of_the_jaas_line(aws: Aws) -> None:
    jaas = f'{MODULE} awsRoleArn="{ROLE}" awsRoleAccessKeyId="{KEY}" awsRoleSecretAccessKey="{SECRET}";'
    assert aws.connect(jaas).startswith("ASIATEMPORARY")
    assert SECRET not in repr(client_options(aws.options(jaas)))


def test_web_identity_of_kubernetes_is_used(aws: Aws) -> None:
    token = aws.folder / "token"
    token.write_text("a.web.identity")
    aws.set("AWS_ROLE_ARN", ROLE)
    aws.set("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    aws.set("AWS_DEFAULT_REGION", "eu-west-3")
    assert aws.connect().startswith("ASIATEMPORARY")
    [request] = aws.sts.requests
    assert (request["Action"], request["WebIdentityToken"]) == ("AssumeRoleWithWebIdentity", "a.web.identity")


def test_instance_metadata_is_used(aws: Aws, identities: Identities) -> None:
    with aws_services(identities) as metadata:
        aws.set("AWS_EC2_METADATA_DISABLED", "false")
        aws.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
        assert aws.connect().startswith("ASIATEMPORARY")
        aws.connect()
        assert len(metadata.requests) == 1


def test_expiring_sessions_are_authenticated_again(aws: Aws, identities: Identities) -> None:
    aws.keys()
    identities.session_ms = 1_500
    try:
        with KafkaClient(client_options(aws.options())) as client:
            client.metadata([])
            connections = len(identities.seen)

            def is_signed_again() -> bool:
                client.transport.pause(0.05)
                return len(identities.seen) > connections

            wait_until(is_signed_again, "another signature", deadline_s=20)
            client.metadata([])
    finally:
        identities.session_ms = None


def test_admin_commands_authenticate(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    aws.keys()
    lines = (f"{name.removeprefix('kafka.')}={value}\n" for name, value in aws.options().items())
    config = aws.folder / "client.properties"
    config.write_text("".join(lines))
    words = ["transactions", "list", "--bootstrap-server", aws.kafka.bootstrap("IAM"), "--command-config", str(config)]
    assert main([*words, "--output", "json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == []


def test_wrong_secret_is_refused_by_the_broker(aws: Aws) -> None:
    aws.keys()
    aws.set("AWS_SECRET_ACCESS_KEY", "wrong-secret-key")
    text = aws.refused()
    assert "rejected the credentials" in text or "socket disconnected" in text
    assert "wrong-secret-key" not in text


def test_errors_name_the_step(aws: Aws) -> None:
    assert "There are no AWS credentials for AWS_MSK_IAM" in aws.refused()
    aws.keys()
    role = f'{MODULE} awsRoleArn="{ROLE}";'
    aws.sts.refuses = True
    assert "not authorized to perform sts:AssumeRole" in aws.refused(role)
    aws.set("AWS_ENDPOINT_URL_STS", "https://127.0.0.1:1")
    assert 'Could not connect to the endpoint URL: "https://127.0.0.1:1/"' in aws.refused(role)
    aws.patch.delenv("AWS_REGION")
    assert "The AWS region of broker 127.0.0.1 is not known" in aws.refused()


@pytest.mark.parametrize(
    ("jaas", "more", "text"),
    [
        (f"{MODULE};", {"security_protocol": "SASL_PLAINTEXT"}, "Set kafka.security.protocol=SASL_SSL"),
        (f"{MODULE} awsProfilName=x;", {}, "Did you mean 'awsProfileName'?"),
        (f"{MODULE} awsMskRegionProvider=x;", {}, "unknown option 'awsMskRegionProvider'"),
        (f"{MODULE} awsRoleAccessKeyId=x;", {}, "Set all three, or only awsRoleArn"),
        ("a.b.PlainLoginModule required username=x;", {}, "Use IAMLoginModule"),
        (f"{MODULE};", {"sasl_client_callback_handler_class": "com.example.Mine"}, "Java classes are not supported"),
    ],
)
def test_invalid_settings_are_refused(aws: Aws, jaas: str, more: dict[str, str], text: str) -> None:
    assert text in aws.refused(jaas, **more)


def test_missing_botocore_is_named(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(OptionError, match=r"Install botocore"):
        sasl_login(client_options(aws.options()))


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.mine.abc123.c2.kafka.us-east-1.amazonaws.com", "us-east-1"),
        ("boot-x1.c3.kafka-serverless.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("b-1.mine.x.c4.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("b-1.my-eu-1.example.com", "eu-west-3"),
    ],
)
def test_region_is_that_of_the_host_name(aws: Aws, host: str, region: str) -> None:
    aws.keys()
    login = client_options(aws.options()).sasl_login
    assert isinstance(login, msk_iam.AwsLogin)
    assert msk_iam._AwsCredentials(login).current(host)[0] == region


def test_debug_logs_have_no_secrets(aws: Aws, caplog: pytest.LogCaptureFixture) -> None:
    jaas = f'{MODULE} awsRoleArn="{ROLE}" awsRoleAccessKeyId="{KEY}" awsRoleSecretAccessKey="{SECRET}";'
    caplog.set_level(logging.DEBUG)
    for name in ("botocore", "urllib3", "kafka", "spark_eos"):
        caplog.set_level(logging.DEBUG, logger=name)
    key = aws.connect(jaas)
    assert len(aws.sts.requests) == 1
    signature = aws.sts.identities.seen[-1]["x-amz-signature"]
    assert "kafka.net.connection" in caplog.text
    for secret in (SECRET, aws.sts.identities.secrets[key], aws.sts.identities.tokens[key], signature):
        assert secret not in caplog.text
