"""TLS versions and cipher suites by Java's names reach OpenSSL."""

import ssl

import pytest

from spark_eos.client.tls import tls_context
from spark_eos.errors import OptionError
from spark_eos.options.client import client_options
from spark_eos.options.key_stores import NO_LIMITS, TlsLimits, tls_limits

BOTH = ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize(
    ("protocols", "versions"),
    [
        (None, BOTH),
        ("", BOTH),
        ("TLSv1.3,TLSv1.2", BOTH),
        ("TLSv1.2", ("TLSv1.2",)),
        (" tlsv1.3 ", ("TLSv1.3",)),
        ("TLSv1,TLSv1.1,TLSv1.2", ("TLSv1.2",)),
    ],
)
def test_versions_are_the_supported_ones_among_those_named(protocols: str | None, versions: tuple[str, ...]) -> None:
    assert tls_limits(protocols, None) == TlsLimits(versions)


@pytest.mark.parametrize("protocols", ["TLSv1.1", "SSLv3", "TLSv1.4", "TLSv1.2;TLSv1.3", ","])
def test_versions_that_are_too_old_or_unknown_are_refused(protocols: str) -> None:
    with pytest.raises(OptionError, match=r"ssl\.enabled\.protocols"):
        tls_limits(protocols, None)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM", "ECDHE-ECDSA-AES128-CCM"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_java_names_become_names_that_openssl_knows(suite: str, name: str) -> None:
    assert tls_limits(None, suite) == TlsLimits(("TLSv1.2",), (name,))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(f"{name}:@SECLEVEL=0")
    assert name in [each["name"] for each in context.get_ciphers()]


def test_suites_decide_whether_tls_1_3_is_used() -> None:
    assert tls_limits(None, " , ") == NO_LIMITS
    assert tls_limits(None, "TLS_AES_256_GCM_SHA384") == TlsLimits(("TLSv1.3",))
    both = tls_limits(None, "TLS_AES_256_GCM_SHA384, TLS_RSA_WITH_AES_128_GCM_SHA256")
    assert both == TlsLimits(BOTH, ("AES128-GCM-SHA256",))
    with pytest.raises(OptionError, match="no suite that OpenSSL has for the TLS versions"):
        tls_limits("TLSv1.2", "TLS_AES_256_GCM_SHA384")


@pytest.mark.parametrize("suite", ["ALL", "DEFAULT:@SECLEVEL=0", "ssl_rsa"])
def test_unknown_suites_are_refused(suite: str) -> None:
    with pytest.raises(OptionError, match="unknown suite"):
        tls_limits(None, suite)


def test_java_names_without_a_suite_of_openssl_are_left_out() -> None:
    suites = "SSL_RSA_WITH_DES_CBC_SHA,TLS_RSA_WITH_AES_128_GCM_SHA256,TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
    assert tls_limits(None, suites) == TlsLimits(("TLSv1.2",), ("AES128-GCM-SHA256",))
    with pytest.raises(OptionError, match="no suite that OpenSSL has"):
        tls_limits(None, "TLS_NULL_WITH_NULL_NULL")


def test_limits_reach_the_context() -> None:
    secured = {"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "SSL"}
    limited = {
        "kafka.ssl.enabled.protocols": "TLSv1.2",
        "kafka.ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    }
    context = tls_context(client_options({**secured, **limited}))
    assert context is not None
    built = context._context
    assert (built.minimum_version, built.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert [each["name"] for each in built.get_ciphers() if each["protocol"] == "TLSv1.2"] == [
        "ECDHE-RSA-AES128-GCM-SHA256"
    ]


def test_suites_that_openssl_lacks_are_refused() -> None:
    options = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.cipher.suites": "KRB5-DES-CBC-SHA",
    }
    with pytest.raises(OptionError, match="OpenSSL has none of the suites"):
        tls_context(client_options(options))
