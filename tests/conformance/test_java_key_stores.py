"""Listeners with JKS and PKCS12 stores, at the start and changed while the broker runs (KIP-226)."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka.protocol.metadata import ApiVersionsRequest

from tests.support.clients import DEADLINE_S
from tests.support.java_stores import (
    KEY_PASSWORD,
    STORE_PASSWORD,
    JavaStoreBroker,
    JavaStores,
    java_store_broker,
    keytool,
    put_key,
    put_trusted,
)
from tests.support.raw_client import RawClient
from tests.support.setting_changes import (
    NOT_COMPATIBLE,
    NOT_LOADED,
    WRAPPED,
    Settings,
    alter,
    answer_to,
    delete_stored,
    described,
    store,
)
from tests.support.tls_brokers import AT
from tests.support.tls_client import TlsClient, trusting
from tests.support.waiting import wait_until

JKS, P12, PEM = (f"listener.name.{name}.ssl." for name in ("jks", "p12", "pem"))
FAILED = "Validation of dynamic config update of SSLFactory failed: org.apache.kafka.common.KafkaException: {}"
NOT_READ = FAILED.format("Failed to load SSL keystore {} of type {}")
LOCKED_JKS = FAILED.format("java.security.UnrecoverableKeyException: Cannot recover key")
LOCKED_PKCS12 = FAILED.format(
    "java.security.UnrecoverableKeyException: Get Key failed: Given final block not properly padded. Such issues can "
    "arise if a bad key is used during decryption."
)
NO_PASSWORD_OF_PEM = "SSL key store password cannot be specified with PEM format, only key password may be specified"
OTHER_ENTRIES = NOT_COMPATIBLE.format(
    "Keystore entries do not match, existing store contains {} entries, new store contains {} entries"
)
NO_FILE = "/no/such/file"
# Changes, and the message of their refusal, None for those that are accepted; {name} stands for the path of a store.
CHANGES: list[tuple[Settings, str | None]] = [
    ({f"{JKS}keystore.password": "wrong"}, NOT_READ.format("{jks}", "JKS")),
    ({f"{JKS}keystore.password": ""}, NOT_READ.format("{jks}", "JKS")),
    ({f"{JKS}key.password": "wrong"}, LOCKED_JKS),
    ({f"{JKS}keystore.location": "{both_jks}"}, OTHER_ENTRIES.format(1, 2)),
    ({f"{JKS}keystore.location": "{two_jks}"}, OTHER_ENTRIES.format(1, 2)),
    ({f"{JKS}keystore.location": "{empty_p12}"}, OTHER_ENTRIES.format(1, 0)),
    ({f"{JKS}keystore.location": NO_FILE}, NOT_READ.format(NO_FILE, "JKS")),
    ({f"{JKS}keystore.location": ""}, NOT_READ.format("", "JKS")),
    ({f"{JKS}keystore.location": "{pem}"}, NOT_READ.format("{pem}", "JKS")),
    ({f"{JKS}keystore.location": "{pem}", f"{JKS}keystore.type": "PEM"}, NOT_LOADED.format(NO_PASSWORD_OF_PEM)),
    ({f"{JKS}keystore.location": "{new_jks}"}, None),
    ({f"{JKS}keystore.location": "{named_jks}"}, None),
    ({f"{JKS}keystore.location": "{plain_jks}"}, LOCKED_JKS),
    ({f"{JKS}keystore.location": "{plain_jks}", f"{JKS}key.password": STORE_PASSWORD}, None),
    ({f"{JKS}keystore.location": "{new_p12}"}, LOCKED_PKCS12),
    ({f"{JKS}keystore.location": "{new_p12}", f"{JKS}key.password": STORE_PASSWORD}, None),
    ({f"{JKS}keystore.type": "PEM"}, NOT_LOADED.format(NO_PASSWORD_OF_PEM)),
    ({f"{JKS}keystore.type": " PKCS12 "}, None),
    ({f"{JKS}keystore.type": "pkcs12"}, None),
    ({f"{JKS}keystore.type": "x"}, NOT_READ.format("{jks}", "x")),
    ({f"{JKS}keystore.type": ""}, NOT_READ.format("{jks}", "")),
    ({f"{JKS}keystore.type": "pem"}, NOT_READ.format("{jks}", "pem")),
    (
        {f"{JKS}keystore.key": "x"},
        NOT_LOADED.format("SSL private key can be specified only for PEM, but key store type is JKS."),
    ),
    (
        {f"{JKS}keystore.certificate.chain": "x"},
        NOT_LOADED.format("SSL certificate chain is specified, but private key is not specified"),
    ),
    ({f"{JKS}truststore.password": "wrong"}, NOT_READ.format("{trust_jks}", "JKS")),
    ({f"{JKS}truststore.location": NO_FILE}, NOT_READ.format(NO_FILE, "JKS")),
    ({f"{JKS}truststore.location": "{pem}"}, NOT_READ.format("{pem}", "JKS")),
    ({f"{JKS}truststore.location": "{trust_p12}"}, None),
    ({f"{JKS}truststore.location": "{new_jks}"}, None),
    (
        {f"{JKS}truststore.type": "PEM"},
        NOT_LOADED.format("SSL trust store password cannot be specified for PEM format."),
    ),
    ({f"{JKS}truststore.type": "x"}, NOT_READ.format("{trust_jks}", "x")),
    (
        {f"{JKS}truststore.certificates": "x"},
        NOT_LOADED.format("SSL trust store certs can be specified only for PEM, but trust store type is JKS."),
    ),
    ({f"{P12}keystore.password": "wrong"}, NOT_READ.format("{p12}", "PKCS12")),
    ({f"{P12}key.password": "wrong"}, LOCKED_PKCS12),
    ({f"{P12}key.password": STORE_PASSWORD}, None),
    ({f"{P12}keystore.location": "{both_p12}"}, OTHER_ENTRIES.format(1, 2)),
    ({f"{P12}keystore.type": "JKS"}, None),
    ({f"{P12}keystore.type": "PEM"}, NOT_LOADED.format(NO_PASSWORD_OF_PEM)),
    ({f"{P12}keystore.location": "{plain_jks}"}, None),
    ({f"{P12}truststore.password": "wrong"}, NOT_READ.format("{trust_p12}", "PKCS12")),
    ({f"{P12}truststore.type": "JKS"}, None),
    ({f"{PEM}keystore.location": "{plain_jks}"}, NOT_LOADED.format("Failed to load PEM SSL keystore {plain_jks}")),
    (
        {f"{PEM}keystore.location": "{plain_jks}", f"{PEM}keystore.type": "JKS"},
        NOT_LOADED.format("SSL key store is specified, but key store password is not specified."),
    ),
    (
        {f"{PEM}keystore.location": "{plain_jks}", f"{PEM}keystore.password": STORE_PASSWORD},
        NOT_LOADED.format(NO_PASSWORD_OF_PEM),
    ),
    (
        {
            f"{PEM}keystore.location": "{plain_jks}",
            f"{PEM}keystore.password": STORE_PASSWORD,
            f"{PEM}keystore.type": "JKS",
        },
        None,
    ),
    (
        {f"{PEM}keystore.password": STORE_PASSWORD, f"{PEM}keystore.type": "PKCS12"},
        NOT_READ.format("{pem}", "PKCS12"),
    ),
    (
        {f"{PEM}truststore.location": "{trust_jks}", f"{PEM}truststore.type": "JKS"},
        NOT_COMPATIBLE.format(
            "Cannot add SSL truststore to an existing listener for which no truststore was configured."
        ),
    ),
    ({"listener.name.manyjks.ssl.keystore.location": "{plain_jks}"}, OTHER_ENTRIES.format(3, 1)),
    ({"listener.name.manyjks.ssl.keystore.location": "{manyp12}"}, None),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> JavaStores:
    """Return the stores of both brokers."""
    return JavaStores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, stores: JavaStores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaStoreBroker]:
    """Return a running broker whose listeners have stores of Java."""
    with java_store_broker(request.param, tmp_path_factory.mktemp(f"java-{request.param}"), stores) as running:
        yield running


@pytest.fixture(scope="module")
def paths(stores: JavaStores) -> dict[str, str]:
    """Return the path of each store by the name that it has in changes."""
    found = {
        "new_jks": stores.keys("new.jks", "JKS", "server", key_password=KEY_PASSWORD),
        "named_jks": stores.keys("named.jks", "JKS", "other", key_password=KEY_PASSWORD),
        "plain_jks": stores.keys("plain.jks", "JKS", "server"),
        "new_p12": stores.keys("new.p12", "PKCS12", "server"),
        "both_jks": stores.keys("both.jks", "JKS", "server", key_password=KEY_PASSWORD),
        "both_p12": stores.keys("both.p12", "PKCS12", "server"),
        "two_jks": stores.keys("two.jks", "JKS", "server", "second", key_password=KEY_PASSWORD),
        "empty_p12": stores.keys("empty.p12", "PKCS12", "server"),
        "trust_jks": stores.trust("JKS"),
        "trust_p12": stores.trust("PKCS12"),
        "pem": stores.pem(),
        **{name: str(stores.folder / name) for name in ("jks", "p12", "manyp12")},
    }
    keytool("-delete", "-alias", "server", "-keystore", found["empty_p12"], "-storepass", STORE_PASSWORD)
    for kind, both in (("JKS", "both_jks"), ("PKCS12", "both_p12")):
        put_trusted(Path(found[both]), kind, "authority", stores.authority.cert_pem.bytes())
    return found


@pytest.fixture
def client(broker: JavaStoreBroker) -> Iterator[RawClient]:
    """Return a connection, for changes that are only validated."""
    with RawClient(broker.addresses["PLAINTEXT"]) as client:
        yield client


@pytest.fixture
def changing(client: RawClient) -> Iterator[RawClient]:
    """Return a connection; the settings that the test stores are deleted afterwards."""
    yield client
    delete_stored(client)


def served(broker: JavaStoreBroker, listener: str) -> str | None:
    """Connect to a listener; return the name of the certificate that the broker sends, None for that in PEM."""
    host, port = broker.addresses[listener].split(":")
    own = broker.stores.authority.issue_cert("client")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        trusting(broker.stores.authority, own).wrap_socket(plain, server_hostname=host) as secure,
    ):
        sent = ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"").strip()
    issued = broker.stores.certificates.items()
    return next((name for name, each in issued if each.cert_chain_pems[0].bytes().decode().strip() == sent), None)


def is_let_in(broker: JavaStoreBroker, listener: str, own: trustme.LeafCert) -> bool:
    try:
        with TlsClient(broker.addresses[listener], trusting(broker.stores.authority, own)) as login:
            return login.send(ApiVersionsRequest(), 0).error_code == 0
    except OSError:
        return False


@pytest.mark.parametrize(
    ("listener", "name"),
    [("JKS", "jks"), ("P12", "p12"), ("PEM", None), ("MANYJKS", "manyjks.zeta"), ("MANYP12", "manyp12.zeta")],
)
def test_the_certificate_of_a_store_is_sent(broker: JavaStoreBroker, listener: str, name: str | None):
    assert served(broker, listener) == name


@pytest.mark.parametrize("listener", ["JKS", "P12"])
def test_librdkafka_connects_with_a_certificate_that_the_trust_store_has(broker: JavaStoreBroker, listener: str):
    def client_with(own: trustme.LeafCert) -> tuple[AdminClient, list[KafkaError]]:
        errors: list[KafkaError] = []
        admin = AdminClient(
            {
                "bootstrap.servers": broker.addresses[listener],
                "security.protocol": "SSL",
                "ssl.ca.pem": broker.stores.authority.cert_pem.bytes().decode(),
                "ssl.certificate.pem": own.cert_chain_pems[0].bytes().decode(),
                "ssl.key.pem": own.private_key_pem.bytes().decode(),
                "log_level": 0,
                "error_cb": errors.append,
            }
        )
        return admin, errors

    admin, _ = client_with(broker.stores.authority.issue_cert("client"))
    assert admin.list_topics(timeout=DEADLINE_S).brokers
    stranger, errors = client_with(trustme.CA().issue_cert("client"))
    wait_until(lambda: stranger.poll(0.1) is not None and errors, "the broker refuses a stranger")
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=0.1)


@pytest.mark.parametrize(("changes", "message"), CHANGES)
def test_a_change_of_a_store(client: RawClient, paths: dict[str, str], changes: Settings, message: str | None):
    given = {key: (text or "").format(**paths) for key, text in changes.items()}
    assert alter(client, given) == answer_to(message and WRAPPED.format(message.format(**paths)))


@pytest.mark.parametrize(("prefix", "trust"), [(JKS, "trust_jks"), (P12, "trust_p12")])
def test_a_store_with_other_names_or_without_a_key_is_refused(
    broker: JavaStoreBroker, client: RawClient, paths: dict[str, str], prefix: str, trust: str
):
    other = broker.stores.folder / "unit.jks"
    if not other.exists():
        put_key(other, "JKS", "u", broker.stores.authority.issue_cert(AT, organization_unit_name="Others"))
    for path, names in (((str(other)), "alias=u, DN=OU=Others, "), (paths[trust], "alias=authority, DN=OU=")):
        given: Settings = {f"{prefix}keystore.location": path, f"{prefix}key.password": STORE_PASSWORD}
        _, message = alter(client, given)
        begin = NOT_COMPATIBLE.format("Keystore DistinguishedName does not match:  existing={alias=server, DN=")
        assert begin in message
        assert f"new={{{names}" in message


def test_stores_change_their_format_while_the_broker_runs(
    broker: JavaStoreBroker, changing: RawClient, paths: dict[str, str]
):
    assert served(broker, "PEM") is None
    jks: Settings = {f"{PEM}keystore.type": "JKS", f"{PEM}keystore.location": paths["new_jks"]}
    jks |= {f"{PEM}keystore.password": STORE_PASSWORD, f"{PEM}key.password": KEY_PASSWORD}
    store(changing, jks)
    wait_until(lambda: served(broker, "PEM") == "new.jks", "the certificate of the JKS store is sent")
    store(changing, {f"{PEM}keystore.location": paths["new_p12"], f"{PEM}key.password": STORE_PASSWORD})
    wait_until(lambda: served(broker, "PEM") == "new.p12", "the certificate of the PKCS12 store is sent")
    store(changing, dict.fromkeys(jks))
    wait_until(lambda: served(broker, "PEM") is None, "the certificate in PEM is sent")


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_clients_are_checked_with_a_new_trust_store(
    broker: JavaStoreBroker, changing: RawClient, tmp_path: Path, kind: str
):
    trusted, stranger = tmp_path / "trusted", trustme.CA()
    own, other = stranger.issue_cert("client"), stranger.issue_cert("other")
    # Java trusts any certificate of the store, not only an authority's.
    put_trusted(trusted, kind, "client", own.cert_chain_pems[0].bytes())
    assert not is_let_in(broker, "P12", own)
    store(changing, {f"{P12}truststore.location": str(trusted)})
    wait_until(lambda: is_let_in(broker, "P12", own), "the client is trusted")
    assert not is_let_in(broker, "P12", other)


def test_types_and_passwords_of_stores_are_described(client: RawClient):
    keys = ("ssl.keystore.type", "ssl.truststore.type", "ssl.keystore.password", "ssl.truststore.password")
    found = {
        entry.name: (entry.value, entry.config_source, entry.is_sensitive, [each.value for each in entry.synonyms])
        for entry in described(client, *keys, f"{P12}keystore.type", f"{JKS}keystore.password")
    }
    assert found == {
        **dict.fromkeys(keys[:2], ("JKS", 5, False, ["JKS"])),
        **dict.fromkeys(keys[2:], (None, 5, True, [])),
        f"{P12}keystore.type": ("PKCS12", 4, False, ["PKCS12", "JKS"]),
        f"{JKS}keystore.password": (None, 4, True, [None]),
    }
