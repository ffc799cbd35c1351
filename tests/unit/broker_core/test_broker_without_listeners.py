"""A broker without listeners: no port is opened, and the methods of `EmbeddedBroker` need none."""

import asyncio
import re

import pytest

from broker_core import ConfigError, EmbeddedBroker, Snapshot
from broker_core.aio import EmbeddedBroker as AsyncBroker


@pytest.fixture
def kafka():
    with EmbeddedBroker(listeners={}) as broker:
        yield broker


def test_records_transactions_and_groups_need_no_client(kafka):
    kafka.create_topic("orders", 2)
    kafka.produce("orders", ["one"], partition=1)
    kafka.produce("orders", ["two"], transactional="writer", end="open")
    assert kafka.transaction("writer").state == "Ongoing"
    kafka.end_transaction("writer")
    assert sorted(kafka.wait_for_records("orders", 2).values) == [b"one", b"two"]
    assert kafka.groups == []
    assert kafka.group("readers").members == ()
    kafka.assert_quiescent()


def test_snapshots_and_folders_are_those_of_any_broker(kafka, tmp_path):
    kafka.produce("orders", ["one"])
    kafka.snapshot().save(tmp_path / "kept")
    kafka.produce("orders", ["two"])
    kafka.restore(Snapshot.read(tmp_path / "kept"))
    assert kafka.records("orders").values == [b"one"]
    with EmbeddedBroker(listeners={}, data_dir=tmp_path / "kept") as again:
        assert again.records("orders").values == [b"one"]


def test_brokers_stop_crash_and_start():
    with EmbeddedBroker(brokers=2, listeners={}, topics={"orders": 2}) as cluster:
        cluster.broker(1).stop()
        cluster.produce("orders", ["one"])
        cluster.crash()
        cluster.restart()
        assert cluster.broker(1).is_running
        assert cluster.records("orders").values == [b"one"]


@pytest.mark.parametrize(
    "address",
    [
        lambda kafka: kafka.bootstrap_servers,
        lambda kafka: kafka.client_settings,
        lambda kafka: kafka.bootstrap("PLAINTEXT"),
        lambda kafka: kafka.network(latency_ms=1),
    ],
    ids=["bootstrap_servers", "client_settings", "bootstrap", "network"],
)
def test_what_clients_need_is_refused_with_the_reason(kafka, address):
    assert kafka.listeners == {}
    with pytest.raises(RuntimeError, match=re.escape("this broker has no listener, because of listeners={}:")):
        address(kafka)


def test_arguments_of_listeners_are_refused():
    for arguments in ({"port": 9092}, {"users": {"alice": "secret"}}, {"brokers": 0}):
        with pytest.raises(ConfigError, match=f"^{next(iter(arguments))}"):
            EmbeddedBroker(listeners={}, **arguments)
    with EmbeddedBroker(listeners={}, config={"node.id": "7"}) as kafka:
        assert list(kafka.broker_ids) == [7]


def test_brokers_of_asyncio_may_have_none_either():
    async def main():
        async with AsyncBroker(listeners={}) as kafka:
            await kafka.produce("orders", ["one"])
            with pytest.raises(RuntimeError, match="has no listener"):
                _ = kafka.bootstrap_servers
            return await kafka.records("orders")

    assert asyncio.run(main()).values == [b"one"]
