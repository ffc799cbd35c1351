"""The APIs and features of the versions of Apache Kafka that the broker can be limited to.

The data is in `kafka_versions.json`; `tests/support/recorded_api_versions.py` writes it from Kafka's own jars.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from broker_core.errors import ConfigError
from broker_core.wire.served import ServedApi


class FeatureLevels(NamedTuple):
    """The levels of a feature in a version of Kafka: the supported ones, and the level of a new cluster."""

    lowest: int
    highest: int
    initial: int


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


def limited(served: Mapping[int, ServedApi], version: str) -> Mapping[int, ServedApi]:
    """Return the APIs that a version of Kafka has too, in the versions that both have."""
    ranges = _recorded()[known_version(version)]["apis"]
    found = {}
    for key, api in served.items():
        low, high = ranges.get(str(key), (0, -1))
        # Produce is advertised from 0 by all versions; see its declaration.
        common = api._replace(
            min_version=max(api.min_version, low),
            max_version=min(api.max_version, high),
            advertised_min=api.advertised_min if api.advertised_min < api.min_version else max(api.advertised_min, low),
        )
        if common.min_version <= common.max_version:
            found[key] = common
    return found


@cache
def feature_levels(version: str) -> Mapping[str, FeatureLevels]:
    """Return the features that a version of Kafka supports; an empty version stands for the newest."""
    return {name: FeatureLevels(*levels) for name, levels in _facts(version)["features"].items()}


def changes_metadata(version: str, level: int) -> bool:
    """Return whether a level of `metadata.version` changed the metadata, so that no lower level can read it."""
    return level in _facts(version)["metadata_changes"]


def is_before(version: str, other: str) -> bool:
    """Return whether a version is older than another one; an empty version is the newest."""
    order = list(_recorded())
    return bool(version) and order.index(known_version(version)) < order.index(other)


def first_version_with(levels: Mapping[str, int]) -> str:
    """Return the oldest version of Kafka that supports the levels of the features, which the newest does."""
    return next(version for version in _recorded() if not unsupported(version, levels))


def unsupported(version: str, levels: Mapping[str, int]) -> dict[str, int]:
    """Return the features whose level a version of Kafka does not support; an unknown feature has level 0."""
    known = feature_levels(version)
    return {
        name: level
        for name, level in levels.items()
        if level and not (name in known and known[name].lowest <= level <= known[name].highest)
    }


def _facts(version: str) -> dict[str, Any]:
    found: dict[str, Any] = _recorded()[known_version(version) if version else list(_recorded())[-1]]
    return found


def version_settings(version: str | None, transaction_version: int | None) -> dict[str, str]:
    """Return the settings for a version of Kafka and a level of `transaction.version`.

    Raises `ConfigError` for an unknown version, and for a level that the version does not have.
    """
    settings = {} if transaction_version is None else {"transaction.version": str(transaction_version)}
    if version is not None:
        settings["kafka.version"] = known_version(version)
        found = feature_levels(version).get("transaction.version")
        if transaction_version is not None and transaction_version > (found.highest if found else 0):
            has = f"has transaction.version up to {found.highest}" if found else "has no transaction.version"
            raise ConfigError(f"transaction_version={transaction_version}: Kafka {known_version(version)} {has}")
    return settings
