"""SCRAM users of clients on sockets: created by an admin client, kept over a restart, and never disclosed."""

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from broker_core import EmbeddedBroker
from broker_core.wire import messages as m
from tests.support.broker_core.sasl_world import secured_cluster
from tests.support.direct import DirectClient
from tests.support.messages import filled

PASSWORD = "top-secret"


def test_librdkafka_admin_client_creates_a_user_who_can_authenticate(tmp_path):
    listeners = {"CLEAR": "PLAINTEXT", "SECURE": "SASL_PLAINTEXT"}
    with EmbeddedBroker(listeners=listeners, data_dir=tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap("CLEAR")})
        wanted = UserScramCredentialUpsertion(
            "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(30)
        assert topics_as_carol(kafka) is not None
    # The files have what verifies the password, and not the password.
    logs = [path.read_bytes() for path in tmp_path.rglob("*metadata*/*.log")]
    assert any(b"carol" in log for log in logs)
    assert not any(PASSWORD.encode() in log for log in logs)
    with EmbeddedBroker(listeners=listeners, data_dir=tmp_path) as kafka:
        assert topics_as_carol(kafka) is not None
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap("CLEAR")})
        deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
        for future in admin.alter_user_scram_credentials([deletion]).values():
            future.result(30)
        assert admin.describe_user_scram_credentials().result(30) == {}


def test_existing_password_is_not_reset_by_the_next_start(tmp_path, caplog):
    listeners = {"CLEAR": "PLAINTEXT", "SECURE": "SASL_PLAINTEXT", "OTHER": "SASL_PLAINTEXT"}
    with EmbeddedBroker(listeners=listeners, data_dir=tmp_path, users={"carol": "first", "dave": "d"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap("CLEAR")})
        change = UserScramCredentialUpsertion(
            "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        deletion = UserScramCredentialDeletion("dave", ScramMechanism.SCRAM_SHA_256)
        for future in admin.alter_user_scram_credentials([change, deletion]).values():
            future.result(30)
        before = kafka._call(lambda cluster: dict(cluster.metadata.scram))
    users = {"carol": "first", "dave": "d", "erin": "e"}
    with caplog.at_level("INFO"), EmbeddedBroker(listeners=listeners, data_dir=tmp_path, users=users) as kafka:
        after = kafka._call(lambda cluster: dict(cluster.metadata.scram))
        assert topics_as_carol(kafka) is not None
    assert {key: after[key] for key in before} == before
    assert after.keys() - before.keys() == {
        ("SCRAM-SHA-256", "dave"),
        ("SCRAM-SHA-256", "erin"),
        ("SCRAM-SHA-512", "erin"),
    }
    messages = [record.getMessage() for record in caplog.records if record.getMessage().startswith("users:")]
    assert (
        messages == ["users: 'carol' keeps the SCRAM-SHA-512 password set by an earlier start or an administrator"] * 2
    ), "once for each listener; no message where the password is the same"


def topics_as_carol(kafka):
    return (
        AdminClient(
            {
                "bootstrap.servers": kafka.bootstrap("SECURE"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "carol",
                "sasl.password": PASSWORD,
            }
        )
        .list_topics(timeout=30)
        .topics
    )


# What settings show


def test_sensitive_settings_have_no_value_in_responses():
    line = 'PlainLoginModule required user_a="top-secret";'
    cluster = secured_cluster(
        **{
            "ssl_keystore_key": "top-secret",
            "ssl_key_password": "top-secret",
            "listener.name.secure.plain.sasl.jaas.config": line,
            "listener.name.secure.ssl.client.auth": "required",
        }
    )
    client = DirectClient(cluster)
    answer = client.ask(
        filled(
            m.DescribeConfigsRequest, resources=[{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
        ),
        4,
    )
    configs = {config.name: config for config in answer.results[0].configs}
    for key in (
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.truststore.certificates",
        "ssl.keystore.certificate.chain",
        "listener.name.secure.plain.sasl.jaas.config",
    ):
        assert (configs[key].value, configs[key].is_sensitive, configs[key].config_type) == (None, True, 9), key
    own = configs["listener.name.secure.ssl.client.auth"]
    assert (own.value, own.is_sensitive, own.config_source) == ("required", False, 4)
    assert "top-secret" not in str(answer)
