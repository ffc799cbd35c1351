"""A broker without listeners: no port is opened, and the methods of `EmbeddedBroker` need none."""

import re

import pytest

from broker_core import ConfigError, EmbeddedBroker


@pytest.fixture
def kafka():
    with EmbeddedBroker(listeners={}) as broker:
        yield broker


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
