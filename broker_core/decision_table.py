"""Decisions as tables of rows, checked for every case when the table is built.

Used wherever several facts together decide what is answered or done. Where one or two values decide alone, a plain
mapping from them is the simpler table.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Generic, NamedTuple, TypeVar

Verdict = TypeVar("Verdict")
When = Mapping[str, Collection[Hashable]]


class Row(NamedTuple, Generic[Verdict]):
    """The verdict for cases in which every fact in `when` has one of the listed values; other facts may vary."""

    rule: str
    when: When
    verdict: Verdict

    def fits(self, case: Mapping[str, Hashable]) -> bool:
        """Return whether the row applies to the case."""
        return all(case[name] in values for name, values in self.when.items())


class Table(Generic[Verdict]):
    """A decision table over all combinations of `facts`; `impossible` lists the combinations that do not occur.

    Exactly one row has to fit each case, so that no row depends on its place. In an `ordered` table several may, and
    the first one decides: for rules that Kafka itself evaluates one after the other. Either way a case without a row,
    or a row without a case, is found when the table is built and not when a client meets it.
    """

    def __init__(
        self,
        name: str,
        facts: Mapping[str, Sequence[Hashable]],
        rows: Sequence[Row[Verdict]],
        impossible: Sequence[When] = (),
        *,
        ordered: bool = False,
    ) -> None:
        self.name = name
        self.facts = facts
        self.rows = rows
        self._ordered = ordered
        self._never = [Row("impossible", when, None) for when in impossible]
        self._index = {tuple(case.values()): self._deciding_row(case) for case in self.cases()}
        deciding = {row.rule for row in self._index.values()}
        unused = [row.rule for row in rows if row.rule not in deciding]
        assert not unused, f"{name}: no case meets {unused}"

    def cases(self) -> Iterator[dict[str, Hashable]]:
        """Yield every possible combination of facts."""
        for values in product(*self.facts.values()):
            case = dict(zip(self.facts, values, strict=True))
            if not any(row.fits(case) for row in self._never):
                yield case

    def _deciding_row(self, case: Mapping[str, Hashable]) -> Row[Verdict]:
        fitting = [row for row in self.rows if row.fits(case)]
        assert fitting, f"{self.name}: no row claims {dict(case)}"
        assert self._ordered or len(fitting) == 1, f"{self.name}: {[row.rule for row in fitting]} claim {dict(case)}"
        return fitting[0]

    def row(self, **case: Hashable) -> Row[Verdict]:
        """Return the row that decides the case."""
        found = self._index.get(tuple(case[name] for name in self.facts))
        assert found is not None, f"{self.name}: {case} cannot come about"
        return found

    def resolve(self, **case: Hashable) -> Verdict:
        """Return the verdict of the row that decides the case."""
        return self.row(**case).verdict
