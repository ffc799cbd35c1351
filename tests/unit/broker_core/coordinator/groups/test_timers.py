"""Deadlines expire in order, once, and not after they were moved or canceled."""

from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.timers import TimerKey, TimerKind, Timers

KEYS = [TimerKey(TimerKind.MEMBER, "g", str(n)) for n in range(4)]


def test_earliest_timer_fires_first_and_only_when_due():
    timers = Timers()
    timers.schedule(KEYS[0], 20)
    timers.schedule(KEYS[1], 10)
    assert timers.next_deadline_ms() == 10
    assert timers.take_due(9) is None
    assert [timers.take_due(20) for _ in range(3)] == [KEYS[1], KEYS[0], None]
    assert timers.next_deadline_ms() is None


def test_deadline_may_be_moved_forward_and_back():
    timers = Timers()
    timers.schedule(KEYS[0], 10)
    timers.schedule(KEYS[0], 30)
    assert timers.take_due(29) is None
    assert timers.next_deadline_ms() == 30
    timers.schedule(KEYS[0], 5)
    assert timers.next_deadline_ms() == 5
    assert [timers.take_due(99), timers.take_due(99)] == [KEYS[0], None]


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
