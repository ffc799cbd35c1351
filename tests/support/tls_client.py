"""Kafka's protocol over TLS, one request at a time."""

import ssl

import trustme

from tests.support.raw_client import RawClient


def trusting(authority: trustme.CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """Return a client's context that trusts the authority and presents the certificate."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


class TlsClient(RawClient):
    """A raw client of a TLS listener."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        super().__init__(address)
        self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")
