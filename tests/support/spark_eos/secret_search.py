"""A search for secrets in places where they must not be."""

import base64
from collections.abc import Iterator
from urllib.parse import quote

from tests.support.spark_eos.security_clients import KEY_PASSWORD, PASSWORD, Credentials

MISPLACED = "tell-nobody-of-me"


class Search:
    """The secrets of a client in every encoding that they may have."""

    def __init__(self, own: Credentials, *more: str) -> None:
        # A line from the middle of a key, and the payload of a token: neither occurs by chance.
        keys = [text.splitlines()[3] for text in (own.key, own.locked_key)]
        secrets = [PASSWORD, KEY_PASSWORD, MISPLACED, own.token.split(".")[1], *keys, *more]
        self.spellings = {form for secret in secrets for form in spellings(secret)}
        self.places = 0

    def look(self, where: str, shown: str | bytes) -> None:
        """Fail if a text or bytes contain a secret."""
        data = shown.encode() if isinstance(shown, str) else shown
        self.places += bool(data)
        found = [form for form in self.spellings if form in data]
        assert not found, f"{where} shows {found}: {shown[:2000]!r}"


def spellings(secret: str) -> Iterator[bytes]:
    yield secret.encode()
    yield quote(secret).encode()
    yield secret.encode().hex().encode()
    for shift in range(3):
        # At any alignment with the bytes around it, its middle is encoded in one of three ways.
        yield base64.b64encode(b"x" * shift + secret.encode())[4:-4]
