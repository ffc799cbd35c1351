"""Brokers of an embedded cluster stop and start, alone and together, and their partitions get other leaders."""

import asyncio
import os
from datetime import timedelta

import pytest

from broker_core import EmbeddedBroker
from broker_core.errors import ConfigError, KafkaError
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import TopicPartition


def test_explicit_leader_choice_is_kept_when_the_broker_returns():
    with EmbeddedBroker(listeners={}, brokers=3, topics={"in": 1}) as kafka:
        kafka.broker(1).stop()
        other = ({2, 3} - {kafka.leader(("in", 0))}).pop()
        kafka.move_leader(("in", 0), other)
        kafka.broker(1).start()
        assert kafka.leader(("in", 0)) == other


def test_stopped_broker_cannot_become_leader():
    with EmbeddedBroker(listeners={}, brokers=2, topics={"in": 2}) as kafka:
        kafka.broker(2).stop()
        with pytest.raises(KafkaError, match="BROKER_NOT_AVAILABLE"):
            kafka.move_leader(("in", 0), 2)
        with pytest.raises(ValueError, match="there is no broker 3; there are 1, 2"):
            kafka.broker(3)


def append_unsynced(cluster):
    log = cluster.logs.get(TopicPartition("in", 0), cluster.now_ms)
    log.append_as_leader(build_batch([NewRecord(None, b"lost")]), now_ms=cluster.now_ms, leader_epoch=0)


def test_crash_of_the_last_broker_crashes_the_cluster():
    with EmbeddedBroker(listeners={}, brokers=2, topics={"in": 1}) as kafka:
        kafka.broker(2).crash()
        kafka._call(append_unsynced)
        kafka.broker(1).crash()
        kafka.broker(2).start()
        assert (kafka.leader(("in", 0)), kafka.broker(1).is_running) == (2, False)
        assert kafka.partition("in", 0).log_end_offset == 0
        kafka.broker(1).start()
        assert kafka.leader(("in", 0)) == 1


def test_clean_restart_keeps_everything(tmp_path):
    with EmbeddedBroker(listeners={}, brokers=2, topics={"in": 1}, data_dir=tmp_path) as kafka:
        kafka._call(append_unsynced)
        kafka.restart()
        assert kafka.partition("in", 0).log_end_offset == 1


def test_close_with_stopped_brokers_leaves_no_resources():
    for how in ("stop", "crash"):
        held = len(os.listdir("/proc/self/fd"))
        with EmbeddedBroker(listeners={}, brokers=2) as kafka:
            for broker in (1, 2):
                getattr(kafka.broker(broker), how)()
        assert len(os.listdir("/proc/self/fd")) <= held


# Time


def test_real_clock_cannot_be_advanced_and_a_virtual_one_not_set_back():
    with EmbeddedBroker(listeners={}) as kafka, pytest.raises(RuntimeError, match='clock="virtual"'):
        _ = kafka.clock
    with (
        EmbeddedBroker(listeners={}, clock="virtual") as kafka,
        pytest.raises(ValueError, match="cannot be moved back"),
    ):
        kafka.clock.advance(-1)
    with pytest.raises(ConfigError, match="real, virtual"):
        EmbeddedBroker(listeners={}, clock="sundial")


@pytest.mark.parametrize(
    ("seconds", "error"),
    [("5", TypeError), (float("nan"), ValueError), (float("inf"), ValueError), (1e300, ValueError)],
)
def test_a_virtual_clock_advances_by_numbers_only(seconds, error):
    with EmbeddedBroker(listeners={}, clock="virtual") as kafka, pytest.raises(error, match=r"seconds.*expected "):
        kafka.clock.advance(seconds)


@pytest.mark.parametrize(
    ("duration", "moved_ms"),
    [
        ((1.5, {}), 1_500),
        ((0, {"minutes": 2}), 120_000),
        ((timedelta(days=1, milliseconds=3), {}), 86_400_003),
        ((timedelta(hours=2), {"hours": -1, "minutes": 0.5, "days": 1}), 90_030_000),
    ],
)
def test_a_virtual_clock_advances_by_the_sum_of_its_arguments(duration, moved_ms):
    (first, named) = duration
    with EmbeddedBroker(listeners={}, clock="virtual") as kafka:
        before_ms = kafka.clock.now_ms()
        kafka.clock.advance(first, **named)
        assert kafka.clock.now_ms() - before_ms == moved_ms


# Randomness, and the rest


def ids(seed):
    with EmbeddedBroker(listeners={}, topics={"in": 1}, seed=seed) as kafka:
        return kafka._call(lambda cluster: (cluster.metadata.cluster_id, str(cluster.metadata.topic("in").topic_id)))


def test_seed_makes_ids_repeatable():
    assert ids(7) == ids(7) != ids(8)
    assert ids(None) != ids(None)


def test_embedded_broker_is_usable_with_async_with():
    async def use():
        async with EmbeddedBroker(listeners={}, topics={"in": 1}) as kafka:
            return kafka.partition("in", 0).high_watermark

    assert asyncio.run(use()) == 0


def test_unknown_id_and_partition_are_reported():
    with EmbeddedBroker(listeners={}, topics={"in": 1}) as kafka:
        with pytest.raises(KeyError, match="'unknown'"):
            kafka.transaction("unknown")
        with pytest.raises(KafkaError, match="in-5"):
            kafka.partition("in", 5)
        with pytest.raises(AssertionError, match=r"condition not met within 0.01 s \(last value: 0\)"):
            kafka.wait_for(lambda: 0, timeout=0.01)
