"""The settings of listeners, and the properties files that they come from."""

import pytest

from broker_core.config import BrokerConfig, parse_properties
from broker_core.errors import ConfigError
from broker_core.server.listeners import plan_listeners


def plans(brokers=1, host="here", port=9092, **settings):
    config = BrokerConfig().override({key.replace("_", "."): text for key, text in settings.items()})
    return plan_listeners(config, brokers=brokers, host=host, port=port)


def test_default_listener_is_plaintext():
    (plan,) = plans(brokers=2)
    assert (plan.name, plan.protocol, plan.bind, plan.bind_port(1)) == ("PLAINTEXT", "PLAINTEXT", ("here", 9092), 9093)
    assert plan.advertised_address(1, 9093) == ("here", 9093)


def test_listener_settings_are_parsed_as_in_kafka():
    clear, secure, v6 = plans(
        brokers=3,
        listeners=" CLEAR://:1000 , secure://10.0.0.1:2000,V6://[::1]:0 ",
        advertised_listeners="SECURE://kafka.example:7000",
        listener_security_protocol_map="CLEAR:plaintext,SECURE:SASL_SSL,V6:SSL",
    )
    assert (clear.bind, clear.protocol, clear.has_sasl, clear.has_tls) == (("here", 1000), "PLAINTEXT", False, False)
    assert (secure.name, secure.bind, secure.has_sasl, secure.has_tls) == ("SECURE", ("10.0.0.1", 2000), True, True)
    assert [secure.bind_port(n) for n in range(3)] == [2000, 2001, 2002]
    assert secure.advertised_address(2, 2002) == ("kafka.example", 7002)
    assert (v6.bind, v6.bind_port(2), v6.advertised_address(2, 5555)) == (("::1", 0), 0, ("::1", 5555))
    assert (v6.has_sasl, v6.has_tls) == (False, True)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"listeners": "here:9092"}, "'here:9092' is not of the form NAME://host:port"),
        ({"listeners": "A://a b:9092"}, "'A://a b:9092' is not of the form NAME://host:port"),
        ({"listeners": "PLAINTEXT://here:66000"}, "not of the form"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://b:2"}, "PLAINTEXT is named twice"),
        ({"listeners": "MINE://a:1"}, "MINE has no protocol; add MINE:SASL_SSL"),
        ({"listeners": "SSL://a:1", "listener_security_protocol_map": "SSL:TLS"}, "'SSL:TLS' is not NAME:PROTOCOL"),
        (
            {"advertised_listeners": "SSL://a:1"},
            "advertised.listeners: there is no listener SSL; listeners has PLAINTEXT",
        ),
        ({"inter_broker_listener_name": "SSL"}, "inter.broker.listener.name: there is no listener SSL"),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:1"},
            "clients cannot connect to 0.0.0.0; add PLAINTEXT://<host name for clients>:1",
        ),
        ({"listeners": "PLAINTEXT://a:1,SSL://a:2", "brokers": 2}, "both need port 2.*leave 2 between"),
        ({"listeners": "PLAINTEXT://a:65535", "brokers": 2}, "needs port 65536 for broker number 2"),
        ({"brokers": 0}, "a cluster has at least one"),
        ({"port": -5}, "needs port -5 for broker number 1; ports are from 0 to 65535"),
        ({"listener.name.ssl.ssl.client.auth": "none"}, "listener.name.ssl.ssl.client.auth: there is no listener ssl"),
        ({"listener.name.PLAINTEXT.max.connections": "1"}, "written in lower case"),
        ({"listener.name.plaintext.no.such.key": "1"}, "unknown setting 'listener.name.plaintext.no.such.key'"),
        ({"listener.name.plaintext.PLAIN.connections.max.reauth.ms": "1"}, "the mechanism in lower case"),
        ({"listener.name.plaintext.max.connections": "many"}, "max.connections='many'"),
        ({"sasl_enabled_mechanisms": "GSSAPI"}, "expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
    ],
)
def test_invalid_listener_settings_are_refused(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        plans(**settings)


def test_listener_may_have_its_own_settings():
    one, other = plans(
        listeners="PLAINTEXT://a:1,SSL://a:2",
        max_connections="9",
        **{"listener.name.ssl.max.connections": "3", "listener.name.ssl.ssl.client.auth": "required"},
    )
    assert (one.config.max_connections, one.client_auth) == (9, "none")
    assert (other.config.max_connections, other.client_auth) == (3, "required")


def test_repr_hides_secrets():
    config = BrokerConfig().override(
        {
            "listener.name.a.plain.sasl.jaas.config": "top-secret",
            "ssl.keystore.key": "top-secret",
            "ssl.key.password": "top-secret",
            "ssl.keystore.certificate.chain": "top-secret",
            "ssl.truststore.certificates": "top-secret",
        }
    )
    assert "top-secret" not in repr(config)
    assert "top-secret" not in str(config.as_text())
    assert config.as_text()["ssl.keystore.key"] == "[hidden]"


# Properties


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (r"a=1\n2", {"a": "1\n2"}),
        ("a=x\\\n  y\\\n\tz\nb=2", {"a": "xyz", "b": "2"}),
        (r"a=\\\"\u00e9", {"a": '\\"é'}),
        ("a=b=c", {"a": "b=c"}),
        ("a: b\nc d", {"a": "b", "c": "d"}),
        (r"a=x\\", {"a": "x\\"}),
        ("a=x\\", {"a": "x"}),
        ("a=", {"a": ""}),
    ],
)
def test_properties_support_java_escapes(text, settings):
    assert parse_properties(text) == settings


def test_invalid_properties_line_is_not_quoted():
    with pytest.raises(ConfigError) as refused:
        parse_properties("a=1\ntop-secret")
    assert str(refused.value) == "line 2 is not of the form key=value"
