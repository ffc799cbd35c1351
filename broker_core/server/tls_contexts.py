"""The TLS contexts of the listeners of each broker, whose key stores change while the brokers run (KIP-226).

Stores that change are checked as Kafka checks them, with its messages.
"""

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from broker_core.broker.broker_settings import BrokerSettings, refused_at_run_time
from broker_core.errors import ConfigError
from broker_core.java_values import trim
from broker_core.security.principals import certificate_names
from broker_core.server.listeners import ListenerPlan
from broker_core.server.tls import (
    KEY_STORE,
    TRUST_STORE,
    JavaStore,
    KeyAndChain,
    LockedKeyError,
    StoredCertificate,
    StoreFileError,
    UnreadableStoreError,
    empty_context,
    has_certificate,
    is_java_store,
    keys_of,
    load_keys,
    load_pem_identity,
    read_java_store,
    tls_context,
)
from broker_core.settings.catalog import OF_STORES
from broker_core.settings.served import ListenerConfig
from broker_core.settings.values import LISTENER_PREFIX

logger = logging.getLogger(__name__)

# The settings of stores by Kafka's names, None where one is not set.
StoreValues = Mapping[str, str | None]
_KNOWN: Final = ListenerConfig.keys()
_PEM: Final = "PEM"
_NOT_COMPATIBLE: Final = "org.apache.kafka.common.config.ConfigException"
_NOT_LOADED: Final = "org.apache.kafka.common.errors.InvalidConfigurationException"
_FAILED: Final = "org.apache.kafka.common.KafkaException"
_UNRECOVERABLE: Final = "java.security.UnrecoverableKeyException"
# What Java says of a key that a password does not decrypt, by the format of its store.
_LOCKED: Final = {
    "JKS": f"{_UNRECOVERABLE}: Cannot recover key",
    "PKCS12": (
        f"{_UNRECOVERABLE}: Get Key failed: Given final block not properly padded. Such issues can arise if a bad key "
        "is used during decryption."
    ),
}


class RefusedStore(Exception):
    """A store that Kafka refuses: the class of its error, and the message."""

    def __init__(self, message: str, kind: str = _NOT_LOADED) -> None:
        super().__init__(f"{kind}: {message}")


def changed_context(
    plan: ListenerPlan, before: StoreValues, present: Sequence[StoredCertificate], values: StoreValues
) -> tuple[ssl.SSLContext, list[StoredCertificate]]:
    """Return the context of a listener with changed stores, and the certificates in its key store.

    Which clients are asked for a certificate does not change. Raises `RefusedStore` for stores that cannot be used.
    `present` are the certificates in the key store before, none if they are not known.
    """
    context = empty_context(plan)
    kind = _type_of(values, KEY_STORE)
    _check_key_store(values, kind)
    if kind == _PEM:
        certificates, keys = _load_pem(context, plan, values), None
    else:
        store = _read(KEY_STORE, kind, values)
        certificates, keys = store.certificates, _unlocked(store, values)
    trusted = _trusted(values)
    if present:
        _check_same(plan.config, present, certificates)
    if not _has_trust_store(before) and _has_trust_store(values):
        problem = "Cannot add SSL truststore to an existing listener for which no truststore was configured."
        raise RefusedStore(problem, _NOT_COMPATIBLE)
    if keys is not None:
        # Kafka accepts a store without a key, and no client can connect.
        try:
            load_keys(context, keys)
        except (OSError, ConfigError) as error:
            reason = error if isinstance(error, ConfigError) else "OpenSSL cannot use the key"
            raise RefusedStore(f"{values[f'{KEY_STORE}location']}: {reason}") from None
    _trust(context, trusted)
    return context, certificates


def _type_of(values: StoreValues, store: str) -> str:
    """Return the type of a store, or what it is without one: Kafka's default, JKS, would exclude PEM."""
    given, place, password = (values[store + name] for name in ("type", "location", "password"))
    if given is not None:
        return given
    if password is not None:
        return "JKS"
    with suppress(OSError, ValueError):
        if is_java_store("", place or ""):
            return "JKS"
    return _PEM


