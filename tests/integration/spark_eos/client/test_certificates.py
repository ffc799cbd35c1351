"""Certificates replaced on disk while a client works: its next connection uses the new ones."""

import logging
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from broker_core import EmbeddedBroker
from spark_eos.client import tls
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import AuthenticationError
from spark_eos.options.client import ClientOptions
from spark_eos.options.key_stores import KeyStores
from tests.support.spark_eos.security_clients import mutual_tls_settings

AUTHORITY = trustme.CA()


class Folder:
    """The files of one client, in the layout of a mounted Kubernetes secret or plain."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.certificate, self.key, self.authority = (str(path / name) for name in ("tls.crt", "tls.key", "ca.crt"))
        Path(self.authority).write_bytes(AUTHORITY.cert_pem.bytes())

    def issue(self, name: str) -> tuple[bytes, bytes]:
        issued = AUTHORITY.issue_cert(f"{name}.example", common_name=name)
        return b"".join(each.bytes() for each in issued.cert_chain_pems), issued.private_key_pem.bytes()

    def put(self, name: str) -> None:
        certificate, key = self.issue(name)
        Path(self.certificate).write_bytes(certificate)
        Path(self.key).write_bytes(key)

    def options(self, address: str) -> ClientOptions:
        return ClientOptions(
            (address,),
            security_protocol="SSL",
            ssl_stores=KeyStores(self.authority, certificate_path=self.certificate, key_path=self.key),
            api_timeout_ms=5_000,
        )


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=mutual_tls_settings(AUTHORITY)) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    made.put("before")
    return made


def name_shown(kafka: EmbeddedBroker, client: KafkaClient, *, anew: bool = True) -> str:
    """Return the name in the certificate that the client presents on a new connection or on the existing one."""
    if anew:
        client.transport.close_connection(1)
    client.metadata([], timeout_ms=5_000)
    return kafka.requests()[-1].principal.partition("CN=")[2].partition(",")[0]


def test_new_connection_presents_the_renewed_certificate(kafka: EmbeddedBroker, folder: Folder) -> None:
    with KafkaClient(folder.options(kafka.bootstrap_servers)) as client:
        assert name_shown(kafka, client) == "before"
        folder.put("after")
        assert name_shown(kafka, client, anew=False) == "before"
        assert name_shown(kafka, client) == "after"


def test_changed_symlink_targets_are_detected(kafka: EmbeddedBroker, tmp_path: Path) -> None:
    """Kubernetes makes a folder for each version of a secret, and replaces the link to it."""
    (tmp_path / "first").mkdir()
    Folder(tmp_path / "first").put("before")
    (tmp_path / "..data").symlink_to("first")
    folder = Folder(tmp_path / "..data")
    with KafkaClient(folder.options(kafka.bootstrap_servers)) as client:
        assert name_shown(kafka, client) == "before"
        (tmp_path / "second").mkdir()
        Folder(tmp_path / "second").put("after")
        (tmp_path / "..new").symlink_to("second")
        os.replace(tmp_path / "..new", tmp_path / "..data")
        assert name_shown(kafka, client) == "after"


@pytest.mark.parametrize(
    "state",
    [
        "half a certificate",
        "half a key",
        "an empty certificate",
        "the certificate alone",
        "no key",
        "half an authority",
    ],
)
def test_incomplete_certificate_files_are_read_again(
    state: str, kafka: EmbeddedBroker, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaClient(folder.options(kafka.bootstrap_servers)) as client:
        assert name_shown(kafka, client) == "before"
        certificate, key = folder.issue("after")
        if state == "no key":
            os.unlink(folder.key)
        elif state == "half an authority":
            Path(folder.authority).write_bytes(AUTHORITY.cert_pem.bytes()[:200])
        else:
            Path(folder.certificate).write_bytes(
                {"half a certificate": certificate[:200], "an empty certificate": b""}.get(state, certificate)
            )
            if state == "half a key":
                Path(folder.key).write_bytes(key[:100])
        with caplog.at_level(logging.WARNING, logger=tls.__name__):
            assert name_shown(kafka, client) == "before"
        assert "The changed TLS files cannot be used; the previous ones remain in use" in caplog.text
        Path(folder.certificate).write_bytes(certificate)
        Path(folder.key).write_bytes(key)
        Path(folder.authority).write_bytes(AUTHORITY.cert_pem.bytes())
        assert name_shown(kafka, client) == "after"


def test_new_connection_trusts_the_current_ca_file(kafka: EmbeddedBroker, folder: Folder) -> None:
    with KafkaClient(folder.options(kafka.bootstrap_servers)) as client:
        assert name_shown(kafka, client) == "before"
        Path(folder.authority).write_bytes(trustme.CA().cert_pem.bytes())
        with pytest.raises(AuthenticationError, match="certificate is not trusted"):
            name_shown(kafka, client)
        Path(folder.authority).write_bytes(AUTHORITY.cert_pem.bytes())
        assert name_shown(kafka, client) == "before"


def test_unchanged_files_are_not_read_again(
    kafka: EmbeddedBroker, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[ClientOptions] = []
    build = tls._build

    def count(options: ClientOptions) -> ssl.SSLContext:
        built.append(options)
        return build(options)

    monkeypatch.setattr(tls, "_build", count)
    with KafkaClient(folder.options(kafka.bootstrap_servers)) as client:
        assert {name_shown(kafka, client) for _ in range(4)} == {"before"}
        assert len(built) == 1
        folder.put("after")
        assert {name_shown(kafka, client) for _ in range(4)} == {"after"}
        assert len(built) == 2
