"""What the members of a group chose, counted: a join then costs nothing for each member that is already there."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

ChoiceT = TypeVar("ChoiceT", bound=Hashable)


@dataclass
class Choices(Generic[ChoiceT]):
    """The choice of each member, and how many members made each one."""

    _by_member: dict[str, ChoiceT] = field(default_factory=dict)
    # The object that stands for all equal ones, with their number: identity is faster to compare than content.
    _made: dict[ChoiceT, tuple[ChoiceT, int]] = field(default_factory=dict)

    def copy(self) -> "Choices[ChoiceT]":
        return Choices(dict(self._by_member), dict(self._made))

    def put(self, member_id: str, choice: ChoiceT | None) -> None:
        """Set the choice of a member; None means that it has none."""
        before = self._by_member.pop(member_id, None)
        if choice is not None:
            choice, count = self._made.get(choice, (choice, 0))
            self._made[choice] = (choice, count + 1)
            self._by_member[member_id] = choice
        if before is not None:
            count = self._made[before][1] - 1
            if count:
                self._made[before] = (before, count)
            else:
                del self._made[before]

    @property
    def by_member(self) -> Mapping[str, ChoiceT]:
        return self._by_member

    @property
    def made(self) -> Collection[ChoiceT]:
        return self._made.keys()

    def count(self, choice: ChoiceT) -> int:
        return self._made[choice][1] if choice in self._made else 0
