"""The features that are installed: the packages in `broker_core/features`.

The core finds them here and imports none by its name, so a feature is removed by deleting its folder. A feature joins
the core by modules whose names the core looks for, as `broker_core/features/__init__.py` lists them. A program
that is bundled into one file needs `broker_core.features` with all of its modules named to the bundler.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Final, Protocol, TypeVar, cast

_PACKAGE: Final = "broker_core.features"

StateT = TypeVar("StateT")


class States(dict[type, object]):
    """What features keep in an object of the core: one object of each class, made when it is first asked for."""

    def of(self, kind: type[StateT]) -> StateT:
        if kind not in self:
            self[kind] = kind()
        return cast(StateT, self[kind])


class Service(Protocol):
    """A server beside the broker: its address, and its end."""

    url: str

    def close(self) -> None: ...


@cache
def parts(name: str) -> tuple[ModuleType, ...]:
    """Import and return the modules of this name, sorted by the name of their feature."""
    package = find_spec(_PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    features = sorted(f"{_PACKAGE}.{found.name}" for found in iter_modules(places or []) if found.ispkg)
    found = [f"{feature}.{name}" for feature in features if find_spec(f"{feature}.{name}") is not None]
    return tuple(map(import_module, found))


def part(feature: str, name: str) -> ModuleType:
    """Import and return a module of a feature; raise RuntimeError if the feature is not installed."""
    try:
        return import_module(f"{_PACKAGE}.{feature}.{name}")
    except ModuleNotFoundError as error:
        if error.name not in (_PACKAGE, f"{_PACKAGE}.{feature}"):
            raise
        raise RuntimeError(
            f"this broker_core has no feature {feature!r}: the folder broker_core/features/{feature} is missing; "
            "install the whole package"
        ) from None
