"""The lines of the report of `eos-kafka doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class CheckResult(StrEnum):
    """The result of one check."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    verdict: CheckResult
    found: str
    remedy: str = ""
