"""The TLS contexts of the listeners of each broker, whose key stores change while the brokers run (KIP-226)."""

import base64
import logging
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from broker_core.broker.broker_settings import BrokerSettings
from broker_core.broker.dynamic_names import OF_STORES
from broker_core.broker.listener_changes import refused_at_run_time
from broker_core.config import ListenerConfig
from broker_core.errors import ConfigError
from broker_core.listener_keys import LISTENER_PREFIX
from broker_core.security.principals import CertificateNames, certificate_names
from broker_core.server.listeners import ListenerPlan
from broker_core.server.tls import empty_context, load_identity, load_trust, tls_context

logger = logging.getLogger(__name__)

_KEY_STORE: Final = "ssl.keystore."
_TRUST_STORE: Final = "ssl.truststore."
_FILES: Final = (f"{_KEY_STORE}location", f"{_TRUST_STORE}location")
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END (?:X509 |TRUSTED )?CERTIFICATE-----", re.DOTALL
)
_KNOWN: Final = ListenerConfig.keys()
_NOT_COMPATIBLE: Final = "org.apache.kafka.common.config.ConfigException"
_NOT_LOADED: Final = "org.apache.kafka.common.errors.InvalidConfigurationException"
# The settings of stores by Kafka's names, None for those that are not set.
_Values = Mapping[str, str | None]


class _Refused(Exception):
    """A store that Kafka refuses: the class of its error, and the message."""

    def __init__(self, message: str, kind: str = _NOT_LOADED) -> None:
        super().__init__(f"{kind}: {message}")


@dataclass(frozen=True, slots=True)
class _Stores:
    """The stores that a listener uses: the settings, when the files changed, and the context made from them.

    `certificate` is the broker's own, None if it cannot be found: OpenSSL reads more forms of PEM than this module.
    """

    values: _Values
    modified: tuple[int | None, ...]
    certificate: bytes | None
    context: ssl.SSLContext


class TlsContexts:
    """The contexts of all listeners with TLS. With `given`, the settings of the listeners have no effect."""

    def __init__(self, plans: Sequence[ListenerPlan], given: ssl.SSLContext | None, broker_ids: Sequence[int]) -> None:
        self._plans = [plan for plan in plans if plan.has_tls]
        self._given = given
        self._stores: dict[tuple[str, int], _Stores] = {}
        if given is None:
            for plan in self._plans:
                context, values = tls_context(plan), _values(plan, {})
                stores = _Stores(values, _modified(values), _first_certificate(values), context)
                self._stores.update({(plan.name, broker_id): stores for broker_id in broker_ids})

    def of(self, listener: str, broker_id: int) -> ssl.SSLContext | None:
        """Return the context of the next connection to a listener, None for a listener without TLS."""
        if self._given is not None and any(plan.name == listener for plan in self._plans):
            return self._given
        found = self._stores.get((listener, broker_id))
        return None if found is None else found.context

    def follow(self, settings: BrokerSettings) -> None:
        """Use the settings in force from now on, and refuse changes that cannot be used."""
        if self._stores:
            settings.check_with(self._check)
            settings.subscribe(lambda: self._use(settings))
            self._use(settings)

    def _check(self, broker_id: int, changes: Mapping[str, str]) -> None:
        for plan in self._plans:
            self._changed(plan, broker_id, changes)

    def _use(self, settings: BrokerSettings) -> None:
        """Replace the contexts whose settings or files have changed; those with invalid settings stay."""
        for plan in self._plans:
            for name, broker_id in [key for key in self._stores if key[0] == plan.name]:
                changes = {**settings.dynamic_defaults(), **settings.dynamic(broker_id)}
                try:
                    self._stores[name, broker_id] = self._changed(plan, broker_id, changes)
                except ConfigError as error:
                    logger.error("broker %d: the certificates of listener %s do not change: %s", broker_id, name, error)

    def _changed(self, plan: ListenerPlan, broker_id: int, changes: Mapping[str, str]) -> _Stores:
        """Return the stores of a listener after a change; raise `ConfigError` with Kafka's message."""
        present, values = self._stores[plan.name, broker_id], _values(plan, changes)
        modified = _modified(values)
        if (values, modified) == (present.values, present.modified):
            return present
        try:
            context, certificate = _load(plan, values)
            if present.certificate is not None:
                # OpenSSL accepts some certificates that asn1crypto cannot parse.
                with suppress(ValueError):
                    _check_same(certificate_names(present.certificate), certificate_names(certificate))
            if not _has_trust_store(present.values) and _has_trust_store(values):
                problem = "Cannot add SSL truststore to an existing listener for which no truststore was configured."
                raise _Refused(problem, _NOT_COMPATIBLE)
        except _Refused as problem:
            why = f"Validation of dynamic config update of SSLFactory failed: {problem}"
            raise refused_at_run_time(why) from None
        return _Stores(values, modified, certificate, context)


def _values(plan: ListenerPlan, changes: Mapping[str, str]) -> _Values:
    """Return the settings of a listener's stores with some of them changed."""
    prefix = f"{LISTENER_PREFIX}{plan.name.lower()}."
    values: dict[str, str | None] = {}
    for key in OF_STORES:
        at_start = getattr(plan.config, _KNOWN[key].name) if key in _KNOWN else None
        values[key] = changes.get(prefix + key, at_start or None)
    return values


def _modified(values: _Values) -> tuple[int | None, ...]:
    """Return when the files of the stores changed, in nanoseconds, None for a file that does not exist."""
    found: list[int | None] = []
    for key in _FILES:
        found.append(None)
        with suppress(OSError, ValueError):
            found[-1] = os.stat(values[key] or "").st_mtime_ns
    return tuple(found)


