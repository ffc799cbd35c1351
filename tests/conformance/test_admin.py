"""Administration of topics, their settings and the cluster."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.clients import (
    DEADLINE_S,
    Kafka,
    admin,
    find_offset,
    make_producer,
    make_topic,
    send,
    unique,
    values_to_end,
)
from tests.support.waiting import wait_until


def topic_config(kafka: Kafka, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin(kafka)
    return client.describe_configs([resource], request_timeout=DEADLINE_S)[resource].result(DEADLINE_S)


def alter(kafka: Kafka, topic: str, *entries: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.incremental_configs.extend(entries)
    client = admin(kafka)
    client.incremental_alter_configs([resource], request_timeout=DEADLINE_S)[resource].result(DEADLINE_S)


def code_of(refused: pytest.ExceptionInfo[KafkaException]) -> int:
    error: KafkaError = refused.value.args[0]
    return error.code()


def test_topic_is_created_listed_and_deleted(kafka: Kafka):
    client = admin(kafka)
    topic = make_topic(kafka, partitions=3)
    described = client.list_topics(timeout=DEADLINE_S).topics[topic]
    assert sorted(described.partitions) == [0, 1, 2]
    client.delete_topics([topic], operation_timeout=30)[topic].result(DEADLINE_S)
    wait_until(lambda: topic not in client.list_topics(timeout=DEADLINE_S).topics, f"{topic} is gone")


def test_recreated_topic_is_empty(kafka: Kafka):
    client = admin(kafka)
    topic = make_topic(kafka)
    send(make_producer(kafka), topic, [b"of the first"])
    client.delete_topics([topic], operation_timeout=30)[topic].result(DEADLINE_S)
    wait_until(lambda: topic not in client.list_topics(timeout=DEADLINE_S).topics, f"{topic} is gone")
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    wait_until(lambda: topic in client.list_topics(timeout=DEADLINE_S).topics, f"{topic} is back")
    send(make_producer(kafka), topic, [b"of the second"])
    assert values_to_end(kafka, topic) == [b"of the second"]


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "code"),
    [
        ("no/slash", 1, 1, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, KafkaError.TOPIC_EXCEPTION),
        ("good", 1, 3, KafkaError.INVALID_REPLICATION_FACTOR),
    ],
)
def test_invalid_topic_is_refused(kafka: Kafka, name: str, partitions: int, replicas: int, code: int):
    client = admin(kafka)
    with pytest.raises(KafkaException) as refused:
        client.create_topics([NewTopic(name, partitions, replicas)])[name].result(DEADLINE_S)
    assert code_of(refused) == code


def test_validate_only_creates_no_topic(kafka: Kafka):
    client = admin(kafka)
    name = unique("topic")
    client.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(DEADLINE_S)
    assert name not in client.list_topics(timeout=DEADLINE_S).topics


def test_partitions_can_be_added_but_not_removed(kafka: Kafka):
    client = admin(kafka)
    topic = make_topic(kafka)
    send(make_producer(kafka), topic, [b"old"])
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(DEADLINE_S)
    wait_until(lambda: len(client.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == 3, "3 partitions")
    send(make_producer(kafka), topic, [b"new"], partition=2)
    assert sorted(values_to_end(kafka, topic, partitions=3)) == [b"new", b"old"]
    for count in (3, 2):
        with pytest.raises(KafkaException) as refused:
            client.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_S)
        assert code_of(refused) == KafkaError.INVALID_PARTITIONS


def test_settings_are_described_altered_and_reset(kafka: Kafka):
    topic = make_topic(kafka, config={"retention.ms": "1000000"})
    entries = topic_config(kafka, topic)
    assert entries["retention.ms"].value == "1000000"
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["cleanup.policy"].value == "delete"
    assert entries["cleanup.policy"].is_default
    alter(
        kafka,
        topic,
        ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    )
    wait_until(lambda: topic_config(kafka, topic)["max.message.bytes"].value == "5000", "the new setting is seen")
    entries = topic_config(kafka, topic)
    assert entries["retention.ms"].is_default
    assert entries["cleanup.policy"].value == "delete,compact"


def test_the_cluster_is_described(kafka: Kafka):
    client = admin(kafka)
    cluster = client.describe_cluster(request_timeout=DEADLINE_S).result(DEADLINE_S)
    assert cluster.cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [kafka.bootstrap_servers]
    assert cluster.controller.id == cluster.nodes[0].id


def test_records_are_deleted_up_to_an_offset(kafka: Kafka):
    topic = make_topic(kafka)
    client = admin(kafka)
    send(make_producer(kafka), topic, [b"%d" % number for number in range(5)])
    where = TopicPartition(topic, 0, 3)
    deleted = client.delete_records([where], request_timeout=DEADLINE_S)[where].result(DEADLINE_S)
    assert deleted.low_watermark == 3
    assert find_offset(kafka, topic, OffsetSpec.earliest())[0] == 3
    everything = TopicPartition(topic, 0, -1)
    deleted = client.delete_records([everything], request_timeout=DEADLINE_S)[everything].result(DEADLINE_S)
    assert deleted.low_watermark == 5
    beyond = TopicPartition(topic, 0, 6)
    with pytest.raises(KafkaException) as refused:
        client.delete_records([beyond], request_timeout=DEADLINE_S)[beyond].result(DEADLINE_S)
    assert code_of(refused) == KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("policy", "error"), [("", None), ("compact,delete", None), ("compact", KafkaError.POLICY_VIOLATION)]
)
def test_only_compacted_topics_refuse_to_delete_records(kafka: Kafka, policy: str, error: int | None):
    topic = make_topic(kafka, config={"cleanup.policy": policy})
    producer = make_producer(kafka)
    for key in (b"a", b"b"):
        producer.produce(topic, b"value", key=key, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    client, where = admin(kafka), TopicPartition(topic, 0, 1)
    deletion = client.delete_records([where], request_timeout=DEADLINE_S)[where]
    if error is None:
        assert deletion.result(DEADLINE_S).low_watermark == 1
    else:
        with pytest.raises(KafkaException) as refused:
            deletion.result(DEADLINE_S)
        assert code_of(refused) == error
