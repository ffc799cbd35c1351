"""`broker_core.aio`: twins for asyncio, with aiokafka as client."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import broker_core
from broker_core import aio
from broker_core.aio import EmbeddedBroker
from broker_core.testing import pausing

pytestmark = pytest.mark.aiokafka

DEADLINE_S = 60


def run(program: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await program

    return asyncio.run(limited())


def public(owner: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(owner) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["EmbeddedBroker", "BrokerHandle", "ClockHandle", "Group"])
def test_every_public_member_has_a_twin_with_the_same_arguments(name):
    blocking, twins = public(getattr(broker_core, name)), public(getattr(aio, name))
    assert twins.keys() - blocking.keys() <= {"around", "group_id"}
    assert blocking.keys() <= twins.keys()
    for each, member in blocking.items():
        assert isinstance(twins[each], property) is isinstance(member, property), each
        if not isinstance(member, property):
            assert list(inspect.signature(twins[each]).parameters) == list(inspect.signature(member).parameters), each


def test_the_constructor_has_the_same_arguments():
    assert inspect.signature(EmbeddedBroker.__init__) == inspect.signature(broker_core.EmbeddedBroker)


def test_brokers_clock_outages_and_snapshots():
    async def program() -> None:
        async with EmbeddedBroker(listeners={}, brokers=2, topics={"t": 2}, clock="virtual") as kafka:
            await kafka.produce("t", "kept", partition=0)
            snapshot = await kafka.snapshot()
            before = kafka.clock.now_ms()
            await kafka.clock.advance(60)
            assert kafka.clock.now_ms() - before == 60_000
            async with kafka.without_leader(("t", 0)):
                assert await kafka.leader(("t", 0)) == -1
            outage = await kafka.stale_broker(2)
            assert await kafka.leader(("t", 1)) == 1
            await outage.end()
            assert await kafka.leader(("t", 1)) == 2
            await kafka.broker(2).crash()
            assert not kafka.broker(2).is_running
            await kafka.restart()
            assert kafka.broker(2).is_running
            await kafka.crash()
            with pytest.raises(RuntimeError, match="crashed"):
                await kafka.records("t")
            await kafka.restart()
            await kafka.produce("t", "lost", partition=0)
            await kafka.restore(snapshot)
            assert (await kafka.records("t")).values == [b"kept"]
            with pytest.raises(broker_core.KafkaError):
                await kafka.create_topic("t")
            with kafka.fault(api="Produce", action=broker_core.Error("NOT_LEADER_OR_FOLLOWER"), times=1) as fault:
                assert fault.hits == 0

    run(program())


def test_conditions_may_be_coroutines():
    async def program() -> None:
        async with EmbeddedBroker(listeners={}) as kafka:

            async def count() -> int:
                return len(await kafka.topics)

            task = asyncio.create_task(kafka.wait_for(count, DEADLINE_S))
            await kafka.create_topic("t")
            assert await task == 1
            assert await kafka.wait_for(lambda: "now") == "now"
            with pytest.raises(AssertionError, match="last value: 0"):
                await kafka.wait_for(lambda: 0, timeout=0)

    run(program())


def waiting_threads() -> list[threading.Thread]:
    """Return the threads that are inside of a call that waits; a client that another test has left pauses, too."""
    frames = sys._current_frames()

    def is_waiting(thread: threading.Thread) -> bool:
        frame = frames.get(thread.ident or 0)
        while frame is not None:
            if frame.f_code is pausing.pause.__code__:
                return True
            frame = frame.f_back
        return False

    return [each for each in threading.enumerate() if is_waiting(each)]


@pytest.mark.parametrize("what", ["records", "group"])
def test_a_cancelled_wait_ends_and_leaves_nothing_behind(what):
    async def program() -> None:
        async with EmbeddedBroker(listeners={}, topics={"t": 1}) as kafka:
            forever = 10 * DEADLINE_S
            wait = kafka.wait_for_records("t", 1, timeout=forever)
            if what == "group":
                wait.close()
                wait = kafka.group("g").wait_stable(timeout=forever)
            task = asyncio.create_task(wait)
            await kafka.wait_for(lambda: waiting_threads(), DEADLINE_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert waiting_threads() == []
            await kafka.produce("t", "still works")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(kafka.wait_for_records("t", 9, timeout=forever), 0.05)
            assert waiting_threads() == []

    run(program())


def test_many_waiting_calls_leave_a_thread_for_the_one_they_wait_for():
    async def program() -> None:
        async with EmbeddedBroker(listeners={}, topics={"t": 1}) as kafka:
            waits = [asyncio.create_task(kafka.wait_for_records("t", 1, timeout=DEADLINE_S)) for _ in range(50)]
            await asyncio.sleep(0)
            await kafka.produce("t", "x")
            assert {len(each) for each in await asyncio.gather(*waits)} == {1}

    run(program())


@pytest.mark.parametrize("transactional", [True, "one-id"])
def test_transactions_of_one_id_may_be_written_at_the_same_time(transactional):
    async def main():
        async with aio.EmbeddedBroker(listeners={}) as kafka:
            await asyncio.gather(*(kafka.produce("in", str(n), transactional=transactional) for n in range(20)))
            return await kafka.records("in", isolation="read_committed")

    assert sorted(map(int, asyncio.run(main()).values)) == list(range(20))


def test_the_loop_goes_on_while_a_call_waits():
    async def program() -> None:
        async with EmbeddedBroker(listeners={}, topics={"t": 1}) as kafka:
            steps = 0
            task = asyncio.create_task(kafka.wait_for_records("t", 1, timeout=DEADLINE_S))
            while steps < 100:
                await asyncio.sleep(0)
                steps += 1
            assert not task.done()
            await kafka.produce("t", "x")
            await task

    run(program())


def test_threads_end_with_the_broker():
    async def program() -> EmbeddedBroker:
        async with EmbeddedBroker(listeners={}) as kafka:
            await kafka.topics
        return kafka

    others = set(threading.enumerate())
    # The threads would end with the object, too.
    closed = run(program())
    assert isinstance(closed, EmbeddedBroker)
    broker_core.EmbeddedBroker.wait_for(
        lambda: not any(each.name.startswith("embedded-broker") for each in {*threading.enumerate()} - others),
        DEADLINE_S,
    )


def test_what_a_cancelled_task_has_begun_ends():
    async def cancelled_in(begun: Any) -> None:
        async def use() -> None:
            async with begun:
                raise AssertionError("the task was cancelled before")

        task = asyncio.create_task(use())
        # One step, in which the call gets its thread.
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def program() -> None:
        async with EmbeddedBroker(listeners={}, topics={"t": 1}) as kafka:
            await cancelled_in(kafka.without_leader(("t", 0)))
            assert await kafka.leader(("t", 0)) == 1

    run(program())


def test_a_closed_broker_may_be_closed_again_and_says_so():
    async def program() -> None:
        async with EmbeddedBroker(listeners={}) as kafka:
            await kafka.close()
            await kafka.close()
            with pytest.raises(RuntimeError, match="the broker is not running"):
                await kafka.topics

    run(program())
