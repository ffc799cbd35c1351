"""The settings of TLS, and the names of principals in certificates."""

import base64
import ssl

import pytest
import trustme
from asn1crypto.x509 import Name
from cryptography.hazmat.primitives import serialization as s

from broker_core.config import BrokerConfig, parse_properties
from broker_core.errors import ConfigError
from broker_core.security.principals import PrincipalRules, printed_name
from broker_core.server.listeners import plan_listeners
from broker_core.server.tls import tls_context

# Each with the result of Java's X500Principal.getName().
NAMES = [
    (
        "MHAxCzAJBgNVBAYTAkRFMQ8wDQYDVQQIDAZCZXJsaW4xDjAMBgNVBAcMBU1pdHRlMRYwFAYDVQQKDA1FeGFtcGxlLC"
        "BJbmMuMQwwCgYDVQQLDANSK0QxGjAYBgNVBAMMEVpvw6sgIloiIDx4PiMxOz1c",
        r"CN=Zoë \"Z\" \<x\>\#1\;\=\\,OU=R\+D,O=Example\, Inc.,L=Mitte,ST=Berlin,C=DE",
    ),
    ("MBUxEzARBgNVBAMMCiAgc3BhY2VkICA=", r"CN=\ \ spaced\ \ "),
    (
        "MH0xFDASBgkqhkiG9w0BCQEWBWFAYi5jMQ4wDAYDVQQDDAVhbGljZTEUMBIGCgmSJomT8ixkAQEMBHVpZDExFzAVBg"
        "oJkiaJk/IsZAEZFgdleGFtcGxlMQwwCgYDVQQJDANzIDExCzAJBgNVBAUTAjc3MQswCQYDVQQMDAJEcg==",
        r"2.5.4.12=#0c024472,2.5.4.5=#13023737,STREET=s 1,DC=example,UID=uid1,"
        r"CN=alice,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    ("MBAxDjAMBgNVBAMMBSNsZWFk", r"CN=\#lead"),
    ("MCIxFDAIBgNVBAMMAWIwCAYDVQQLDAFhMQowCAYDVQQKDAFv", r"O=o,CN=b+OU=a"),
]


@pytest.mark.parametrize(("encoded", "printed"), NAMES)
def test_distinguished_name_is_formatted_as_in_java(encoded, printed):
    assert printed_name(Name.load(base64.b64decode(encoded))) == printed


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=Alice,O=X", "CN=Alice,O=X"),
        ("", "CN=Alice", None),
        ("RULE:^CN=(.*?),O=X$/$1/", "CN=Alice,O=X", "Alice"),
        ("RULE:^CN=(.*?),O=X$/$1/L", "CN=Alice,O=X", "alice"),
        ("RULE:^CN=(.*?),O=(.*)$/$1@$2/U, DEFAULT", "CN=Alice,O=x", "ALICE@X"),
        ("RULE:^CN=(.*?),O=X$/$1/", "CN=Alice,O=Y", None),
        ("RULE:^CN=(.*?),O=X$/$1/,RULE:^CN=(.*?),O=Y$/y-$1/,DEFAULT", "CN=Alice,O=Y", "y-Alice"),
        ("RULE:^CN=(.*?),O=X$/$1/,DEFAULT", "O=Z", "O=Z"),
        ("RULE:^CN=(\\w+)$/$1-$2/", "CN=Alice", "Alice-$2"),
        ("RULE:^CN=a\\/b$/slash/", "CN=a/b", "slash"),
    ],
)
def test_principal_mapping_rules_shorten_names(rules, name, expected):
    assert PrincipalRules(rules).apply(name) == expected


@pytest.mark.parametrize("rules", ["RULE:a", "RULE:a/b", "rule:a/b/", "DEFAULT;DEFAULT", "RULE:(/x/", "RULE:a/b/Q"])
def test_invalid_principal_mapping_rules_are_refused(rules):
    with pytest.raises(ConfigError, match="ssl.principal.mapping.rules"):
        PrincipalRules(rules)


# Settings


