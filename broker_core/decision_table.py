"""Decisions as tables of rows, checked for every case when the table is built.

Used wherever several facts together decide what is answered or done. Where one or two values decide alone, a plain
mapping from them is the simpler table.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Generic, NamedTuple, TypeVar

Verdict = TypeVar("Verdict")
# A value of each fact, or several in a tuple or a frozenset.
When = Mapping[str, Hashable]


class Row(NamedTuple, Generic[Verdict]):
    """The verdict for cases in which every fact in `when` has one of the listed values; other facts may vary."""

    rule: str
    when: When
    verdict: Verdict


def _is_listed(value: Hashable, listed: Hashable) -> bool:
    return value in listed if isinstance(listed, tuple | frozenset) else value == listed


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
        never = {values for when in impossible for values in self._values_in(when)}
        fitting: dict[tuple[Hashable, ...], list[Row[Verdict]]] = {
            values: [] for values in product(*facts.values()) if values not in never
        }
        for row in rows:
            for values in self._values_in(row.when):
                if values in fitting:
                    fitting[values].append(row)
        self._index = {values: self._deciding_row(values, found) for values, found in fitting.items()}
        deciding = {row.rule for row in self._index.values()}
        unused = [row.rule for row in rows if row.rule not in deciding]
        assert not unused, f"{name}: no case meets {unused}"

    def cases(self) -> Iterator[dict[str, Hashable]]:
        for values in self._index:
            yield self._case(values)

    def _case(self, values: tuple[Hashable, ...]) -> dict[str, Hashable]:
        return dict(zip(self.facts, values, strict=True))

    def _values_in(self, when: When) -> Iterator[tuple[Hashable, ...]]:
        """Yield the values of all facts for the cases in which every fact in `when` has one of the listed values."""
        assert when.keys() <= self.facts.keys(), f"{self.name}: {sorted(when.keys() - self.facts.keys())} are no facts"
        return product(
            *(
                [value for value in values if name not in when or _is_listed(value, when[name])]
                for name, values in self.facts.items()
            )
        )

    def _deciding_row(self, values: tuple[Hashable, ...], fitting: Sequence[Row[Verdict]]) -> Row[Verdict]:
        assert fitting, f"{self.name}: no row claims {self._case(values)}"
        assert self._ordered or len(fitting) == 1, (
            f"{self.name}: {[row.rule for row in fitting]} claim {self._case(values)}"
        )
        return fitting[0]

    def row(self, **case: Hashable) -> Row[Verdict]:
        return self._index[tuple(map(case.__getitem__, self.facts))]

    def resolve(self, **case: Hashable) -> Verdict:
        found = self._index.get(tuple(map(case.__getitem__, self.facts)))
        assert found is not None, f"{self.name}: {case} cannot come about"
        return found.verdict
