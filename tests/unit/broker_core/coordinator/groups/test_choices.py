"""The counted choices of a group's members are those that a count from the beginning finds."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.groups.choices import Choices
from tests.support.examples import examples

steps = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, (), ("t",), ("t", "u")])))


@examples(50)
@given(steps, steps)
def test_choices_are_counted(earlier, later):
    choices, last = Choices[tuple[str, ...]](), {}
    for member_id, choice in earlier:
        choices.put(member_id, choice)
        last[member_id] = choice
    copied, expected = choices.copy(), {name: choice for name, choice in last.items() if choice is not None}
    for member_id, choice in later:
        choices.put(member_id, choice)
        last[member_id] = choice
    for found, made in ((copied, expected), (choices, {name: each for name, each in last.items() if each is not None})):
        assert found.by_member == made
        counted = Counter(made.values())
        assert {choice: found.count(choice) for choice in found.made} == counted
        assert found.count(("never",)) == 0