@pytest.fixture(scope="module")
def identity():
    """Return the settings of a listener that clients of the authority trust, and that trusts them."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    return {
        "ssl.keystore.certificate.chain": "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems),
        "ssl.keystore.key": certificate.private_key_pem.bytes().decode(),
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
    }


def context_of(settings, protocol="SSL"):
    config = BrokerConfig().override({"listeners": f"{protocol}://h:1", **settings})
    context, _ = tls_context(plan_listeners(config, brokers=1, host="h", port=0)[0])
    return context


def test_tls_versions_come_from_the_settings(identity):
    context = context_of({**identity, "ssl.enabled.protocols": "TLSv1.3"})
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)
    context = context_of(identity)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize(
    ("suites", "versions", "older"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", ("TLSv1_2", "TLSv1_2"), ["ECDHE-RSA-AES256-GCM-SHA384"]),
        (
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
            ("TLSv1_2", "TLSv1_2"),
            ["ECDHE-RSA-AES256-GCM-SHA384"],
        ),
        ("TLS_AES_256_GCM_SHA384,SSL_RSA_WITH_DES_CBC_SHA", ("TLSv1_3", "TLSv1_3"), None),
        (
            "TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 ,TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
            ("TLSv1_2", "TLSv1_3"),
            ["ECDHE-ECDSA-CHACHA20-POLY1305"],
        ),
    ],
)
def test_cipher_suites_come_from_the_settings(identity, suites, versions, older):
    context = context_of({**identity, "listener.name.ssl.ssl.cipher.suites": suites})
    assert (context.minimum_version.name, context.maximum_version.name) == versions
    if older is not None:
        assert [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"] == older


@pytest.mark.parametrize(
    ("suites", "complaint"),
    [
        ("ECDHE-RSA-AES256-GCM-SHA384", "unknown suite 'ECDHE-RSA-AES256-GCM-SHA384'"),
        ("SSL_RSA_WITH_DES_CBC_SHA", "no suite that OpenSSL has"),
        ("TLS_AES_256_GCM_SHA384", "name suites of TLSv1.2"),
    ],
)
def test_cipher_suites_that_cannot_be_used_are_refused(identity, suites, complaint):
    with pytest.raises(ConfigError, match=complaint):
        context_of({**identity, "ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": suites})


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, ssl.CERT_NONE),
        ({"ssl.client.auth": "requested"}, ssl.CERT_OPTIONAL),
        ({"ssl.client.auth": "required"}, ssl.CERT_REQUIRED),
        ({"ssl.client.auth": "none", "listener.name.ssl.ssl.client.auth": "required"}, ssl.CERT_REQUIRED),
    ],
)
def test_client_certificates_are_requested_as_configured(identity, given, mode):
    assert context_of({**identity, **given}).verify_mode is mode


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"ssl.client.auth": "required"}, ssl.CERT_NONE),
        ({"listener.name.sasl_ssl.ssl.client.auth": "required"}, ssl.CERT_REQUIRED),
    ],
)
def test_client_certificate_with_sasl_requires_the_listener_setting(identity, given, mode):
    assert context_of({**identity, **given}, "SASL_SSL").verify_mode is mode


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "listener SSL has no certificate"),
        ({"ssl.keystore.location": "/nowhere.pem"}, "/nowhere.pem.*No such file"),
        ({"ssl.keystore.key": "top-secret", "ssl.keystore.certificate.chain": "top-secret"}, "given as text.*no PEM"),
        ({"ssl.client.auth": "none,required"}, "ssl.client.auth='none,required'"),
        ({"ssl.client.auth": "required", "ssl.truststore.location": "/nowhere.pem"}, "/nowhere.pem"),
        ({"ssl.client.auth": "required", "ssl.truststore.certificates": "top-secret"}, "trusted certificates"),
    ],
)
def test_unusable_tls_settings_are_refused_without_showing_secrets(identity, given, complaint):
    own = identity if "ssl.client.auth" in given else {}
    with pytest.raises(ConfigError, match=complaint) as refused:
        context_of({**own, **given})
    assert "top-secret" not in str(refused.value)


def test_encrypted_key_requires_its_password(identity):
    key = s.load_pem_private_key(identity["ssl.keystore.key"].encode(), None)
    locked = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"open")).decode()
    assert context_of({**identity, "ssl.keystore.key": locked, "ssl.key.password": "open"})
    with pytest.raises(ConfigError, match="cannot be loaded"):
        context_of({**identity, "ssl.keystore.key": locked, "ssl.key.password": "top-secret"})


def test_properties_file_may_contain_pem_in_one_line(identity):
    lines = "".join(f"{key}={text.replace(chr(10), chr(92) + 'n')}\n" for key, text in identity.items())
    assert parse_properties(lines) == identity
