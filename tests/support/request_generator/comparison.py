"""The differences between two answers to a generated request."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from broker_core.features.recording.replay import differing_fields
from tests.support.request_generator.cases import Case


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


def differences(case: Case, apache: Any, ours: Any) -> Iterator[Difference]:
    """Yield each field that differs."""
    for path, there, here in differing_fields(apache, ours):
        yield Difference(case, path, there, here)
