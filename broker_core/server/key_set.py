"""The key set (JWKS) of an identity provider, read from a file or a URL and kept up to date by a thread.

A lookup never waits. As in Kafka, a token that is signed with an unknown key is refused, and the set is read again, so
that a later token with that key is accepted.
"""

import logging
import ssl
import threading
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from broker_core.errors import ConfigError
from broker_core.security.sasl_jwt import KeySetPlace, SigningKey, read_key_set

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

logger = logging.getLogger(__name__)

_URL_SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 4 * 1024 * 1024


class KeySet:
    """The keys of one place."""

    def __init__(self, place: KeySetPlace) -> None:
        parts = urlsplit(place.url)
        if parts.scheme not in ("https", "http", "file"):
            raise ConfigError(f"{_URL_SETTING} is neither an https nor a file URL")
        self._place = place
        self._path = unquote(parts.path) if parts.scheme == "file" else None
        self._shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
        self._opener = self._make_opener()
        self._lock = threading.Lock()
        self._is_reading = False
        self._keys = self._read_with_retries()
        self._read_at = time.monotonic()

    def __call__(self, key_id: str | None) -> tuple[SigningKey, ...]:
        """Return the keys with an id, or all of them for None."""
        age_ms = 1000 * (time.monotonic() - self._read_at)
        keys = tuple(key for key in self._keys if key_id is None or key.key_id == key_id)
        if age_ms > self._place.refresh_ms or (not keys and age_ms > self._place.retry_backoff_ms):
            self._read_in_thread()
        return keys

    def _read_in_thread(self) -> None:
        with self._lock:
            if self._is_reading:
                return
            self._is_reading = True
        threading.Thread(target=self._refresh, name="key set", daemon=True).start()

    def _refresh(self) -> None:
        try:
            self._keys = self._read_with_retries()
        except ConfigError as error:
            logger.warning("the key set is not read again, the previous one remains in use: %s", error)
        finally:
            self._read_at = time.monotonic()
            self._is_reading = False

    def _read_with_retries(self) -> tuple[SigningKey, ...]:
        """Read the set; try again for as long as Kafka does."""
        place = self._place
        until = time.monotonic() + place.retry_backoff_max_ms / 1000
        delay_s = place.retry_backoff_ms / 1000
        while True:
            try:
                return read_key_set(self._read())
            except OSError as error:
                problem = f"{_URL_SETTING}: cannot read {self._shown}: {error}"
            except ConfigError as error:
                raise ConfigError(f"{_URL_SETTING}: {self._shown}: {error}") from None
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise ConfigError(problem)
            time.sleep(min(delay_s, left_s))
            delay_s *= 2

    def _read(self) -> bytes:
        if self._path is not None:
            with open(self._path, "rb") as file:
                return file.read(_MOST_BYTES)
        with self._opener.open(self._place.url, timeout=_TIMEOUT_S) as response:
            return bytes(response.read(_MOST_BYTES))

    def _make_opener(self) -> "OpenerDirector":
        # Few brokers read keys from a URL, and the import takes 4 ms.
        import urllib.request

        try:
            context = ssl.create_default_context(cafile=self._place.ca_path, cadata=self._place.ca_pem)
        except (OSError, ValueError):
            raise ConfigError("ssl.truststore.* in sasl.jaas.config: cannot read the PEM certificates") from None
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
