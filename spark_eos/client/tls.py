"""Build the TLS context of a client from PEM files or PEM text.

The context is built where it is used, since it cannot be pickled and files are read on the machine that connects.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from spark_eos.client_options import ClientOptions
from spark_eos.errors import OptionError


def tls_context(options: ClientOptions) -> ssl.SSLContext | None:
    """Build a context for `SSL` and `SASL_SSL`; None for the protocols without TLS."""
    if not options.security_protocol.endswith("SSL"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = options.ssl_check_hostname
    _trust(context, options)
    _identify(context, options)
    return context


def _trust(context: ssl.SSLContext, options: ClientOptions) -> None:
    if options.ssl_ca_path is None and options.ssl_ca_pem is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cafile=options.ssl_ca_path, cadata=options.ssl_ca_pem)
    except (OSError, ssl.SSLError) as error:
        raise OptionError(
            f"The trusted certificates cannot be read: {error}",
            checked=f"kafka.ssl.truststore.location={options.ssl_ca_path}",
            remedy="Give a PEM file that exists on the driver and on every executor",
        ) from error


def _identify(context: ssl.SSLContext, options: ClientOptions) -> None:
    if options.ssl_certificate_path is None and options.ssl_certificate_pem is None:
        return
    try:
        with _as_file(options.ssl_certificate_pem, options.ssl_certificate_path) as certificate, _as_file(
            options.ssl_key_pem, options.ssl_key_path
        ) as key:
            # The empty password keeps OpenSSL from asking on the terminal when the key is encrypted.
            context.load_cert_chain(certificate or "", key, options.ssl_key_password or "")
    except (OSError, ssl.SSLError) as error:
        raise OptionError(
            f"The client certificate or its key cannot be read: {error}",
            checked=f"kafka.ssl.keystore.location={options.ssl_certificate_path}, key at {options.ssl_key_path}",
            remedy="Give PEM files that exist on the driver and every executor, and kafka.ssl.key.password if needed",
        ) from error


@contextmanager
def _as_file(pem: str | None, path: str | None) -> Iterator[str | None]:
    """Give OpenSSL a file: the given one, or PEM text written where only this user can read it, and removed."""
    if pem is None:
        yield path
        return
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(pem)
        yield name
    finally:
        os.unlink(name)
