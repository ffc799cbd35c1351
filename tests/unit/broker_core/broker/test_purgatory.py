"""Waiting requests are tried when their partition moves and answered at their deadline, once."""

from broker_core.broker.purgatory import Purgatory, Waiting
from broker_core.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Request:
    def __init__(self, purgatory, keys, deadline_ms):
        self.events = []
        self.ready = False
        purgatory.wait(Waiting(keys, deadline_ms, self.attempt, lambda now_ms: self.events.append(("expired", now_ms))))

    def attempt(self, now_ms):
        self.events.append(("tried", now_ms))
        return self.ready


def test_only_requests_for_the_moved_partition_are_retried():
    purgatory = Purgatory()
    one, other = Request(purgatory, [A], 100), Request(purgatory, [B], 100)
    purgatory.wake({A}, 5)
    assert (one.events, other.events) == ([("tried", 5)], [])


def test_completed_request_is_neither_retried_nor_expired():
    purgatory = Purgatory()
    request = Request(purgatory, [A, B], 100)
    request.ready = True
    purgatory.wake({A, B}, 5)
    purgatory.wake({B}, 6)
    purgatory.advance(200)
    assert request.events == [("tried", 5)]
    assert purgatory.next_deadline_ms() is None


def test_timers_fire_in_order_of_time():
    purgatory = Purgatory()
    fired = []
    for time_ms in (30, 10, 20):
        purgatory.at(time_ms, lambda now_ms, t=time_ms: fired.append((t, now_ms)))
    purgatory.advance(25)
    assert fired == [(10, 25), (20, 25)]


def test_expired_request_may_be_delayed_again():
    purgatory = Purgatory()
    fired = []

    def again(now_ms):
        fired.append(now_ms)
        if len(fired) < 3:
            purgatory.at(now_ms + 10, again)

    purgatory.at(10, again)
    for now_ms in (10, 20, 30, 40):
        purgatory.advance(now_ms)
    assert fired == [10, 20, 30]
