"""Progress committed to a consumer group, and what prevents a commit."""

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker_core import types
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.source.driver_side import GroupCommits
from tests.support.clocks import AheadClock, runtime_by
from tests.support.spark_eos.group_offsets import committed, new_group
from tests.support.spark_eos.source_data import create_topic
from tests.support.waiting import wait_until


def test_commit_failure_is_logged_once_and_delays_nothing(kafka_address: str, caplog: pytest.LogCaptureFixture) -> None:
    """An active consumer of the group keeps others from committing; then it leaves."""
    caplog.set_level("INFO", "spark_eos.source.driver_side")

    def levels() -> list[str]:
        # Other tests of the process may leave threads that log.
        return [each.levelname for each in caplog.records if each.name == "spark_eos.source.driver_side"]

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
            assert levels() == ["WARNING"]
            assert "consumers are active in the group" in caplog.text
            consumer.close()
            # The same offsets again: the group has not got them.
            commits.commit({place: 2})
            assert committed(kafka_address, group) == {0: 2}
            commits.commit({place: 3})
            assert levels() == ["WARNING", "INFO"]
        assert committed(kafka_address, group) == {0: 3}
    finally:
        consumer.close()


def test_unchanged_group_offsets_are_committed_only_periodically(kafka_address: str) -> None:
    topic, group = create_topic(kafka_address), new_group()
    place, clock = types.TopicPartition(topic, 0), AheadClock()
    clock.stand()
    with KafkaClient(ClientOptions((kafka_address,)), runtime_by(clock)) as client:
        commits = GroupCommits(client, group)
        commits.commit({})
        commits.commit({place: 5})
        assert committed(kafka_address, group) == {0: 5}
        admin = AdminClient({"bootstrap.servers": kafka_address})
        admin.delete_consumer_groups([group])[group].result(30)
        for seconds, expected in ((599.0, {}), (600.0, {0: 5})):
            clock.ahead_seconds = seconds
            commits.commit({place: 5})
            assert committed(kafka_address, group) == expected