def _check_key_store(values: _Values) -> None:
    """Raise `_Refused` for settings that do not name one key store in PEM."""
    names = ("key", "certificate.chain", "location", "password", "type")
    key, chain, place, password, kind = (values[_KEY_STORE + name] for name in names)
    no_password = "SSL key store password cannot be specified with PEM format, only key password may be specified"
    if key is not None:
        if kind != "PEM":
            raise _Refused(f"SSL private key can be specified only for PEM, but key store type is {kind}.")
        if chain is None:
            raise _Refused("SSL private key is specified, but certificate chain is not specified.")
        if place is not None:
            raise _Refused("Both SSL key store location and separate private key are specified.")
        if password is not None:
            raise _Refused(f"{no_password}.")
    elif chain is not None:
        raise _Refused("SSL certificate chain is specified, but private key is not specified")
    elif place is None:
        if password is not None:
            raise _Refused("SSL key store is not specified, but key store password is specified.")
        problem = "Cannot remove the SSL keystore from an existing listener for which a keystore was configured."
        raise _Refused(problem, _NOT_COMPATIBLE)
    elif kind == "PEM" and password is not None:
        raise _Refused(no_password)
    elif password is None and kind != "PEM":
        raise _Refused("SSL key store is specified, but key store password is not specified.")


def _check_trust_store(values: _Values) -> None:
    """Raise `_Refused` for settings that do not name one trust store in PEM, or none."""
    names = ("certificates", "location", "password", "type")
    certificates, place, password, kind = (values[_TRUST_STORE + name] for name in names)
    no_password = "SSL trust store password cannot be specified for PEM format."
    if certificates is not None:
        if kind != "PEM":
            raise _Refused(f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}.")
        if place is not None:
            raise _Refused("Both SSL trust store location and separate trust certificates are specified.")
        if password is not None:
            raise _Refused(no_password)
    elif place is None and password is not None:
        raise _Refused("SSL trust store is not specified, but trust store password is specified.")
    elif place is not None and kind == "PEM" and password is not None:
        raise _Refused(no_password)


def _load(plan: ListenerPlan, values: _Values) -> tuple[ssl.SSLContext, bytes]:
    """Return the context of the settings and its certificate; raise `_Refused` for settings that are wrong.

    Which clients are asked for a certificate does not change.
    """
    _check_key_store(values)
    _check_trust_store(values)
    known = {key: text or "" for key, text in values.items() if key in _KNOWN}
    changed = replace(plan, config=plan.config.override(known))
    try:
        context = empty_context(changed)
    except ConfigError as error:
        raise _Refused(str(error)) from None
    try:
        load_identity(context, changed)
        certificate = _first_certificate(values)
        if certificate is None:
            raise ConfigError("there is no certificate")
        if values["ssl.key.password"] is not None and not _has_encrypted_key(values):
            raise ConfigError("the key has no password")
    except (ConfigError, OSError, ValueError):
        place = values[f"{_KEY_STORE}location"]
        problem = "Invalid PEM keystore configs" if place is None else f"Failed to load PEM SSL keystore {place}"
        raise _Refused(problem) from None
    _check_trusted(values)
    load_trust(context, changed)
    return context, certificate


def _text(values: _Values, text: str, place: str) -> str:
    """Return the text of a setting, or of the file that another one names."""
    given, path = values[text], values[place]
    return given if given is not None else Path(path or "").read_text(encoding="utf-8", errors="replace")


def _first_certificate(values: _Values) -> bytes | None:
    """Return the broker's own certificate, None if there is none; raise OSError if the file cannot be read."""
    found = _CERTIFICATE.search(_text(values, f"{_KEY_STORE}certificate.chain", f"{_KEY_STORE}location"))
    return None if found is None else base64.b64decode(found[1])


def _has_encrypted_key(values: _Values) -> bool:
    return "ENCRYPTED" in _text(values, f"{_KEY_STORE}key", f"{_KEY_STORE}location")


def _check_trusted(values: _Values) -> None:
    """Raise `_Refused` for a trust store that has no certificates."""
    if not _has_trust_store(values):
        return
    place, problem = values[f"{_TRUST_STORE}location"], "No matching CERTIFICATE entries in PEM file"
    try:
        text = _text(values, f"{_TRUST_STORE}certificates", f"{_TRUST_STORE}location")
        if _CERTIFICATE.search(text):
            problem = "Invalid PEM truststore configs"
        # OpenSSL refuses a text without certificates, too.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (OSError, ValueError):
        raise _Refused(problem if place is None else f"Failed to load PEM SSL keystore {place}") from None


def _has_trust_store(values: _Values) -> bool:
    return values[f"{_TRUST_STORE}certificates"] is not None or values[f"{_TRUST_STORE}location"] is not None


def _check_same(present: CertificateNames, new: CertificateNames) -> None:
    """Raise `_Refused` for a certificate of another broker: clients check its names."""
    if present.subject.lower() != new.subject.lower():
        names = f"existing={{alias=kafka, DN={present.subject}}}, new={{alias=kafka, DN={new.subject}}}"
        raise _Refused(f"Keystore DistinguishedName does not match:  {names}", _NOT_COMPATIBLE)
    if not present.alternatives <= new.alternatives:
        old_names, new_names = (
            "[" + ", ".join(f"[{kind}, {name}]" for kind, name in sorted(each.alternatives)) + "]"
            for each in (present, new)
        )
        names = f"existing={{alias=kafka, SAN={old_names}}}, new={{alias=kafka, SAN={new_names}}}"
        raise _Refused(f"Keystore SubjectAltNames do not match:  {names}", _NOT_COMPATIBLE)
