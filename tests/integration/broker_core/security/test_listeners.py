"""Several listeners: the addresses that clients get, and the arguments of the embedded broker."""

import re

import pytest
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from broker_core import EmbeddedBroker
from broker_core.errors import ConfigError
from tests.support.broker_core.broker_command import running
from tests.support.raw_client import RawClient

# Addresses in responses


def returned_addresses(address):
    """Return the brokers' addresses in each response that has them, and the coordinators' addresses."""
    with RawClient(address) as client:
        found = {key_type: client.send(FindCoordinatorRequest(key="x", key_type=key_type), 3) for key_type in (0, 1)}
        answers = [client.send(MetadataRequest(topics=[]), 9).brokers, client.send(DescribeClusterRequest(), 0).brokers]
        many = client.send(FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y", "z"]), 4).coordinators
    all_addresses = [{f"{broker.host}:{broker.port}" for broker in answer} for answer in answers]
    return all_addresses, {f"{broker.host}:{broker.port}" for broker in [*found.values(), *many]}


def test_metadata_returns_addresses_of_the_requested_listener():
    with EmbeddedBroker(brokers=2, listeners={"ONE": "PLAINTEXT", "TWO": "PLAINTEXT"}) as kafka:
        one, two = (set(kafka.bootstrap(name).split(",")) for name in ("ONE", "TWO"))
        assert len(one | two) == 4
        for addresses in (one, two):
            for address in addresses:
                (by_metadata, by_cluster), coordinators = returned_addresses(address)
                assert by_metadata == by_cluster == addresses
                assert coordinators <= addresses


def test_advertised_addresses_are_returned_instead_of_bound_ones():
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": "PLAINTEXT://kafka.example:7000"}
    with EmbeddedBroker(config=config, brokers=2) as kafka:
        assert kafka.bootstrap_servers == "kafka.example:7000,kafka.example:7001"


# For test authors


def test_listener_names_are_case_insensitive():
    with EmbeddedBroker(listeners={"clear": "PLAINTEXT"}) as kafka:
        assert kafka.bootstrap("Clear") == kafka.bootstrap("CLEAR") == kafka.bootstrap_servers
        with pytest.raises(ValueError, match="there is no listener 'SECURE'; there are CLEAR"):
            kafka.bootstrap("SECURE")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"listeners": {"A": "HTTP"}}, "'A:HTTP' is not NAME:PROTOCOL"),
        ({"users": {"alice": "top-secret"}}, "users: no listener uses it"),
        ({"listeners": {"A": "SSL"}}, "listener A has no certificate"),
        (
            {"listeners": {"A": "SASL_PLAINTEXT"}, "config": {"listener.name.a.plain.sasl.jaas.config": "top-secret"}},
            "listener.name.a.plain.sasl.jaas.config: expected one login module",
        ),
    ],
)
def test_mistakes_in_listener_arguments_are_reported(given, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)) as refused:
        with EmbeddedBroker(**given):
            pass
    assert "top-secret" not in str(refused.value)


def test_listener_ports_may_be_given():
    with EmbeddedBroker() as kafka:
        port = int(kafka.bootstrap_servers.rpartition(":")[2])
    broker = EmbeddedBroker(brokers=2, port=port, listeners={"A": "PLAINTEXT", "B": "PLAINTEXT"})
    assert [plan.bind.port for plan in broker._plans] == [port, port + 2]


def test_standalone_broker_listens_as_configured(tmp_path):
    (tmp_path / "broker.properties").write_text(
        "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT\n"
        'listener.name.inside.plain.sasl.jaas.config=PlainLoginModule required \\\n  user_alice="secret";\n'
    )
    with running("--config", str(tmp_path / "broker.properties"), pattern=r"listening on (\S+ \S+ and \S+ \S+)") as (
        _,
        where,
    ):
        names = dict(part.split() for part in where.split(" and "))
        assert set(names) == {"PLAINTEXT", "INSIDE"}
        with RawClient(names["PLAINTEXT"]) as client:
            assert client.send(MetadataRequest(topics=[]), 9).brokers
        with RawClient(names["INSIDE"]) as client:
            client.post(MetadataRequest(topics=[]), 9)
            assert client.is_closed_by_peer()
