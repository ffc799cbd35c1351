"""Real clients under `group.protocol=consumer`: librdkafka and Apache's own, sharing, resuming, exactly once."""

from functools import partial

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.support.clients import (
    DEADLINE_S,
    Kafka,
    admin,
    committed_offset,
    make_producer,
    make_topic,
    make_transactional_producer,
    read_values,
    send,
    unique,
    values_to_end,
)
from tests.support.clients import make_member as make_member_of
from tests.support.java_tools import java_tool
from tests.support.waiting import wait_until

make_member = partial(make_member_of, protocol="consumer")


def partitions_of(*members: Consumer) -> list[set[int]]:
    for member in members:
        message = member.poll(0.05)
        assert message is None or message.error() is None, message.error()
    return [{where.partition for where in member.assignment()} for member in members]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions_while_joining_and_leaving(kafka: Kafka, assignor: str):
    topic, group = make_topic(kafka, partitions=4), unique("group")
    members = [make_member(kafka, group, group_remote_assignor=assignor) for _ in range(2)]
    try:
        members[0].subscribe([topic])
        wait_until(lambda: partitions_of(members[0]) == [{0, 1, 2, 3}], "the only member has all partitions")
        members[1].subscribe([topic])

        def is_shared() -> bool:
            one, other = partitions_of(*members)
            return len(one) == len(other) == 2 and one | other == {0, 1, 2, 3}

        wait_until(is_shared, "each member has two partitions")
        members[1].close()
        wait_until(lambda: partitions_of(members[0]) == [{0, 1, 2, 3}], "the member left has all partitions again")
        client = admin(kafka)
        client.create_partitions([NewPartitions(topic, 6)])[topic].result(DEADLINE_S)
        wait_until(lambda: partitions_of(members[0]) == [set(range(6))], "new partitions are assigned")
    finally:
        members[0].close()


def test_regular_expression_finds_topics_created_later(kafka: Kafka):
    prefix = unique("family")
    client = admin(kafka)
    member = make_member(kafka, unique("group"))

    def reads(*topics: str) -> bool:
        member.poll(0.05)
        return {where.topic for where in member.assignment()} == set(topics)

    try:
        member.subscribe([f"^{prefix}.*"])
        client.create_topics([NewTopic(f"{prefix}-1", 1, 1)])[f"{prefix}-1"].result(DEADLINE_S)
        wait_until(lambda: reads(f"{prefix}-1"), "the topic that matches is assigned")
        if kafka.name == "broker_core":
            # Apache Kafka looks for further matches at most every ten seconds.
            client.create_topics([NewTopic(f"{prefix}-2", 1, 1)])[f"{prefix}-2"].result(DEADLINE_S)
            wait_until(lambda: reads(f"{prefix}-1", f"{prefix}-2"), "the topic made later is assigned")
    finally:
        member.close()


def test_static_member_returns_while_the_other_keeps_reading(kafka: Kafka):
    topic, group = make_topic(kafka, partitions=2), unique("group")
    steady, restarted = (make_member(kafka, group, group_instance_id=name) for name in ("steady", "restarted"))
    try:
        steady.subscribe([topic])
        restarted.subscribe([topic])
        wait_until(lambda: [len(has) for has in partitions_of(steady, restarted)] == [1, 1], "each has a partition")
        before = partitions_of(steady, restarted)
        restarted.close()
        restarted = make_member(kafka, group, group_instance_id="restarted")
        restarted.subscribe([topic])
        wait_until(lambda: partitions_of(steady, restarted) == before, "the instance has its partition back")
    finally:
        steady.close()
        restarted.close()


def test_consume_transform_produce_is_exactly_once_across_a_rebalance(kafka: Kafka):
    source, target, group = make_topic(kafka, partitions=2), make_topic(kafka), unique("group")
    expected = [[b"%d-%d" % (partition, number) for number in range(5)] for partition in range(2)]
    for partition, values in enumerate(expected):
        send(make_producer(kafka), source, values, partition=partition)
    zombie = make_member(kafka, group)
    zombie_producer = make_transactional_producer(kafka, unique("id"))
    zombie.subscribe([source])
    zombie_producer.begin_transaction()
    for value in read_values(zombie, 10):
        zombie_producer.produce(target, value + b" by the zombie", partition=0)
    old = zombie.consumer_group_metadata()
    position = zombie.position(zombie.assignment())
    zombie.close()
    heir, producer = make_member(kafka, group), make_transactional_producer(kafka, unique("id"))
    heir.subscribe([source])
    producer.begin_transaction()
    for value in read_values(heir, 10):
        producer.produce(target, value, partition=0)
    with pytest.raises(KafkaException) as fenced:
        zombie_producer.send_offsets_to_transaction(position, old, DEADLINE_S)
    assert fenced.value.args[0].code() in (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)
    zombie_producer.abort_transaction(DEADLINE_S)
    producer.send_offsets_to_transaction(heir.position(heir.assignment()), heir.consumer_group_metadata(), DEADLINE_S)
    producer.commit_transaction(DEADLINE_S)
    heir.close()
    assert [committed_offset(kafka, group, source, partition) for partition in range(2)] == [5, 5]
    once = sorted(value for values in expected for value in values)
    wait_until(lambda: sorted(values_to_end(kafka, target)) == once, "each value is there once")


@pytest.mark.usefixtures("apache_asked_for")
def test_the_java_consumer_reads_resumes_and_is_described(kafka: Kafka, tmp_path):
    topic, group = make_topic(kafka, partitions=3), unique("java")
    for partition in range(3):
        send(make_producer(kafka), topic, [b"x" * 10] * 100, partition=partition)
    settings = tmp_path / "consumer.properties"
    settings.write_text(f"group.protocol=consumer\ngroup.id={group}\nauto.offset.reset=earliest\n")
    printed = java_tool(
        "ConsumerPerformance",
        "--bootstrap-server",
        kafka.bootstrap_servers,
        "--topic",
        topic,
        "--num-records",
        "300",
        "--timeout",
        "30000",
        "--group",
        group,
        "--command-config",
        str(settings),
    ).output
    assert printed.splitlines()[1].split(",")[4].strip() == "300"
    assert sum(committed_offset(kafka, group, topic, partition) for partition in range(3)) == 300
    client = admin(kafka)
    listed = client.list_consumer_groups(request_timeout=DEADLINE_S).result(DEADLINE_S)
    assert {entry.group_id: entry.type for entry in listed.valid}[group] == ConsumerGroupType.CONSUMER


@pytest.mark.usefixtures("apache_asked_for")
def test_kafka_tool_describes_the_members(kafka: Kafka):
    topic, group = make_topic(kafka, partitions=2), unique("described")
    member = make_member(kafka, group, client_id="the-client")
    member.subscribe([topic])
    try:
        wait_until(lambda: partitions_of(member) == [{0, 1}], "the member has its partitions")
        printed = java_tool(
            "consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            kafka.bootstrap_servers,
            "--describe",
            "--group",
            group,
            "--members",
            "--verbose",
        ).output
    finally:
        member.close()
    assert "the-client" in printed
    assert f"{topic}(0,1)" in printed or f"{topic}:0,1" in printed, printed
