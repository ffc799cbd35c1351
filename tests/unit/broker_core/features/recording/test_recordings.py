"""The begin and the end of recordings of brokers without a port."""

import asyncio

import pytest

from broker_core import EmbeddedBroker, aio

# Nothing here needs a port.
pytestmark = pytest.mark.kafka(listeners={})

DEADLINE_S = 60


def test_recording_after_a_crash_names_restart(kafka: EmbeddedBroker, tmp_path):
    kafka.crash()
    with pytest.raises(RuntimeError, match=r"restart\(\)"):
        kafka.recording(tmp_path / "recording")
    assert not (tmp_path / "recording").exists()


def test_recording_that_a_cancelled_task_has_begun_ends(tmp_path):
    async def program() -> None:
        async with asyncio.timeout(DEADLINE_S), aio.EmbeddedBroker(listeners={}) as kafka:

            async def use() -> None:
                async with kafka.recording(tmp_path / "one"):
                    raise AssertionError("the task was cancelled before")

            task = asyncio.create_task(use())
            # One step, in which the call gets its thread.
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with kafka.recording(tmp_path / "two"):
                pass

    asyncio.run(program())
