"""The credentials of a client: tokens for kafka-python, and logs without secrets."""

import base64
import json
import logging
from pathlib import Path
from typing import Any, Final

from spark_eos.client.oauth_tokens import SharedTokenProvider, TokenProvider, shared_token
from spark_eos.errors import AuthenticationError
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import Clock, Runtime, now_ms

# kafka-python logs each request with these loggers at DEBUG, as an object and as bytes; the ones that authenticate
# contain the password or the token.
_REQUEST_LOGGERS: Final = ("kafka.net.connection", "kafka.protocol.parser")
_UNSIGNED_LIFETIME_S: Final = 3_600


def token_provider(options: ClientOptions, runtime: Runtime) -> TokenProvider | None:
    clock, extensions = runtime.clock, options.sasl_extensions
    if options.sasl_oauth is not None:
        wait_s = min(options.request_timeout_ms, options.api_timeout_ms) / 1000
        return SharedTokenProvider(shared_token(options.sasl_oauth, runtime), clock, extensions, wait_s)
    if options.sasl_token_path is not None:
        return _TokenFile(options.sasl_token_path, clock, extensions)
    if options.sasl_unsigned_subject is not None:
        return _UnsignedToken(options.sasl_unsigned_subject, clock, extensions)
    return None


class _TokenFile(TokenProvider):
    """A token in a file, read for each connection, because the file is replaced before the token expires."""

    def __init__(self, path: str, clock: Clock, extensions: tuple[tuple[str, str], ...]) -> None:
        super().__init__(clock, extensions)
        self._path = path

    def current(self) -> str:
        """Return the file's text; the error for an invalid token shows nothing of it."""
        try:
            text = Path(self._path).read_text(encoding="ascii").strip()
        except OSError as error:
            raise self._problem(f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise self._problem("contains no token") from None
        if not text or not text.isprintable() or " " in text:
            raise self._problem("contains more than a token")
        return text

    def _problem(self, what: str) -> AuthenticationError:
        return AuthenticationError(
            f"The token file {self._path} {what}",
            remedy="Keep a valid token in this file on the driver and on every executor, or correct "
            "kafka.sasl.oauthbearer.token.endpoint.url",
        )


class _UnsignedToken(TokenProvider):
    """Kafka's unsecured JSON web tokens (RFC 7515, appendix A.5), for test brokers: they prove nothing."""

    def __init__(self, subject: str, clock: Clock, extensions: tuple[tuple[str, str], ...]) -> None:
        super().__init__(clock, extensions)
        self._subject = subject

    def current(self) -> str:
        now_s = now_ms(self._clock) // 1_000
        claims = {"sub": self._subject, "iat": now_s, "exp": now_s + _UNSIGNED_LIFETIME_S}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def keep_out_of_logs() -> None:
    """Make kafka-python log authentication requests by name only, and bytes by length; safe to call again."""
    for name in _REQUEST_LOGGERS:
        logging.getLogger(name).addFilter(_hide)


def _hide(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_shown(each) for each in record.args)
    return True


def _shown(argument: object) -> object:
    if isinstance(argument, bytes | bytearray | memoryview):
        return f"{len(argument)} bytes"
    return f"{type(argument).__name__}([hidden])" if hasattr(argument, "auth_bytes") else argument
