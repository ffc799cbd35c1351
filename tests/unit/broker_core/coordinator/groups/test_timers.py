"""Deadlines expire in order, once, and not after they were moved or canceled."""

from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.timers import TimerKey, TimerKind, Timers

KEYS = [TimerKey(TimerKind.MEMBER, "g", str(n)) for n in range(4)]


OPERATIONS = st.lists(st.tuples(st.sampled_from(["set", "cancel", "pass"]), st.sampled_from(KEYS), st.integers(0, 50)))


@given(OPERATIONS)
def test_timers_match_a_dictionary_model(operations: list[tuple[str, TimerKey, int]]):
    timers, model = Timers(), {}
    for name, key, number in operations:
        if name == "set":
            timers.schedule(key, number)
            model[key] = number
        elif name == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            taken = []
            while (due := timers.take_due(number)) is not None:
                taken.append(model.pop(due))
            assert taken == sorted(taken)
            assert all(deadline > number for deadline in model.values())
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        assert {key: timers.deadline_ms(key) for key in KEYS} == {key: model.get(key) for key in KEYS}
