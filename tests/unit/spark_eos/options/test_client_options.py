"""`kafka.*` options are parsed, and invalid ones are refused before anything is sent."""

import pickle
from pathlib import Path

import pytest

from spark_eos.errors import OptionError
from spark_eos.options.catalog import setting_value
from spark_eos.options.client import ClientOptions, client_options, kafka_settings
from spark_eos.options.key_stores import KeyStores
from spark_eos.options.logins import AwsLogin, KerberosLogin

SERVERS = {"kafka.bootstrap.servers": "a:1, b:2"}
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def refused(options: dict[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        client_options(options)
    return str(caught.value)


def test_addresses_are_split_and_defaults_apply() -> None:
    options = client_options(SERVERS)
    assert options.bootstrap_servers == ("a:1", "b:2")
    assert options.security_protocol == "PLAINTEXT"
    assert options.request_timeout_ms == 30_000


@pytest.mark.parametrize("side", ["consumer", "producer"])
def test_missing_bootstrap_servers_use_spark_error_text(side: str) -> None:
    words = f"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka {side}"
    with pytest.raises(OptionError, match=words):
        kafka_settings({"topic": "t"}, side=side)


WRONG_ADDRESSES = {
    "has no valid port": ("a:0", "a:x", "a:99999", "b:1, a:0", "SSL://a:x"),
    "has no valid host. Give host:port, several": ("a:1;b:2", "a:1 b:2", "b:1, a/c:2", "user@a:1", ":1"),
    "has no port. Write localhost:9092, or": ("localhost", "b:1,localhost:"),
    "has no port. Write [::1]:9092, or": ("[::1]",),
    "has no port. Write PLAINTEXT://broker:9092, or": ("PLAINTEXT://broker",),
}


@pytest.mark.parametrize(
    ("servers", "text"), [(servers, text) for text, wrong in WRONG_ADDRESSES.items() for servers in wrong]
)
def test_wrong_address_is_refused_with_the_likely_correction(servers: str, text: str) -> None:
    assert text in refused({"kafka.bootstrap.servers": servers})


def test_addresses_are_taken_as_by_java() -> None:
    servers = ("SASL_SSL://b-1.x_y:9", "127.0.0.1:9", "[::1]:9", "::1:9", "[fe80::1%eth0]:9")
    assert client_options({"kafka.bootstrap.servers": ",".join(servers)}).bootstrap_servers == servers


def test_option_names_are_case_insensitive_and_unrelated_ones_ignored() -> None:
    assert client_options({"KAFKA.Bootstrap.Servers": "a:1", "topic": "t"}).bootstrap_servers == ("a:1",)


@pytest.mark.parametrize("text", ["soon", "1.5", "0", ""])
def test_non_numeric_or_too_small_number_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="whole number of at least 1"):
        setting_value({"request.timeout.ms": text}, "request.timeout.ms")


@pytest.mark.parametrize(
    ("jaas", "username", "password"),
    [
        (f'{PLAIN_MODULE} username="alice" password="s=cr;t";', "alice", "s=cr;t"),
        (f"{PLAIN_MODULE} username='alice' password='it is';", "alice", "it is"),
        (f'{PLAIN_MODULE} password="a\\"b\\\\c" username=alice;', "alice", 'a"b\\c'),
        ('x.scram.ScramLoginModule required username="u" password="";', "u", ""),
    ],
)
def test_jaas_config_yields_username_and_password(jaas: str, username: str, password: str) -> None:
    options = client_options(
        {
            **SERVERS,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": jaas,
        }
    )
    assert (options.sasl_username, options.sasl_password) == (username, password)


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"kafka.bootstrap.server": "x"}, "Did you mean 'kafka.bootstrap.servers'?"),
        ({"kafka.ssl.ca.locaton": "x"}, "Did you mean 'kafka.ssl.ca.location'?"),
        ({"kafka.zzzzqqqq": "x"}, "with the prefix kafka. Remove it"),
        ({"kafka.request.timeout.ms": "1000", "kafka.socket.timeout.ms": "2000"}, "second time"),
        ({"kafka.security.protocol": "TLS"}, "Use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "NTLM"}, "Use one of PLAIN, SCRAM"),
        ({"kafka.sasl.mechanism": "AWS_MSK_IAM"}, "Set kafka.security.protocol=SASL_SSL"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}, "needs a token"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}, "needs a user name and a password"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": f"{PLAIN_MODULE};"},
            "Use Krb5LoginModule, to match",
        ),
        ({"kafka.sasl.jaas.config": f"{KERBEROS_MODULE} useKeyTab=true;"}, 'Add keyTab="/path'),
        (
            {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": f"{PLAIN_MODULE} username=x;"},
            "no username or no password",
        ),
        ({"kafka.ssl.truststore.type": "BCFKS"}, "Use one of PEM, PKCS12, JKS; convert other stores"),
        ({"kafka.ssl.keystore.type": "BCFKS"}, "Use one of PEM, PKCS12, JKS; convert other stores"),
    ],
)
def test_wrong_setting_is_refused_with_a_remedy(extra: dict[str, str], text: str) -> None:
    assert text in refused({**SERVERS, **extra})


