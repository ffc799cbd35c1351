"""Progress in a consumer group: for tools that show lag, and for nothing else."""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from broker_core import types
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.source.group_commits import GroupCommits
from tests.support.spark_eos.source_data import create_topic, send_plain
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]


def committed(address: str, group: str) -> dict[int, int]:
    """Ask, as lag tools do, what a group committed."""
    # The handle must outlive the request, hence the name.
    admin = AdminClient({"bootstrap.servers": address})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return {each.partition: each.offset for each in answer.topic_partitions}


def new_group() -> str:
    return f"lag-{uuid.uuid4().hex[:8]}"


@pytest.mark.spark
def test_a_group_shows_how_far_a_query_is(spark: SparkSession, kafka_address: str, tmp_path: Path) -> None:
    topic, group = create_topic(kafka_address, partitions=2), new_group()
    send_plain(kafka_address, topic, ["a", "b", "c"])
    send_plain(kafka_address, topic, ["d"], partition=1)

    def run() -> None:
        source = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", kafka_address).options(
            subscribe=topic, startingOffsets="earliest", commitOffsetsToGroup="true", maxOffsetsPerTrigger="3",
            **{"kafka.group.id": group},
        )  # fmt: skip
        writer = source.load().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.format("noop").trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    run()
    assert committed(kafka_address, group) == {0: 3, 1: 1}
    send_plain(kafka_address, topic, ["e"], partition=1)
    run()
    assert committed(kafka_address, group) == {0: 3, 1: 2}


def test_trouble_is_told_once_and_holds_nothing_up(kafka_address: str, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer is active in the group, so that nobody else may commit; then it leaves."""
    caplog.set_level("INFO", "spark_eos.source.group_commits")
    topic, group = create_topic(kafka_address), new_group()
    place = types.TopicPartition(topic, 0)
    consumer = Consumer({"bootstrap.servers": kafka_address, "group.id": group})
    assigned: list[TopicPartition] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    try:
        wait_until(lambda: consumer.poll(0.05) is None and bool(assigned), "an assignment")
        with KafkaClient(ClientOptions((kafka_address,))) as client:
            commits = GroupCommits(client, group)
            for offset in (1, 2):
                commits.commit({place: offset})
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            assert "consumers are active in the group" in caplog.text
            consumer.close()
            for offset in (3, 4):
                commits.commit({place: offset})
            assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        assert committed(kafka_address, group) == {0: 4}
    finally:
        consumer.close()


def test_what_the_group_knows_is_said_again_only_now_and_then(kafka_address: str) -> None:
    topic, group = create_topic(kafka_address), new_group()
    place, now = types.TopicPartition(topic, 0), [0.0]
    with KafkaClient(ClientOptions((kafka_address,))) as client:
        commits = GroupCommits(client, group, clock=lambda: now[0])
        commits.commit({})
        commits.commit({place: 5})
        assert committed(kafka_address, group) == {0: 5}
        admin = AdminClient({"bootstrap.servers": kafka_address})
        admin.delete_consumer_groups([group])[group].result(30)
        for seconds, expected in ((599.0, {}), (600.0, {0: 5})):
            now[0] = seconds
            commits.commit({place: 5})
            assert committed(kafka_address, group) == expected
