"""The TLS contexts of the listeners of each broker, whose key stores change while the brokers run (KIP-226)."""

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from broker_core.broker.broker_settings import BrokerSettings
from broker_core.broker.listener_changes import refused_at_run_time
from broker_core.errors import ConfigError
from broker_core.java_values import trim
from broker_core.listener_keys import LISTENER_PREFIX
from broker_core.server.listeners import ListenerPlan
from broker_core.server.store_changes import RefusedStore, StoreValues, changed_context
from broker_core.server.store_files import KEY_STORE, TRUST_STORE, StoredCertificate
from broker_core.server.tls import tls_context
from broker_core.settings.catalog import OF_STORES
from broker_core.settings.served import ListenerConfig

logger = logging.getLogger(__name__)

_FILES: Final = (f"{KEY_STORE}location", f"{TRUST_STORE}location")
_KNOWN: Final = ListenerConfig.keys()


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
            context, certificates = changed_context(plan, present.values, present.certificates, values)
        except RefusedStore as problem:
            why = f"Validation of dynamic config update of SSLFactory failed: {problem}"
            raise refused_at_run_time(why) from None
        return _Stores(values, modified, certificates, context)


def _values(plan: ListenerPlan, changes: Mapping[str, str]) -> StoreValues:
    """Return the settings of a listener's stores with some of them changed."""
    prefix = f"{LISTENER_PREFIX}{plan.name.lower()}."
    values: dict[str, str | None] = {}
    for key in OF_STORES:
        at_start = getattr(plan.config, _KNOWN[key].name) if key in _KNOWN else None
        changed = changes.get(prefix + key)
        values[key] = (at_start or None) if changed is None else trim(changed)
    return values


def _modified(values: StoreValues) -> tuple[int | None, ...]:
    """Return when the files of the stores changed, in nanoseconds, None for a file that does not exist."""
    found: list[int | None] = []
    for key in _FILES:
        found.append(None)
        with suppress(OSError, ValueError):
            found[-1] = os.stat(values[key] or "").st_mtime_ns
    return tuple(found)
