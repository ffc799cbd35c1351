"""Starts, stops and restores of one broker that several threads call: each waits for the others."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker_core import EmbeddedBroker, aio

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