def _check_key_store(values: StoreValues, kind: str) -> None:
    names = ("key", "certificate.chain", "location", "password")
    key, chain, place, password = (values[KEY_STORE + name] for name in names)
    no_password = "SSL key store password cannot be specified with PEM format, only key password may be specified"
    if key is not None:
        if kind != _PEM:
            raise RefusedStore(f"SSL private key can be specified only for PEM, but key store type is {kind}.")
        if chain is None:
            raise RefusedStore("SSL private key is specified, but certificate chain is not specified.")
        if place is not None:
            raise RefusedStore("Both SSL key store location and separate private key are specified.")
        if password is not None:
            raise RefusedStore(f"{no_password}.")
    elif chain is not None:
        raise RefusedStore("SSL certificate chain is specified, but private key is not specified")
    elif place is None:
        if password is not None:
            raise RefusedStore("SSL key store is not specified, but key store password is specified.")
        problem = "Cannot remove the SSL keystore from an existing listener for which a keystore was configured."
        raise RefusedStore(problem, _NOT_COMPATIBLE)
    elif kind == _PEM and password is not None:
        raise RefusedStore(no_password)
    elif password is None and kind != _PEM:
        raise RefusedStore("SSL key store is specified, but key store password is not specified.")


def _check_trust_store(values: StoreValues, kind: str) -> None:
    names = ("certificates", "location", "password")
    certificates, place, password = (values[TRUST_STORE + name] for name in names)
    no_password = "SSL trust store password cannot be specified for PEM format."
    if certificates is not None:
        if kind != _PEM:
            raise RefusedStore(f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}.")
        if place is not None:
            raise RefusedStore("Both SSL trust store location and separate trust certificates are specified.")
        if password is not None:
            raise RefusedStore(no_password)
    elif place is None and password is not None:
        raise RefusedStore("SSL trust store is not specified, but trust store password is specified.")
    elif place is not None and kind == _PEM and password is not None:
        raise RefusedStore(no_password)


def _load_pem(context: ssl.SSLContext, plan: ListenerPlan, values: StoreValues) -> list[StoredCertificate]:
    known = {key: text or "" for key, text in values.items() if key in _KNOWN}
    try:
        found = load_pem_identity(context, replace(plan, config=plan.config.override(known)))
        if not found:
            raise ConfigError("there is no certificate")
        if values["ssl.key.password"] is not None and not _has_encrypted_key(values):
            raise ConfigError("the key has no password")
    except (OSError, ValueError):
        place = values[f"{KEY_STORE}location"]
        problem = "Invalid PEM keystore configs" if place is None else f"Failed to load PEM SSL keystore {place}"
        raise RefusedStore(problem) from None
    return found


def _read(store: str, kind: str, values: StoreValues) -> JavaStore:
    place = values[f"{store}location"]
    try:
        if not kind:
            raise UnreadableStoreError(f"{store}type is empty")
        return read_java_store(store, kind, place or "", values[f"{store}password"])
    except UnreadableStoreError as error:
        _log(store, values, error)
        raise RefusedStore(f"Failed to load SSL keystore {place} of type {kind}", _FAILED) from None
    except StoreFileError as error:
        raise RefusedStore(f"{place}: {error}") from None


def _unlocked(store: JavaStore, values: StoreValues) -> list[KeyAndChain]:
    password = values["ssl.key.password"]
    try:
        return keys_of(store, (values[f"{KEY_STORE}password"] if password is None else password) or "")
    except LockedKeyError as error:
        _log(KEY_STORE, values, error)
        raise RefusedStore(_LOCKED[error.store_format], _FAILED) from None


def _log(store: str, values: StoreValues, error: StoreFileError) -> None:
    """Log why a store is refused, which Kafka's messages do not say."""
    logger.warning("%slocation=%s: %s", store, values[f"{store}location"], error)


def _text(values: StoreValues, text: str, place: str) -> str:
    given, path = values[text], values[place]
    return given if given is not None else Path(path or "").read_text(encoding="utf-8", errors="replace")


def _has_encrypted_key(values: StoreValues) -> bool:
    return "ENCRYPTED" in _text(values, f"{KEY_STORE}key", f"{KEY_STORE}location")


def _trusted(values: StoreValues) -> str | bytes | None:
    """Return the certificates of the trust store, PEM text or DER, None without one."""
    kind = _type_of(values, TRUST_STORE)
    _check_trust_store(values, kind)
    if not _has_trust_store(values):
        return None
    place = values[f"{TRUST_STORE}location"]
    if kind != _PEM:
        found = _read(TRUST_STORE, kind, values).trusted
        if not found:
            # Kafka accepts it, and refuses all clients with a certificate.
            raise RefusedStore(f"{place}: it contains no certificate")
        return found
    problem = "No matching CERTIFICATE entries in PEM file"
    try:
        text = _text(values, f"{TRUST_STORE}certificates", f"{TRUST_STORE}location")
        if has_certificate(text):
            problem = "Invalid PEM truststore configs"
        # OpenSSL refuses a text without certificates, too.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (OSError, ValueError):
        raise RefusedStore(problem if place is None else f"Failed to load PEM SSL keystore {place}") from None
    return text


