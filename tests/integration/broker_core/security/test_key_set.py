"""The key set of an identity provider: read at the start, and again for keys that it does not have."""

import json
import time

import pytest
import trustme

from broker_core.errors import ConfigError
from broker_core.security.sasl_jwt import KeySetPlace
from broker_core.server.listeners import KeySet
from tests.support.oidc_provider import KEY_ID, Signer, oidc_provider
from tests.support.waiting import wait_until


def place(url, authority=None, refresh_ms=3_600_000):
    pem = None if authority is None else authority.cert_pem.bytes().decode()
    return KeySetPlace(url, refresh_ms, 1, 20, ca_pem=pem)


def test_keys_come_over_tls_and_rotate():
    with oidc_provider() as provider:
        keys = KeySet(place(provider.keys_url, provider.authority))
        assert [key.key_id for key in keys(KEY_ID)] == [KEY_ID]
        provider.signer = Signer("next")
        assert wait_until(lambda: keys("next"), "the new key is known")
        assert keys(KEY_ID) == ()


def test_keys_of_a_file_are_read_again_after_a_time(tmp_path, caplog):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(Signer("old").key_set()))
    keys = KeySet(place(path.as_uri(), refresh_ms=1))
    path.write_text("rubbish")
    wait_until(lambda: keys("old") and "previous one remains in use" in caplog.text, "the old key remains")
    path.write_text(json.dumps(Signer("new").key_set()))
    wait_until(lambda: keys("new"), "the file is read again")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://h/keys", "neither an https nor a file URL"),
        ("file:///no/such/keys", "cannot read file:///no/such/keys: .*No such file"),
        ("https://127.0.0.1:1/keys?key=secret", r"cannot read https://127.0.0.1/keys: .*refused"),
    ],
)
def test_unreadable_key_set_is_reported(url, text):
    began = time.monotonic()
    with pytest.raises(ConfigError, match=text) as raised:
        KeySet(place(url))
    assert "secret" not in str(raised.value)
    assert time.monotonic() - began < 5


def test_certificate_of_the_provider_is_verified():
    with oidc_provider() as provider:
        with pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"):
            KeySet(place(provider.keys_url, trustme.CA()))
