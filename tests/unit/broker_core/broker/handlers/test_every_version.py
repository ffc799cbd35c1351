"""Every served API answers at every served version."""

import pytest

from broker_core.broker.partitions import internal_topics
from tests.support.broker_core.answers import error_codes
from tests.support.broker_core.full_requests import TOPIC, VERSIONS, full_requests
from tests.support.direct import DirectClient, direct_cluster


def new_client():
    topics = ("transaction.state.log", "offsets.topic", "share.coordinator.state.topic")
    cluster = direct_cluster(settings={f"{topic}.num.partitions": "1" for topic in topics})
    cluster.controller.create_topic(TOPIC, 2)
    for topic in internal_topics():
        cluster.controller.ensure_topic(topic)
    return DirectClient(cluster)


# The error codes of `full_requests`, of all versions; the APIs not listed succeed.
REFUSED = {
    "Heartbeat": {25},
    "LeaveGroup": {25, 0},
    "SyncGroup": {25},
    "AddPartitionsToTxn": {49, 0},
    "AddOffsetsToTxn": {49},
    "EndTxn": {49},
    "TxnOffsetCommit": {49},
    "DeleteGroups": {69},
    "OffsetDelete": {69},
    "DescribeTransactions": {105},
    "JoinGroup": {0, 79},
    "DescribeGroups": {0, 69},
    "ConsumerGroupDescribe": {69},
    "ElectLeaders": {0, 84},
    "ShareGroupDescribe": {69},
    "ShareAcknowledge": {122},
    "DeleteShareGroupOffsets": {69},
    # The state of the partition is not initialized for the group.
    "ShareFetch": {0, -1},
    "ReadShareGroupState": {42},
    "WriteShareGroupState": {42},
    # The client is not authenticated.
    "CreateDelegationToken": {64},
    "RenewDelegationToken": {64},
    "ExpireDelegationToken": {64},
    "DescribeDelegationToken": {64},
    # The listener has no SASL.
    "SaslHandshake": {34},
    "SaslAuthenticate": {34},
    # The broker has no authorizer.
    "DescribeAcls": {54},
    "CreateAcls": {54},
    "DeleteAcls": {54},
}


# Rule J.1/3.
@pytest.mark.parametrize("name", VERSIONS)
def test_served_version_is_answered(name):
    found = set()
    for version in VERSIONS[name]:
        client = new_client()
        topic_id = client.cluster.metadata.topic(TOPIC).topic_id
        answer = client.ask(full_requests(version, topic_id)[name](), version)
        assert not client.closed, version
        found |= set(error_codes(answer))
    assert found == REFUSED.get(name, {0})
