"""Brokers that serve only a part of the APIs, as some services do."""

import pytest

from broker_core.broker.apis import SERVED


def leave_out(monkeypatch: pytest.MonkeyPatch, *keys: int) -> None:
    """Serve the APIs no more, and advertise them no more, for the rest of the test."""
    for key in keys:
        monkeypatch.delitem(SERVED, key)


def limit(monkeypatch: pytest.MonkeyPatch, key: int, max_version: int) -> None:
    """Serve an API only up to a version for the rest of the test."""
    monkeypatch.setitem(SERVED, key, SERVED[key]._replace(max_version=max_version))
