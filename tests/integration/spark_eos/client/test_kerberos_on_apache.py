"""GSSAPI against Apache Kafka and MIT's KDC, and delegation tokens of the same broker; only with --apache."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import AuthenticationError, EosKafkaError, UnreachableError
from spark_eos.options.client import client_options
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import StreamReader
from tests.support import kerberos
from tests.support.apache_kafka import JVM, Unavailable, apache_kafka, free_ports
from tests.support.java_tools import java_tool
from tests.support.kerberos import REALM, Realm, kerberos_realm
from tests.support.spark_eos.sink_world import World
from tests.support.waiting import wait_until

REAUTH_MS = 3_000
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class Kafka:
    """Apache Kafka in a realm, with listeners without authentication, for Kerberos, and for SCRAM."""

    realm: Realm
    plain: str
    kerberos: str
    scram: str
    log_file: Path
    alice: Path

    def options(self, address: str, mechanism: str, **more: str) -> dict[str, str]:
        settings = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "default.api.timeout.ms": "20000",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return {f"kafka.{name}": value for name, value in settings.items()}

    def with_kerberos(self, **more: str) -> dict[str, str]:
        return self.options(self.kerberos, "GSSAPI", sasl_kerberos_service_name="kafka", **more)

    def with_keytab(self, keytab: Path | None = None, principal: str = "alice") -> dict[str, str]:
        jaas = f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab or self.alice}" principal="{principal}@{REALM}";'
        return self.with_kerberos(sasl_jaas_config=jaas)


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    if not request.config.getoption("--apache"):
        pytest.skip("needs Apache Kafka, that is Java and Maven: run with --apache")
    pytest.importorskip("gssapi", reason="needs gssapi: pip install '.[kerberos]'")
    folder = tmp_path_factory.mktemp("apache")
    try:
        with kerberos_realm(tmp_path_factory.mktemp("realm")) as realm, pytest.MonkeyPatch.context() as patch:
            patch.setenv("KRB5_CONFIG", str(realm.config))
            broker, alice = realm.keytab("kafka/localhost"), realm.keytab("alice")
            plain, own, scram, controller = free_ports(4)
            (folder / "ports").write_text(f"{plain} {controller}")
            advertised = f"PLAINTEXT://127.0.0.1:{plain},KERBEROS://localhost:{own},SCRAM://127.0.0.1:{scram}"
            settings = {
                "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": advertised,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
                "KERBEROS:SASL_PLAINTEXT,SCRAM:SASL_PLAINTEXT",
                "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
                "listener.name.kerberos.gssapi.connections.max.reauth.ms": str(REAUTH_MS),
                "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "sasl.kerberos.service.name": "kafka",
                "listener.name.kerberos.gssapi.sasl.jaas.config": f"{MODULE} useKeyTab=true storeKey=true "
                f'keyTab="{broker}" principal="kafka/localhost@{REALM}";',
                "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE};",
                "delegation.token.secret.key": "of-the-tests",
            }
            jvm = (*JVM, f"-Djava.security.krb5.conf={realm.config}")
            with apache_kafka(settings, folder, jvm=jvm) as running:
                at = (f"127.0.0.1:{plain}", f"localhost:{own}", f"127.0.0.1:{scram}")
                yield Kafka(realm, *at, running.log_file, alice)
    except (Unavailable, kerberos.Unavailable) as problem:
        pytest.skip(str(problem))


def connect(given: dict[str, str]) -> None:
    with KafkaClient(client_options(given)) as client:
        client.metadata([])


def refused(given: dict[str, str]) -> str:
    with pytest.raises(AuthenticationError) as caught:
        connect(given)
    return str(caught.value)


def writes_and_reads(kafka: Kafka, given: dict[str, str]) -> None:
    with KafkaClient(client_options(given)) as client:
        world = World(kafka.plain, client)
        world.committer("run1").commit([world.prepare("run1")], 0)
        assert world.visible() == ["row of 0"]
    reader = StreamReader({**given, "subscribe": world.topic, "startingOffsets": "earliest"}, source_schema(False))
    start = reader.initialOffset()
    pieces = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    reader.stop()
    rows = [value for piece in pieces for rows in reader.read(piece) for value in rows.column("value").to_pylist()]
    assert rows == [b"row of 0"]


def test_keytab_authenticates_sink_and_source(kafka: Kafka) -> None:
    writes_and_reads(kafka, kafka.with_keytab())


def test_librdkafka_names_authenticate(kafka: Kafka) -> None:
    connect(kafka.with_kerberos(sasl_kerberos_keytab=str(kafka.alice), sasl_kerberos_principal="alice"))


def test_keytab_alone_is_enough(kafka: Kafka) -> None:
    connect(kafka.with_kerberos(sasl_kerberos_keytab=str(kafka.alice)))


def test_ticket_cache_is_used_until_it_expires_and_after_kinit(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    named = kafka.with_kerberos(sasl_jaas_config=f'{MODULE} useTicketCache=true ticketCache="{cache}";')
    kafka.realm.kinit("alice", kafka.alice, cache, lifetime="4s")
    connect(named)

    def has_expired() -> bool:
        try:
            connect(named)
        except AuthenticationError as error:
            assert "expired" in str(error)
            assert "Run kinit on the driver" in str(error) or "Check that the ticket is valid" in str(error)
            return True
        return False

    wait_until(has_expired, "the ticket has expired", deadline_s=30)
    kafka.realm.kinit("alice", kafka.alice, cache)
    connect(named)
    monkeypatch.setenv("KRB5CCNAME", str(cache))
    connect(kafka.with_kerberos())


def test_tickets_of_a_keytab_are_renewed(kafka: Kafka) -> None:
    # MIT's library gets another ticket halfway through the life of one, and less than 30 seconds before its end.
    keytab = kafka.realm.keytab("short", lifetime="40 seconds")
    given = kafka.with_keytab(keytab, "short")
    connect(given)
    connect(given)
    assert kafka.realm.tickets_of("short") == 1

    def is_renewed() -> bool:
        connect(given)
        return kafka.realm.tickets_of("short") > 1

    wait_until(is_renewed, "another ticket", deadline_s=60, pause_s=0.5)


def test_expiring_sessions_are_authenticated_again(kafka: Kafka) -> None:
    with KafkaClient(client_options(kafka.with_keytab())) as client:
        client.metadata([])
        [connection] = [each for each in client.transport._manager._conns.values() if each.connected][:1]
        before = connection._reauth.authenticated_at

        def is_again() -> bool:
            client.transport.pause(0.05)
            return bool(connection._reauth.authenticated_at > before)

        wait_until(is_again, "another authentication", deadline_s=30)
        client.metadata([])


def test_errors_name_the_step(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "none"))
    text = refused(kafka.with_kerberos())
    assert "Kerberos has no ticket for the default ticket cache" in text
    assert "Run kinit" in text
    text = refused(kafka.with_keytab(tmp_path / "missing.keytab"))
    assert "missing.keytab" in text
    assert "Check the keytab" in text
    text = refused(kafka.with_keytab(principal="unknown"))
    assert "Kerberos has no ticket for unknown@EXAMPLE.TEST" in text
    given = kafka.with_keytab() | {"kafka.sasl.kerberos.service.name": "other"}
    text = refused(given)
    assert "broker's service other@localhost" in text
    assert "not found in Kerberos database" in text


def test_unreachable_kdc_is_reported(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "krb5.conf"
    config.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", kafka.realm.config.read_text()))
    keytab = tmp_path / "copy.keytab"
    keytab.write_bytes(kafka.alice.read_bytes())
    monkeypatch.setenv("KRB5_CONFIG", str(config))
    assert "Cannot contact any KDC" in refused(kafka.with_keytab(keytab))


def delegation_token(kafka: Kafka, folder: Path) -> tuple[str, str]:
    """Create a delegation token as user bob, with Apache's command."""
    admin = AdminClient({"bootstrap.servers": kafka.plain})
    user = UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"of-bob")
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(60)
    config = folder / "bob.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={SCRAM_MODULE} username="bob" password="of-bob";\n'
    )
    words = ["--bootstrap-server", kafka.scram, "--command-config", str(config)]
    printed = java_tool("DelegationTokenCommand", "--create", "--max-life-time-period", "-1", *words).output
    found = re.search(r"^(\S+)\s+(\S+=+)\s+User:bob\s", printed, re.MULTILINE)
    assert found, printed
    return found[1], found[2]


def test_delegation_token_authenticates(kafka: Kafka, tmp_path: Path) -> None:
    name, hmac = delegation_token(kafka, tmp_path)
    words = f'{SCRAM_MODULE} username="{name}" password="{hmac}"'
    given = kafka.options(kafka.scram, "SCRAM-SHA-256", sasl_jaas_config=f'{words} tokenauth="true";')

    def is_known() -> bool:
        # The controller has created the token; the broker learns of it from the metadata log.
        try:
            connect(given)
        except (AuthenticationError, UnreachableError):
            return False
        return True

    wait_until(is_known, "the broker knows the token", deadline_s=30)
    writes_and_reads(kafka, given)
    for jaas in (f"{words};", f'{SCRAM_MODULE} username="{name}" password="wrong" tokenauth="true";'):
        with pytest.raises(EosKafkaError) as caught:
            connect(given | {"kafka.sasl.jaas.config": jaas})
        assert isinstance(caught.value, AuthenticationError | UnreachableError)
        assert hmac not in str(caught.value)