def test_pem_stores_are_accepted_under_both_names(tmp_path: Path) -> None:
    java = client_options(
        {
            **SERVERS,
            "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
            "kafka.ssl.keystore.location": str(tmp_path / "both.pem"),
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    )
    assert java.ssl_stores.trusted_path == str(tmp_path / "ca.pem")
    assert java.ssl_stores.certificate_path == java.ssl_stores.key_path == str(tmp_path / "both.pem")
    assert not java.ssl_check_hostname
    other = client_options({**SERVERS, "kafka.ssl.ca.location": "c", "kafka.ssl.key.location": "k"})
    assert (other.ssl_stores.trusted_path, other.ssl_stores.key_path, other.ssl_check_hostname) == ("c", "k", True)


@pytest.mark.parametrize(
    ("settings", "login"),
    [
        ({}, KerberosLogin("kafka")),
        (
            {"sasl.jaas.config": f'{KERBEROS_MODULE} useKeyTab=true storeKey=true keyTab="/k" principal="p@R";'},
            KerberosLogin("kafka", None, "p@R", "/k"),
        ),
        (
            {"sasl.jaas.config": f'{KERBEROS_MODULE} useTicketCache=true ticketCache="/c" serviceName="s";'},
            KerberosLogin("s", None, None, None, "/c"),
        ),
        (
            {"sasl.jaas.config": f'{KERBEROS_MODULE} useKeyTab=false keyTab="/k";', "sasl.kerberos.service.name": "s"},
            KerberosLogin("s"),
        ),
        (
            {
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": "p",
                "sasl.kerberos.domain.name": "d",
                "sasl.kerberos.kinit.cmd": "kinit",
            },
            KerberosLogin("kafka", "d", "p", "/k"),
        ),
    ],
)
def test_kerberos_settings_of_both_clients_are_read(settings: dict[str, str], login: KerberosLogin) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", **settings}
    options = client_options({**SERVERS, **{f"kafka.{name}": value for name, value in given.items()}})
    assert options.sasl_login == login


@pytest.mark.parametrize(("word", "is_token"), [("true", True), ("false", False)])
def test_delegation_token_is_marked_in_the_jaas_line(word: str, is_token: bool) -> None:
    jaas = f'x.scram.ScramLoginModule required username="id" password="hmac" tokenauth="{word}";'
    given = {"kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.jaas.config": jaas}
    assert client_options({**SERVERS, **given}).sasl_delegation_token is is_token


def test_options_are_pickled_and_hide_secrets_in_repr() -> None:
    options = ClientOptions(
        ("a:1",),
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="hidden-1",
        ssl_stores=KeyStores(
            key_pem="hidden-2", trusted_password="hidden-4", keystore_password="hidden-5", key_password="hidden-3"
        ),
        sasl_login=AwsLogin(secret_key="hidden-6", session_token="hidden-7", role_external_id="hidden-8"),
    )
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hidden" not in repr(options)
