"""An operator's intervention in a decision: in the decision itself, and in an audit record that is kept.

The decision contains the last intervention, because a restarted query has to act on it. The audit record is written in
the same transaction under a separate key, so that compaction keeps every one of them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

AUDIT_VERSION: Final = 1


class OperatorAction(StrEnum):
    """What an operator can do about a decision."""

    COMPLETE = "complete"
    ABORT = "abort"


class Restart(StrEnum):
    """What a restarted query does with an abandoned micro-batch: write all of it again, or never."""

    REWRITE = "rewrite"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Intervention:
    """Who intervened, when and why; `restart` is None unless the decision was abandoned."""

    action: OperatorAction
    by: str
    at_ms: int
    reason: str = ""
    restart: Restart | None = None

    @property
    def abandons(self) -> bool:
        return self.action is OperatorAction.ABORT

    @property
    def skips(self) -> bool:
        """Return whether the micro-batch is closed as it is."""
        return self.abandons and self.restart is Restart.SKIP


def intervention_document(intervention: Intervention | None) -> dict[str, Any] | None:
    return None if intervention is None else asdict(intervention)


def read_intervention(document: Mapping[str, Any] | None) -> Intervention | None:
    """Decode what `intervention_document` encoded; raise `KeyError` or `ValueError` for anything else."""
    if document is None:
        return None
    restart = document["restart"]
    return Intervention(
        action=OperatorAction(document["action"]),
        by=str(document["by"]),
        at_ms=int(document["at_ms"]),
        reason=str(document["reason"]),
        restart=None if restart is None else Restart(restart),
    )
