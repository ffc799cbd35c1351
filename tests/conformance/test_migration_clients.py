"""Rolling upgrades and downgrades of a group of real clients, which process each record once."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.clients import (
    DEADLINE_S,
    Kafka,
    admin,
    committed_offset,
    make_member,
    make_producer,
    make_topic,
    send,
    unique,
)
from tests.support.java_tools import java_tool
from tests.support.waiting import wait_until

PARTITIONS = 4
CLASSIC, CONSUMER = "CLASSIC", "CONSUMER"


class Fleet:
    """The members of one group; a record counts as processed when its commit was accepted."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.topic = topic
        self.group = unique("group")
        self.members: list[Consumer] = []
        self.processed: Counter[tuple[int, int]] = Counter()
        self.sent = 0
        self._kafka = kafka
        self._admin: AdminClient = admin(kafka)
        self._producer = make_producer(kafka)

    def start(self, protocol: str) -> Consumer:
        """Start a member; it joins as the others are polled."""
        member = make_member(self._kafka, self.group, protocol=protocol, enable_auto_commit=False)
        member.subscribe([self.topic])
        self.members.append(member)
        return member

    def stop(self, member: Consumer) -> None:
        """Let a member leave the group."""
        self.members.remove(member)
        member.close()

    def produce(self, count: int) -> None:
        """Send this many records to each partition."""
        for partition in range(PARTITIONS):
            send(self._producer, self.topic, [b"x"] * count, partition=partition)
        self.sent += count

    def poll(self) -> None:
        """Poll each member once, and commit what it has got."""
        for member in self.members:
            message = member.poll(0.02)
            if message is None or message.error() is not None:
                continue
            try:
                member.commit(message, asynchronous=False)
            except KafkaException:
                continue  # The member has lost the partition: its next reader gets the record again.
            self.processed[message.partition(), message.offset()] += 1

    def settle(self) -> None:
        """Wait until the members share all partitions and have processed all records."""
        expected = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self.sent)}

        def is_settled() -> bool:
            self.poll()
            assigned = [{where.partition for where in member.assignment()} for member in self.members]
            shared = sum(map(len, assigned)) == PARTITIONS and all(assigned)
            return shared and self.processed.keys() == expected

        wait_until(is_settled, "the members share the partitions and have processed all records", pause_s=0)

    @property
    def type(self) -> str:
        """Return the type of the group."""
        listed = self._admin.list_consumer_groups(request_timeout=DEADLINE_S).result(DEADLINE_S)
        return next(entry.type.name for entry in listed.valid if entry.group_id == self.group)

    def check(self) -> None:
        """Check that each record was processed once, and is committed."""
        assert {key: count for key, count in self.processed.items() if count > 1} == {}
        for partition in range(PARTITIONS):
            assert committed_offset(self._kafka, self.group, self.topic, partition) == self.sent


def test_rolling_upgrade_and_downgrade_processes_each_record_once(kafka: Kafka):
    fleet = Fleet(kafka, make_topic(kafka, partitions=PARTITIONS))
    try:
        for _ in range(2):
            fleet.start("classic")
        fleet.produce(5)
        fleet.settle()
        assert fleet.type == CLASSIC
        for start, types in (("consumer", [CONSUMER, CONSUMER]), ("classic", [CONSUMER, CLASSIC])):
            for former, group_type in zip(list(fleet.members), types, strict=True):
                fleet.produce(5)
                fleet.start(start)
                fleet.settle()
                fleet.produce(5)
                fleet.poll()
                fleet.stop(former)
                fleet.settle()
                assert fleet.type == group_type
        fleet.check()
    finally:
        for member in list(fleet.members):
            fleet.stop(member)


@pytest.mark.usefixtures("apache_asked_for")
@pytest.mark.parametrize(("own", "javas"), [("classic", "consumer"), ("consumer", "classic")])
def test_the_java_consumer_joins_a_group_of_the_other_protocol(kafka: Kafka, tmp_path, own: str, javas: str):
    fleet = Fleet(kafka, make_topic(kafka, partitions=PARTITIONS))
    settings = tmp_path / "consumer.properties"
    settings.write_text(f"group.protocol={javas}\ngroup.id={fleet.group}\nauto.offset.reset=earliest\n")
    arguments = ("--topic", fleet.topic, "--num-records", "20", "--timeout", "60000", "--group", fleet.group)
    member = fleet.start(own)
    try:
        fleet.settle()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                java_tool,
                "ConsumerPerformance",
                "--bootstrap-server",
                kafka.bootstrap_servers,
                *arguments,
                "--command-config",
                str(settings),
            )
            wait_until(lambda: fleet.poll() or running.done() or len(member.assignment()) == 2, "Java has joined")
            assert running.done() or fleet.type == CONSUMER
            fleet.produce(10)
            wait_until(lambda: fleet.poll() or running.done(), "the Java consumer has read its records", pause_s=0)
        printed = running.result().output
        wait_until(lambda: fleet.poll() or len(member.assignment()) == PARTITIONS, "the member has all partitions")
        assert fleet.type == own.upper()
    finally:
        fleet.stop(member)
    read_by_java = int(printed.splitlines()[1].split(",")[4])
    assert read_by_java == 20
    assert sum(fleet.processed.values()) == 20
    for partition in range(PARTITIONS):
        assert committed_offset(kafka, fleet.group, fleet.topic, partition) == 10
