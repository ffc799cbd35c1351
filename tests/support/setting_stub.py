"""The stub of `broker_core.settings.served`, whose classes are made from the catalog.

`python -m tests.support.reference` writes it.
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final, cast

from broker_core.settings import served

STUB: Final = Path("broker_core", "settings", "served.pyi")
_BASES: Final = {"TopicFields": "Settings", "ListenerConfig": "Settings", "BrokerFields": "ListenerConfig"}


def setting_stub() -> str:
    """Return the text of the stub."""
    head = (
        "# Written by `python -m tests.support.reference`.\n"
        "from dataclasses import dataclass\n\nfrom broker_core.settings.fields import Settings\n"
    )
    return head + "".join(f"\n{line}\n" for name in _BASES for line in _class(name))


def _class(name: str) -> Iterator[str]:
    of_base = getattr(getattr(served, _BASES[name], None), "__dataclass_fields__", {})
    own = [
        f"    {each.name}: {cast(type, each.type).__name__} = ..."
        for each in fields(getattr(served, name))
        if each.name not in of_base
    ]
    yield "\n".join([f"@dataclass(frozen=True, slots=True)\nclass {name}({_BASES[name]}):", *own])
