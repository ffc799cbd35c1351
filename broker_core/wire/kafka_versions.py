"""The APIs and features of the versions of Apache Kafka that the broker can be limited to.

The data is in `kafka_versions.json`; `tests/support/recorded_api_versions.py` writes it from Kafka's own jars.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from broker_core.errors import ConfigError
from broker_core.wire.versions import SERVED, ServedApi


@cache
def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files(__package__).joinpath("kafka_versions.json").read_text("utf-8"))
    return found


def known_version(text: str) -> str:
    """Return the minor version of a version such as "3.9" or "3.9.1"; raise `ConfigError` for an unknown one."""
    if not isinstance(text, str):
        raise ConfigError(f"the version of Kafka is {text!r}: write it as text, {str(text)!r}")
    minor = ".".join(text.strip().split(".")[:2])
    if minor not in _recorded():
        raise ConfigError(f"kafka.version={text!r}: expected one of {', '.join(_recorded())}")
    return minor


@cache
def served_apis(version: str) -> Mapping[int, ServedApi]:
    """Return the served APIs that a version of Kafka has, in the versions that both have; all for an empty version."""
    if not version:
        return SERVED
    ranges = _recorded()[known_version(version)]["apis"]
    found = {}
    for key, api in SERVED.items():
        low, high = ranges.get(str(key), (0, -1))
        # Produce is advertised from 0 by all versions; see `versions`.
        common = api._replace(
            min_version=max(api.min_version, low),
            max_version=min(api.max_version, high),
            advertised_min=api.advertised_min if api.advertised_min < api.min_version else max(api.advertised_min, low),
        )
        if common.min_version <= common.max_version:
            found[key] = common
    return found


def highest_level(version: str, feature: str) -> int | None:
    """Return the highest level of a feature in a version of Kafka; None if that version does not know it."""
    found = _recorded()[known_version(version)]["features"].get(feature)
    return None if found is None else int(found[1])


def version_settings(version: str | None, transaction_version: int | None) -> dict[str, str]:
    """Return the settings for a version of Kafka and a level of `transaction.version`.

    Raises `ConfigError` for an unknown version, and for a level that the version does not have.
    """
    settings = {} if transaction_version is None else {"transaction.version": str(transaction_version)}
    if version is not None:
        settings["kafka.version"] = known_version(version)
        highest = highest_level(version, "transaction.version")
        if transaction_version is not None and transaction_version > (highest or 0):
            has = "has no transaction.version" if highest is None else f"has transaction.version up to {highest}"
            raise ConfigError(f"transaction_version={transaction_version}: Kafka {known_version(version)} {has}")
    return settings
