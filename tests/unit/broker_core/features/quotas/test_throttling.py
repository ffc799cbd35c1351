"""Clients are throttled by the broker's clock: by quotas, and by a fault."""

import pytest

from broker_core import EmbeddedBroker, Error, Throttle
from broker_core.features.quotas.records import set_quotas
from broker_core.wire import messages as m
from tests.support.broker_core.requests import TOPIC, produce, records
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import creation

ALL_TOPICS = m.MetadataRequest(topics=None, allow_auto_topic_creation=False)


def set_quota(cluster, name, key, value):
    set_quotas(cluster.metadata, (("client-id", name),), {key: value})


def test_a_throttled_client_waits_by_the_clusters_time_and_others_do_not():
    cluster = direct_cluster()
    client, other = DirectClient(cluster), DirectClient(cluster)
    other.client_id = "other"
    set_quota(cluster, "direct", "controller_mutation_rate", 1.0)
    assert client.ask(creation("first", num_partitions=12), 5).throttle_time_ms == 1000
    client.post(ALL_TOPICS, 12)
    cluster.settle(cluster.now_ms)
    assert client.sent == []
    assert other.ask(ALL_TOPICS, 12).throttle_time_ms == 0
    cluster.advance(cluster.now_ms + 999)
    assert client.sent == []
    cluster.advance(cluster.now_ms + 1)
    assert len(client.sent) == 1


def test_a_throttled_producer_waits_before_its_next_request():
    cluster = direct_cluster()
    cluster.controller.create_topic(TOPIC, 1)
    client = DirectClient(cluster)
    set_quota(cluster, "direct", "producer_byte_rate", 1.0)
    client.post_bytes(b"".join(client.encoded(*produce(records())) for _ in range(2)))
    throttle_ms = client.take().throttle_time_ms
    assert throttle_ms > 0
    assert client.take() is None
    cluster.advance(cluster.now_ms + throttle_ms)
    assert client.take().responses[0].partition_responses[0].base_offset == 1


@pytest.mark.parametrize(
    ("entities", "throttled"),
    [
        ([{"client-id": "direct"}], True),
        ([{"client-id": None}], True),
        ([{"user": "ANONYMOUS"}], True),
        ([{"user": None}], True),
        ([{"user": "ANONYMOUS", "client-id": "direct"}], True),
        ([{"user": "ANONYMOUS", "client-id": None}], True),
        ([{"user": None, "client-id": "direct"}], True),
        ([{"user": None, "client-id": None}], True),
        ([{"user": "other"}], False),
        ([{"client-id": "other"}], False),
        ([{"user": "ANONYMOUS", "client-id": "other"}], False),
    ],
)
def test_a_quota_applies_to_the_clients_that_it_names(entities, throttled):
    cluster = direct_cluster()
    for names in entities:
        set_quotas(cluster.metadata, tuple(sorted(names.items())), {"controller_mutation_rate": 1.0})
    assert bool(DirectClient(cluster).ask(creation("t", num_partitions=12), 5).throttle_time_ms) is throttled


# From the most specific to the least, as Kafka's documentation lists them.
ORDER = [
    {"user": "ANONYMOUS", "client-id": "direct"},
    {"user": "ANONYMOUS", "client-id": None},
    {"user": "ANONYMOUS"},
    {"user": None, "client-id": "direct"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "direct"},
    {"client-id": None},
]


@pytest.mark.parametrize("place", range(len(ORDER) - 1))
def test_the_most_specific_quota_applies(place):
    cluster = direct_cluster()
    for names, limit in ((ORDER[place], 1.0), (ORDER[place + 1], 1000.0)):
        set_quotas(cluster.metadata, tuple(sorted(names.items())), {"controller_mutation_rate": limit})
    assert DirectClient(cluster).ask(creation("t", num_partitions=12), 5).throttle_time_ms == 1000


def test_a_throttle_applies_to_answers_only():
    with EmbeddedBroker(listeners={}) as kafka:
        with pytest.raises(ValueError, match="Throttle applies to an answer"):
            kafka.fault(when="after_apply", action=Throttle(1))
        with pytest.raises(TypeError):
            kafka.throttle(1, action=Error("UNKNOWN_SERVER_ERROR"))
