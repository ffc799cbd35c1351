"""The differences between two answers, field by field."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.request_generator.cases import Case

_ABSENT = "<absent>"


@dataclass(frozen=True)
class Difference:
    """One field of one answer that differs; the path has no indexes."""

    case: Case
    path: str
    apache: Any
    ours: Any

    def __str__(self) -> str:
        where = f"{self.case.name}: {self.path or 'the answer'}"
        return f"{where} is {self.apache!r} on Apache Kafka, {self.ours!r} on broker_core"


def differences(case: Case, apache: Any, ours: Any, path: str = "") -> Iterator[Difference]:
    """Yield each field that differs."""
    if isinstance(apache, dict) and isinstance(ours, dict):
        for name in apache:
            yield from differences(case, apache[name], ours[name], f"{path}.{name}" if path else name)
    elif isinstance(apache, list) and isinstance(ours, list) and _are_structs(apache) and _are_structs(ours):
        if len(apache) == len(ours):
            for one, other in zip(apache, ours, strict=True):
                yield from differences(case, one, other, path)
        else:
            yield Difference(
                case, path, [each for each in apache if each not in ours], [each for each in ours if each not in apache]
            )
    elif apache != ours or type(apache) is not type(ours):
        yield Difference(case, path, apache, ours)


def _are_structs(items: list[Any]) -> bool:
    return all(isinstance(each, dict) for each in items)
