"""`broker_core.aio`: twins for asyncio, with aiokafka as client."""

import asyncio
import doctest
import subprocess
import sys
import threading
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import broker_core
from broker_core import aio
from broker_core.aio import EmbeddedBroker
from broker_core.wire import messages as m
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.aiokafka

DEADLINE_S = 60


def run(program: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await program

    return asyncio.run(limited())


def test_records_groups_and_state_with_aiokafka():
    async def program() -> None:
        async with EmbeddedBroker(topics={"orders": 1}) as kafka:
            arrived = asyncio.create_task(kafka.wait_for_records("orders", 2))
            async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"one")
            await kafka.produce("orders", "two")
            assert (await arrived).values == [b"one", b"two"]
            consumer = AIOKafkaConsumer(
                "orders", bootstrap_servers=kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
            )
            async with consumer:
                stable = asyncio.create_task(kafka.group("g").wait_stable(1, timeout=DEADLINE_S))
                assert [(await consumer.getone()).value for _ in range(2)] == [b"one", b"two"]
                assert len((await stable).members) == 1
                await consumer.commit()
                await kafka.group("g").wait_caught_up()
            group = kafka.group("g")
            assert (group.group_id, await group.committed) == ("g", {("orders", 0): 2})
            assert (await kafka.topics, await kafka.groups) == ({"orders": 1}, ["g"])
            assert {each.api for each in await kafka.requests()} > {"Produce", "Fetch"}
            assert (await kafka.metrics) is not None

    run(program())


def ask_and_lose_the_connection(kafka: EmbeddedBroker) -> None:
    with RawClient(kafka.bootstrap_servers) as client:
        client.post(m.MetadataRequest(topics=[]), 9)
        assert client.is_closed_by_peer()


def test_close_raises_what_a_function_raised_and_ends_the_threads():
    async def program() -> None:
        kafka = await EmbeddedBroker().start()
        kafka.fault(api="Metadata", action=lambda _: next(iter(())))
        await asyncio.to_thread(ask_and_lose_the_connection, kafka)
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await kafka.close()
        assert kafka._threads._executor is None

    run(program())


@pytest.mark.parametrize("kind", [EmbeddedBroker, broker_core.EmbeddedBroker])
def test_block_ends_with_its_own_error_before_that_of_a_function(kind):
    async def program() -> None:
        async with kind() as kafka:
            kafka.fault(api="Metadata", action=lambda _: pytest.fail("not expected"))
            await asyncio.to_thread(ask_and_lose_the_connection, kafka)
            raise KeyError

    with pytest.raises(KeyError) as raised:
        run(program())
    [note] = raised.value.__notes__
    assert "not expected" in note


def test_the_examples_of_the_docstrings_run():
    result = doctest.testmod(aio)
    assert result.attempted > 0
    assert result.failed == 0


def broker_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "embedded-broker"}


@pytest.mark.parametrize("kind", [EmbeddedBroker, broker_core.EmbeddedBroker])
def test_a_cancelled_start_leaves_no_broker(kind):
    async def use() -> None:
        async with kind():
            raise AssertionError("the task was cancelled before")

    async def program() -> None:
        task = asyncio.create_task(use())
        while broker_threads() <= others:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert broker_threads() <= others

    # The brokers of fixtures for the whole run.
    others = broker_threads()
    run(program())


ANYIO = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_it(async_kafka):
    await async_kafka.produce("t", "x")
    assert (await async_kafka.wait_for_records("t", 1)).values == [b"x"]
"""
PYTEST_ASYNCIO = """
import pytest
import pytest_asyncio
from broker_core.aio import EmbeddedBroker

@pytest_asyncio.fixture
async def own():
    async with EmbeddedBroker() as kafka:
        yield kafka

@pytest.mark.asyncio
async def test_it(own, async_kafka):
    for kafka in (own, async_kafka):
        await kafka.produce("t", "x")
        assert (await kafka.wait_for_records("t", 1)).values == [b"x"]
"""


@pytest.mark.parametrize(("library", "content"), [("anyio", ANYIO), ("pytest_asyncio", PYTEST_ASYNCIO)])
def test_fixtures_work_with_both_plugins(tmp_path, library, content):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    (tmp_path / "test_it.py").write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
