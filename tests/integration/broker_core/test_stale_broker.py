"""Brokers of an embedded cluster that are cut off from the others send clients outdated responses."""

import pytest

from broker_core import EmbeddedBroker
from broker_core.wire import messages as m
from tests.support.raw_client import RawClient


def ask(kafka: EmbeddedBroker, broker: int) -> RawClient:
    return RawClient(kafka.bootstrap_servers.split(",")[broker - 1])


def coordinator_of_group(client: RawClient) -> int:
    answer = client.send(m.FindCoordinatorRequest(key="g"), 3)
    assert answer.error_code == 0, answer
    return int(answer.node_id)


def test_isolated_broker_keeps_connections_and_serves_stale_state_to_new_ones() -> None:
    with EmbeddedBroker(brokers=3, topics={"in": 3}) as kafka, ask(kafka, 2) as old:
        kafka.move_coordinator(2, group="g")
        assert coordinator_of_group(old) == 2
        with kafka.stale_broker(2) as outage:
            with ask(kafka, 2) as new, ask(kafka, 1) as current:
                assert coordinator_of_group(old) == coordinator_of_group(new) == 2
                assert coordinator_of_group(current) == kafka.coordinator(group="g") != 2
            assert kafka.broker(2).is_running
            outage.end()
            assert coordinator_of_group(old) == kafka.coordinator(group="g") == 2
        kafka.assert_quiescent()


def test_isolated_state_works_with_a_data_directory(tmp_path: object) -> None:
    with EmbeddedBroker(brokers=2, topics={"in": 2}, data_dir=str(tmp_path)) as kafka, ask(kafka, 2) as client:
        kafka.move_coordinator(2, group="g")
        with kafka.stale_broker(2):
            assert (coordinator_of_group(client), kafka.coordinator(group="g")) == (2, 1)
        assert kafka.coordinator(group="g") == 2


def test_stopped_crashed_or_restarted_broker_is_no_longer_isolated() -> None:
    with EmbeddedBroker(brokers=2, topics={"in": 2}) as kafka:
        for how in ("stop", "crash"):
            with kafka.stale_broker(2):
                getattr(kafka.broker(2), how)()
                assert not kafka.broker(2).is_running
                kafka.broker(2).start()
                assert kafka.leader(("in", 1)) == 2
        kafka.move_coordinator(2, group="g")
        for crashes in (True, False):
            with kafka.stale_broker(2):
                if crashes:
                    kafka.crash()
                kafka.restart()
                with ask(kafka, 2) as client:
                    assert coordinator_of_group(client) == kafka.coordinator(group="g")
                kafka.move_coordinator(2, group="g")


def test_single_broker_cannot_be_isolated() -> None:
    with EmbeddedBroker(brokers=2) as kafka:
        with pytest.raises(ValueError, match="broker 3 cannot be cut off .* 1, 2"):
            kafka.stale_broker(3)
        with kafka.stale_broker(2), pytest.raises(ValueError, match="running brokers: 1"):
            kafka.stale_broker(1)
        kafka.broker(1).stop()
        with pytest.raises(ValueError, match="running brokers: 2"):
            kafka.stale_broker(2)
