"""Starts, stops and restores of one broker that several threads call: each waits for the others."""

import asyncio
import gc
import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker_core import EmbeddedBroker, aio
from broker_core.server.thread import ServerThread

# Nothing here needs a port.
pytestmark = pytest.mark.kafka(listeners={})

ROUNDS = 10
CALLS: dict[str, Callable[[EmbeddedBroker], object]] = {
    "restart": EmbeddedBroker.restart,
    "crash": EmbeddedBroker.crash,
    "start one": lambda kafka: kafka.broker(1).start(),
    "stop one": lambda kafka: kafka.broker(2).stop(),
    "crash one": lambda kafka: kafka.broker(1).crash(),
    "snapshot": EmbeddedBroker.snapshot,
    "restore": lambda kafka: kafka.restore(kafka.snapshot()),
}


@pytest.mark.parametrize(
    "pair", [*(("restart", each) for each in CALLS), ("crash", "snapshot"), ("crash", "restore")], ids=" and ".join
)
@pytest.mark.kafka(listeners={}, brokers=2, topics={"in": 1})
def test_calls_of_two_threads_wait_for_each_other(kafka, pair):
    kafka.produce("in", ["kept"])
    begin = threading.Barrier(len(pair))

    def repeat(call: Callable[[EmbeddedBroker], object]) -> set[str]:
        refusals = set()
        for _ in range(ROUNDS):
            begin.wait()
            try:
                call(kafka)
            except RuntimeError as error:
                refusals.add(str(error))
            except BaseException:
                # Otherwise the other thread would wait for this one.
                begin.abort()
                raise
        return refusals

    with ThreadPoolExecutor(len(pair)) as threads:
        refusals = set().union(*threads.map(repeat, [CALLS[name] for name in pair]))
    assert refusals <= ({"all brokers have crashed: `restart()` starts them again"} if "crash" in pair else set())
    for broker_id in kafka.broker_ids:
        kafka.broker(broker_id).start()
    assert kafka.records("in").values == [b"kept"]


def test_calls_of_two_tasks_wait_for_each_other():
    async def program() -> list[bytes | None]:
        async with aio.EmbeddedBroker(listeners={}, topics={"in": 1}) as kafka:
            await kafka.produce("in", "kept")
            snapshot = await kafka.snapshot()
            for _ in range(ROUNDS):
                await asyncio.gather(kafka.restart(), kafka.restore(snapshot), kafka.restart(), kafka.snapshot())
            return (await kafka.records("in")).values

    assert asyncio.run(program()) == [b"kept"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_loop_of_the_programs_policy_is_not_used():
    class Foreign(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self):
            raise AssertionError("such as uvloop's")

    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Foreign())
    try:
        with EmbeddedBroker(listeners={}, topics={"in": 1}) as kafka:
            assert kafka.topics == {"in": 1}
    finally:
        asyncio.set_event_loop_policy(before)


def test_time_that_a_test_freezes_is_not_the_brokers(monkeypatch):
    """Libraries such as freezegun replace the functions of `time`; Kafka and clients in C go on."""
    before_ms = time.time_ns() // 1_000_000
    with monkeypatch.context() as frozen:
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
            frozen.setattr(time, name, lambda: 1)
        with EmbeddedBroker(listeners={}) as kafka:
            assert kafka.produce("in", "one")[0].timestamp_ms >= before_ms
            with pytest.raises(AssertionError, match="condition not met within 0.01 s"):
                kafka.wait_for(lambda: False, timeout=0.01)
            with pytest.raises(TimeoutError):
                kafka._thread.wait_for(lambda _server: asyncio.wait_for(asyncio.Event().wait(), 0.01))


# asyncio cannot take back a loop that is half made.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_start_without_a_free_descriptor_fails_at_once():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kafka = EmbeddedBroker(listeners={})
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            kafka.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.collect()
    with kafka:
        assert kafka.topics == {}


def test_several_threads_close_a_broker():
    with ThreadPoolExecutor(4) as threads:
        for _ in range(2 * ROUNDS):
            kafka = EmbeddedBroker(listeners={}).start()
            for closed in [threads.submit(kafka.close) for _ in range(4)]:
                closed.result()


@pytest.mark.kafka(listeners={}, topics={"in": 1})
@pytest.mark.parametrize(
    "call",
    [EmbeddedBroker.restart, EmbeddedBroker.close, lambda kafka: kafka.broker(1).start()],
    ids=["restart", "close", "start"],
)
def test_call_that_would_wait_for_its_own_thread_is_refused(kafka, call):
    with pytest.raises(RuntimeError, match="the function of a fault cannot do this"):
        # The function of a fault runs like this.
        kafka._thread.act(lambda _server: call(kafka))
    assert kafka.broker(1).is_running
    assert kafka.topics == {"in": 1}


@pytest.mark.kafka(listeners={}, clock="virtual", topics={"in": 1})
@pytest.mark.parametrize(
    "call",
    [
        EmbeddedBroker.snapshot,
        lambda kafka: kafka.metrics,
        lambda kafka: kafka.topics,
        lambda kafka: kafka.clock.advance(1),
        lambda kafka: kafka.produce("in", "value"),
    ],
    ids=["snapshot", "metrics", "topics", "advance", "produce"],
)
def test_calls_after_a_crash_name_restart(kafka, call):
    kafka.crash()
    with pytest.raises(RuntimeError, match=r"all brokers have crashed: `restart\(\)` starts them again"):
        call(kafka)


def test_close_ends_the_calls_that_wait():
    kafka = EmbeddedBroker(listeners={}).start()
    begun = threading.Event()

    async def wait(_server: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(kafka._thread.wait_for, wait)
        assert begun.wait(60)
        kafka.close()
        with pytest.raises(RuntimeError, match="the broker was closed during the call"):
            waiting.result()


@pytest.mark.filterwarnings("ignore:coroutine 'ServerThread.wait_for.<locals>.done' was never awaited:RuntimeWarning")
def test_call_that_comes_too_late_ends():
    """The loop takes it, and ends before its next turn."""
    kafka = EmbeddedBroker(listeners={}).start()
    thread = kafka._thread
    loop, ended = thread._loop, asyncio.new_event_loop()
    call_soon = ended.call_soon_threadsafe

    def end_soon(*arguments: object) -> None:
        call_soon(*arguments)
        ended.close()

    ended.call_soon_threadsafe = end_soon
    thread._loop = ended
    try:
        with pytest.raises(RuntimeError, match="the broker was closed during the call"):
            assert kafka.topics
    finally:
        thread._loop = loop
        kafka.close()


def test_start_that_takes_too_long_ends(tmp_path):
    given_up = threading.Event()

    class Impatient(ServerThread):
        def _give_up(self, started):
            super()._give_up(started)
            given_up.set()

    kafka = EmbeddedBroker(listeners={}, data_dir=tmp_path)
    kafka._thread = Impatient(kafka._make, lambda _server: given_up.wait(60), kafka._after.close, patience_s=0)
    with pytest.raises(TimeoutError, match="the broker has not started within 0 s"):
        kafka.start()
    with EmbeddedBroker(listeners={}, data_dir=tmp_path) as again:
        assert again.topics == {}
