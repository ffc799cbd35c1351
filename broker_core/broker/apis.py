"""The served APIs, which handlers and features declare; no other API is advertised or decoded."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, cast

from broker_core.broker.api import Api
from broker_core.broker.handlers import (
    administration,
    configs,
    consumer_groups,
    fetch,
    groups,
    log_queries,
    metadata,
    offsets,
    produce,
    security,
    topics,
    transactions,
)
from broker_core.broker.request_log import nameable
from broker_core.installed import parts
from broker_core.types import check_text
from broker_core.wire.api_names import ApiName
from broker_core.wire.kafka_versions import limited
from broker_core.wire.served import ServedApi

_MODULES: Final = (
    configs,
    consumer_groups,
    fetch,
    groups,
    log_queries,
    metadata,
    offsets,
    produce,
    administration,
    security,
    topics,
    transactions,
    *parts("apis"),
)
APIS: Final[Mapping[str, Api]] = {each.served.name: each for module in _MODULES for each in module.APIS}
SERVED: Final[dict[int, ServedApi]] = {
    each.served.key: each.served for each in sorted(APIS.values(), key=lambda each: each.served.key)
}


def served_apis(version: str) -> Mapping[int, ServedApi]:
    """Return the APIs that a broker of a version of Kafka serves, by key; all for an empty version."""
    return limited(SERVED, version) if version else SERVED


def check_api(name: str) -> ApiName:
    """Return the name of a served API; raise ValueError, with the most similar name, for any other."""
    check_text("api", name)
    if name not in APIS:
        near = get_close_matches(name, APIS, n=1)
        guess = f"did you mean {near[0]!r}? There are" if near else "there are"
        raise ValueError(f"api={name!r} is not served; {guess} {', '.join(sorted(APIS))}")
    return cast(ApiName, name)


def check_criteria(served: Mapping[int, ServedApi], api: str | None, wanted: Mapping[str, object]) -> None:
    """Raise ValueError, with what is possible, if no request of a served API can match the criteria of a fault."""
    apis = [each for each in served.values() if api in (None, each.name)]
    if not apis:
        raise ValueError(f"api={api!r} is not served by a broker of this version of Kafka")
    version = wanted.get("version")
    found = [
        nameable(each.request, v)
        for each in apis
        for v in range(each.min_version, each.max_version + 1)
        if version in (None, v)
    ]
    if not found:
        first, last = min(each.min_version for each in apis), max(each.max_version for each in apis)
        raise ValueError(f"version={version}: {api or 'any API'} is served in versions {first} to {last}")
    about = wanted.keys() & {"topic", "partition", "group", "transactional_id"}
    if not any(about <= each for each in found):
        names = ", ".join(sorted(frozenset().union(*found))) or "none of these"
        which = f"{api or 'served'} request" + ("" if version is None else f" of version {version}")
        raise ValueError(f"no {which} names {' and '.join(sorted(about))}; possible are {names}")
