"""Offsets in transactions and the members of their group: with each client that sends group metadata."""

import pytest

from tests.interop.driver import Client
from tests.interop.judge import end, is_refused, make_topic
from tests.support.clients import unique
from tests.support.interop_brokers import Running

# ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID, which some clients name differently.
NOT_THE_MEMBER = frozenset(
    {
        "CommitFailedException",
        "FencedInstanceIdException",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "CommitFailedError",
        "FencedInstanceIdError",
        "IllegalGenerationError",
        "UnknownMemberIdError",
    }
)


@pytest.mark.parametrize("instance", [None, "static"], ids=["rejoined", "replaced"])
def test_offsets_of_a_replaced_member_are_refused_and_of_the_current_one_committed(
    kafka: Running, client: Client, instance: str | None
):
    source, target, group = make_topic(kafka), make_topic(kafka), unique("group")
    former = client.join(group, source, instance)
    if instance is None:
        client.leave(former)
    present = client.join(group, source, instance)
    producer = client.producer(unique("id")).begin()
    producer.send(target, "of the former")
    is_refused(lambda: producer.offsets(group, source, 5, member=former), NOT_THE_MEMBER)
    producer.abort()
    assert client.committed(group, source) is None
    producer.begin().send(target, "of the present")
    producer.offsets(group, source, 7, member=present)
    producer.commit()
    assert client.committed(group, source) == (7, "")
    end(kafka, target)
    assert client.values(target) == ["of the present"]


def test_committed_leader_epoch_is_returned(kafka: Running, client: Client):
    topic, group = make_topic(kafka), unique("group")
    producer = client.producer(unique("id"))
    for epoch, ends in ((4, producer.abort), (3, producer.commit)):
        producer.begin().offsets(group, topic, 5, "", epoch=epoch)
        ends()
    assert client.committed_epoch(group, topic) == 3
