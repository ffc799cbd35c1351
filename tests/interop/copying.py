"""Input to copy, progress of a copy, and its check: every input once, in order."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaException

from tests.interop.adapters.serving import OUT
from tests.interop.driver import Copy
from tests.interop.judge import Broker, end, end_offset, make_topic, write
from tests.support.clients import READ_COMMITTED, READ_UNCOMMITTED, read_to_end, unique
from tests.support.waiting import wait_until

PARTITIONS = 2
# The time after which a group removes a member without heartbeats.
SHORT_SESSION_MS = 2_000
RECORDS = 60

with_or_without_metadata = pytest.mark.parametrize("sends", ["group metadata", "group alone"])
hard_or_clean = pytest.mark.parametrize("hard", [True, False], ids=["hard", "clean"])


@dataclass
class Job:
    """The two topics, the task, and the records that each partition of the copy must have."""

    kafka: Broker
    task: Copy
    wanted: dict[int, list[str]] = field(default_factory=dict)

    def feed(self, partition: int, *values: str) -> None:
        """Write to the source."""
        write(self.kafka, self.task.source, *values, partition=partition)
        self.wanted.setdefault(partition, []).extend(OUT + value for value in values)

    def feed_last(self) -> None:
        """Write the records that end the copy."""
        end(self.kafka, self.task.source, PARTITIONS)

    def copied(self) -> int:
        """Return the sum of the copy's last stable offsets, or -1 while a partition has no leader."""
        try:
            return sum(
                end_offset(self.kafka, self.task.target, isolation=READ_COMMITTED, partition=each)
                for each in range(PARTITIONS)
            )
        except KafkaException:
            return -1

    def check_progress(self, value: str) -> None:
        """Write one more record and wait until the copy has grown."""
        before = wait_until(lambda: self.copied() + 1, "the target has leaders") - 1
        self.feed(0, value)
        wait_until(lambda: self.copied() > before, "the copy continues")

    def assert_copied_once(self) -> None:
        """Compare what a read_committed reader of the copy sees with the expected records."""
        for partition in range(PARTITIONS):
            # The last markers may be written after the copy has ended.
            wait_until(
                lambda at=partition: (
                    end_offset(self.kafka, self.task.target, isolation=READ_COMMITTED, partition=at)
                    == end_offset(self.kafka, self.task.target, isolation=READ_UNCOMMITTED, partition=at)
                ),
                "no transaction is open",
            )
        for partition, found in self.seen().items():
            wanted = self.wanted.get(partition, [])
            assert found == wanted, (
                f"partition {partition}: {len(found)} of {len(wanted)}, missing {Counter(wanted) - Counter(found)}, "
                f"more than once {Counter(found) - Counter(wanted)}"
            )

    def seen(self, isolation: str = READ_COMMITTED) -> dict[int, list[str]]:
        """Return the values in each partition of the copy."""
        found: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        for message in read_to_end(self.kafka, self.task.target, isolation=isolation, partitions=PARTITIONS):
            found[message.partition()].append(message.value().decode())
        return found


def make_job(
    kafka: Broker,
    *,
    records: int = RECORDS,
    metadata: bool = False,
    instance: str | None = None,
    session_ms: int = 6_000,
) -> Job:
    """Make a source with records and an empty target."""
    source, target = make_topic(kafka, partitions=PARTITIONS), make_topic(kafka, partitions=PARTITIONS)
    job = Job(kafka, Copy(unique("group"), unique("copy"), source, target, PARTITIONS, metadata, instance, session_ms))
    for partition in range(PARTITIONS):
        job.feed(partition, *(f"{partition}-{number}" for number in range(records)))
    return job
