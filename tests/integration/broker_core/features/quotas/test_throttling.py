"""Clients are throttled by the broker's clock: by quotas, and by a fault."""

from broker_core import EmbeddedBroker
from broker_core.wire import messages as m
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

ALL_TOPICS = m.MetadataRequest(topics=None, allow_auto_topic_creation=False)


def test_a_fault_throttles_one_client_until_the_clock_advances():
    with (
        EmbeddedBroker(clock="virtual") as kafka,
        RawClient(kafka.bootstrap_servers, client_id="slow") as slow,
        RawClient(kafka.bootstrap_servers, client_id="fast") as fast,
    ):
        with kafka.throttle(30, client_id="slow", api="Metadata") as throttled:
            assert slow.send(ALL_TOPICS, 12).throttle_time_ms == 30_000
        slow.post(ALL_TOPICS, 12)
        assert fast.send(ALL_TOPICS, 12).throttle_time_ms == 0
        assert throttled.hits == 1
        assert len(kafka.requests(api="Metadata", client_id="slow")) == 1
        kafka.clock.advance(30)
        assert slow.collect(ALL_TOPICS).throttle_time_ms == 0


def test_an_address_above_its_quota_is_closed_and_others_wait_for_nothing():
    with EmbeddedBroker() as kafka, RawClient(kafka.bootstrap_servers) as client:
        form = m.AlterClientQuotasRequest.EntryData
        entry = form(
            entity=[form.EntityData(entity_type="ip", entity_name="127.0.0.1")],
            ops=[form.OpData(key="connection_creation_rate", value=1.0, remove=False)],
        )
        client.send(m.AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
        # Ten connections are within the first ten windows; the eleventh is closed a second later.
        opened = [RawClient(kafka.bootstrap_servers) for _ in range(11)]
        assert opened[0].send(ALL_TOPICS, 12).throttle_time_ms == 0
        assert opened[-1].is_closed_by_peer()
        wait_until(lambda: client.send(ALL_TOPICS, 12).throttle_time_ms == 0, "the first connection is still open")
        for each in opened:
            each.close()
