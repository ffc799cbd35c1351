"""The records of committed offsets: rule B.3/3."""

import pytest

from broker_core.coordinator.groups.offsets.store import OFFSET_KEY_TYPES, read_offset_key, read_offset_value
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from tests.support.clients import READ_UNCOMMITTED, Kafka, make_topic, read_to_end, unique
from tests.support.group_session import GroupSession
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_committed_offset_is_recorded_with_the_id_of_its_topic(
    kafka: Kafka, client: RawClient, session: RawSession, transactional: bool, version: int
):
    topic = make_topic(kafka)
    group = GroupSession(client, unique("group"), topic)
    if transactional:
        identity = session.init()[1]
        group.commit_in_transaction(session.transactional_id, identity, "", -1, version=6 if version == 10 else 5)
    else:
        assert group.commit("", -1, version=version) == {0}
    found = [
        message.value()
        for message in read_to_end(kafka, CONSUMER_OFFSETS_TOPIC, isolation=READ_UNCOMMITTED, partitions=5)
        if int.from_bytes(message.key()[:2], "big") in OFFSET_KEY_TYPES
        and read_offset_key(message.key()).group_id == group.group
    ]
    assert [value[:2].hex() for value in found] == ["0004"]
    value = read_offset_value(found[0])
    assert (value.topic_id, value.metadata, value.leader_epoch) == (group.ids[topic], "", -1)
