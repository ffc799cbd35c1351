"""What `eos-kafka doctor` examines, and what it reports."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_eos.options.client import ClientOptions
from spark_eos.sink.driver.preflight import PROBE

# Of the transactional id that the checks use.
TRIAL_TIMEOUT_MS: Final = 10_000


class Verdict(StrEnum):
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
    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """What is examined: the cluster, the names of a query, and the roles whose rights are checked."""

    options: ClientOptions
    prefix: str
    decision_topic: str
    topics: Sequence[str] = ()
    roles: Collection[str] = ("sink", "source")
    is_read_only: bool = False
    # Whether the query accepts a decision topic that deletes decisions.
    may_expire: bool = False

    @property
    def probe(self) -> str:
        """Return the transactional id and the group that the checks use."""
        return f"{self.prefix}.{PROBE}"
