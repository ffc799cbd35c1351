"""Stores that the JDK's keytool makes, PKCS12 and JKS, used by a client with TLS on both sides."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from broker_core import EmbeddedBroker
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.oauth_endpoint import fetch_token
from spark_eos.client.tls import tls_context
from spark_eos.errors import AuthenticationError, EosKafkaError, OptionError
from spark_eos.options.client import client_options
from spark_eos.options.key_stores import OF_JAAS, TRUST_STORE, key_stores
from spark_eos.options.oauth import EndpointOptions
from spark_eos.runtime import REAL
from tests.support.java_stores import KEY_PASSWORD, KINDS, STORE_PASSWORD, put_key, put_trusted
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, oidc_provider
from tests.support.spark_eos.security_clients import mutual_tls_settings

AUTHORITY = trustme.CA()


class Stores:
    """A trust store and a key store of one kind."""

    def __init__(self, folder: Path, kind: str) -> None:
        # Names that do not give the format away, as many files named .jks are PKCS12.
        self.folder, self.kind = folder, kind
        self.trust, self.keys = folder / f"{kind}-trust", folder / f"{kind}-keys"
        put_trusted(self.trust, kind, "ca", AUTHORITY.cert_pem.bytes())
        self.put("before")

    def put(self, name: str) -> None:
        """Replace the key store by one with a new certificate of this name."""
        made = self.folder / "made"
        made.unlink(missing_ok=True)
        issued = AUTHORITY.issue_cert(f"{name}.example", common_name=name)
        put_key(made, self.kind, "client", issued, KEY_PASSWORD)
        made.replace(self.keys)

    def settings(self, **more: str) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "default.api.timeout.ms": "5000",
            "ssl.truststore.location": str(self.trust),
            "ssl.truststore.password": STORE_PASSWORD,
            "ssl.keystore.location": str(self.keys),
            "ssl.keystore.password": STORE_PASSWORD,
            **({"ssl.key.password": KEY_PASSWORD} if self.kind == "JKS" else {}),
            **{name.replace("_", "."): value for name, value in more.items()},
        }


@pytest.fixture(scope="module", params=KINDS)
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"), request.param)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=mutual_tls_settings(AUTHORITY)) as running:
        yield running


def client_of(kafka: EmbeddedBroker, settings: Mapping[str, str]) -> KafkaClient:
    given = {"bootstrap.servers": kafka.bootstrap_servers, **settings}
    return KafkaClient(client_options({f"kafka.{name}": value for name, value in given.items()}))


def name_shown(kafka: EmbeddedBroker, client: KafkaClient) -> str:
    client.transport.close_connection(1)
    client.metadata([], timeout_ms=5_000)
    return kafka.requests()[-1].principal.partition("CN=")[2].partition(",")[0]


def refused(settings: Mapping[str, str]) -> str:
    given = {"bootstrap.servers": "h:1", **settings}
    with pytest.raises(OptionError) as caught:
        tls_context(client_options({f"kafka.{name}": value for name, value in given.items()}))
    text = str(caught.value)
    assert STORE_PASSWORD not in text
    assert KEY_PASSWORD not in text
    return text


def test_client_uses_stores_and_their_replacements(kafka: EmbeddedBroker, stores: Stores) -> None:
    with client_of(kafka, stores.settings()) as client:
        assert name_shown(kafka, client) == "before"
        before = stores.keys.read_bytes()
        stores.put("after")
        assert name_shown(kafka, client) == "after"
        stores.keys.write_bytes(stores.keys.read_bytes()[:300])
        assert name_shown(kafka, client) == "after"
        stores.keys.write_bytes(before)
        assert name_shown(kafka, client) == "before"


@pytest.mark.parametrize("type_", [*KINDS, "pkcs12"])
def test_content_decides_the_format(stores: Stores, type_: str) -> None:
    settings = stores.settings(ssl_truststore_type=type_, ssl_keystore_type=type_)
    tls_context(
        client_options({f"kafka.{name}": value for name, value in ({"bootstrap.servers": "h:1"} | settings).items()})
    )


def test_wrong_and_missing_passwords_are_refused(stores: Stores) -> None:
    unread = f"cannot be read as {stores.kind}"
    for store in ("truststore", "keystore"):
        setting = f"ssl.{store}.password"
        text = refused(stores.settings() | {setting: "wrong"})
        assert unread in text
        assert f"Set kafka.{setting} to" in text
    without = {name: value for name, value in stores.settings().items() if name != "ssl.keystore.password"}
    if stores.kind == "PKCS12":
        assert "No password is set. Set kafka.ssl.keystore.password" in refused(without)
    else:
        assert "Set kafka.ssl.key.password" in refused(stores.settings(ssl_key_password="wrong"))


def test_jks_trust_store_needs_no_password(kafka: EmbeddedBroker, tmp_path: Path) -> None:
    stores = Stores(tmp_path, "JKS")
    given = {name: value for name, value in stores.settings().items() if name != "ssl.truststore.password"}
    with client_of(kafka, given) as client:
        assert name_shown(kafka, client) == "before"


def test_store_without_the_wanted_entry_is_refused(stores: Stores) -> None:
    assert "contains no private key" in refused(stores.settings(ssl_keystore_location=str(stores.trust)))
    swapped = stores.settings(ssl_truststore_location=str(stores.keys))
    assert "contains no trusted certificate" in refused(swapped)


def test_damaged_store_is_refused(stores: Stores, tmp_path: Path) -> None:
    data = stores.trust.read_bytes()
    damaged = tmp_path / "damaged"
    for part in (data[:-30], data[: len(data) // 2], data[:4]):
        damaged.write_bytes(part)
        refused(stores.settings(ssl_truststore_location=str(damaged)))


def test_other_formats_are_refused(stores: Stores, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\xce\xce\xce\xce")
    assert "is a JCEKS store. Convert it" in refused(stores.settings(ssl_truststore_location=str(other)))
    other.write_bytes(b"neither")
    assert "Use a PEM, PKCS12 or JKS file" in refused(stores.settings(ssl_truststore_location=str(other)))
    assert "Use one of PEM, PKCS12, JKS" in refused(stores.settings(ssl_keystore_type="BCFKS"))


def test_pkcs12_alone_needs_a_package(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    if stores.kind == "PKCS12":
        assert "Install cryptography" in refused(stores.settings())
    else:
        given = {"bootstrap.servers": "h:1", **stores.settings()}
        assert tls_context(client_options({f"kafka.{name}": text for name, text in given.items()})) is not None


def test_stores_serve_the_connection_to_a_token_endpoint(stores: Stores) -> None:
    with oidc_provider(AUTHORITY, wants_certificate=True) as provider:
        own = key_stores({name: text for name, text in stores.settings().items() if name.startswith("ssl.")}, OF_JAAS)
        endpoint = EndpointOptions(provider.token_url, CLIENT_ID, CLIENT_SECRET, stores=own, retry_max_ms=1)
        assert fetch_token(endpoint, REAL).value == provider.tokens[0]
        without = replace(own, certificate_path=None, key_path=None)
        with pytest.raises(AuthenticationError):
            fetch_token(replace(endpoint, stores=without), REAL)
        with pytest.raises(AuthenticationError) as caught:
            fetch_token(replace(endpoint, stores=replace(own, trusted_password="wrong")), REAL)
        text = str(caught.value)
        assert f"({TRUST_STORE} in kafka.sasl.jaas.config) cannot be read as {stores.kind}" in text
        assert "Set ssl.truststore.password in kafka.sasl.jaas.config to" in text
        assert STORE_PASSWORD not in text


def test_untrusting_store_fails_the_handshake(kafka: EmbeddedBroker, stores: Stores, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(trustme.CA().cert_pem.bytes())
    with client_of(kafka, stores.settings(ssl_truststore_location=str(other))) as client:
        with pytest.raises(EosKafkaError, match="certificate is not trusted"):
            client.connect()
