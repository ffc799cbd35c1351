"""Resolve a decision from a table of rows, of which exactly one fits each case.

A rule that two rows claim, or none, is found when the table is built and not when a client meets it.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Generic, NamedTuple, TypeVar

Verdict = TypeVar("Verdict")
When = Mapping[str, Collection[Hashable]]


class Row(NamedTuple, Generic[Verdict]):
    """Give the verdict where every fact named in `when` has one of the values listed; others are free."""

    rule: str
    when: When
    verdict: Verdict

    def fits(self, case: Mapping[str, Hashable]) -> bool:
        """Say whether the row speaks about the case."""
        return all(case[name] in values for name, values in self.when.items())


class Table(Generic[Verdict]):
    """Hold the rows over all combinations of `facts`; `impossible` names those that cannot come about."""

    def __init__(
        self,
        name: str,
        facts: Mapping[str, Sequence[Hashable]],
        rows: Sequence[Row[Verdict]],
        impossible: Sequence[When] = (),
    ) -> None:
        self.name = name
        self.facts = facts
        self.rows = rows
        self._never = [Row("impossible", when, None) for when in impossible]
        self._index = {tuple(case.values()): self._only_row(case) for case in self.cases()}
        spoken = {row.rule for row in self._index.values()}
        silent = [row.rule for row in rows if row.rule not in spoken]
        assert not silent, f"{name}: no case meets {silent}"

    def cases(self) -> Iterator[dict[str, Hashable]]:
        """Yield every combination of facts that can come about."""
        for values in product(*self.facts.values()):
            case = dict(zip(self.facts, values, strict=True))
            if not any(row.fits(case) for row in self._never):
                yield case

    def _only_row(self, case: Mapping[str, Hashable]) -> Row[Verdict]:
        fitting = [row for row in self.rows if row.fits(case)]
        assert len(fitting) == 1, f"{self.name}: {[row.rule for row in fitting]} claim {dict(case)}"
        return fitting[0]

    def row(self, **case: Hashable) -> Row[Verdict]:
        """Return the one row that fits the case."""
        found = self._index.get(tuple(case[name] for name in self.facts))
        assert found is not None, f"{self.name}: {case} cannot come about"
        return found

    def resolve(self, **case: Hashable) -> Verdict:
        """Return the verdict of the one row that fits the case."""
        return self.row(**case).verdict