def _trust(context: ssl.SSLContext, trusted: str | bytes | None) -> None:
    """Check the certificates of clients, if they are asked for one, with the trusted ones."""
    if context.verify_mode is ssl.CERT_NONE:
        return
    if trusted is None:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    else:
        context.load_verify_locations(cadata=trusted)


def _has_trust_store(values: StoreValues) -> bool:
    return values[f"{TRUST_STORE}certificates"] is not None or values[f"{TRUST_STORE}location"] is not None


def _check_same(config: ListenerConfig, present: Sequence[StoredCertificate], new: Sequence[StoredCertificate]) -> None:
    """Raise `RefusedStore` for certificates of another broker: clients check their names."""
    if config.ssl_allow_dn_changes and config.ssl_allow_san_changes:
        return
    if len(present) != len(new):
        counts = f"existing store contains {len(present)} entries, new store contains {len(new)} entries"
        raise RefusedStore(f"Keystore entries do not match, {counts}", _NOT_COMPATIBLE)
    for old, other in zip(present, new, strict=True):
        # OpenSSL accepts some certificates that asn1crypto cannot parse.
        with suppress(ValueError):
            _check_names(config, old, other)


def _check_names(config: ListenerConfig, old: StoredCertificate, other: StoredCertificate) -> None:
    present, new = certificate_names(old.certificate), certificate_names(other.certificate)
    if not config.ssl_allow_dn_changes and present.subject.lower() != new.subject.lower():
        names = f"existing={{alias={old.alias}, DN={present.subject}}}, new={{alias={other.alias}, DN={new.subject}}}"
        raise RefusedStore(f"Keystore DistinguishedName does not match:  {names}", _NOT_COMPATIBLE)
    if not config.ssl_allow_san_changes and not present.alternatives <= new.alternatives:
        old_names, new_names = (
            "[" + ", ".join(f"[{kind}, {name}]" for kind, name in sorted(each.alternatives)) + "]"
            for each in (present, new)
        )
        names = f"existing={{alias={old.alias}, SAN={old_names}}}, new={{alias={other.alias}, SAN={new_names}}}"
        raise RefusedStore(f"Keystore SubjectAltNames do not match:  {names}", _NOT_COMPATIBLE)


_FILES: Final = (f"{KEY_STORE}location", f"{TRUST_STORE}location")


@dataclass(frozen=True, slots=True)
class _Stores:
    """The stores that a listener uses: the settings, when the files changed, and the context made from them.

    `certificates` are the first ones of the entries of the key store; there is none if it cannot be found in PEM.
    """

    values: StoreValues
    modified: tuple[int | None, ...]
    certificates: Sequence[StoredCertificate]
    context: ssl.SSLContext


class TlsContexts:
    """The contexts of all listeners with TLS. With `given`, the settings of the listeners have no effect."""

    def __init__(self, plans: Sequence[ListenerPlan], given: ssl.SSLContext | None, broker_ids: Sequence[int]) -> None:
        self._plans = [plan for plan in plans if plan.has_tls]
        self._given = given
        self._stores: dict[tuple[str, int], _Stores] = {}
        if given is None:
            for plan in self._plans:
                context, certificates = tls_context(plan)
                values = _values(plan, {})
                stores = _Stores(values, _modified(values), certificates, context)
                self._stores.update({(plan.name, broker_id): stores for broker_id in broker_ids})

    def of(self, listener: str, broker_id: int) -> ssl.SSLContext | None:
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
            context, certificates = changed_context(plan, present.values, present.certificates, values)
        except RefusedStore as problem:
            why = f"Validation of dynamic config update of SSLFactory failed: {problem}"
            raise refused_at_run_time(why) from None
        return _Stores(values, modified, certificates, context)


def _values(plan: ListenerPlan, changes: Mapping[str, str]) -> StoreValues:
    prefix = f"{LISTENER_PREFIX}{plan.name.lower()}."
    values: dict[str, str | None] = {}
    for key in OF_STORES:
        at_start = getattr(plan.config, _KNOWN[key].name) if key in _KNOWN else None
        changed = changes.get(prefix + key)
        values[key] = (at_start or None) if changed is None else trim(changed)
    return values


def _modified(values: StoreValues) -> tuple[int | None, ...]:
    found: list[int | None] = []
    for key in _FILES:
        found.append(None)
        with suppress(OSError, ValueError):
            found[-1] = os.stat(values[key] or "").st_mtime_ns
    return tuple(found)
