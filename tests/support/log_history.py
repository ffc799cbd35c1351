"""A varied history of writes through clients, for tests of the files that it leaves.

It has every codec, segments that roll within transactions, commits, aborts, one transaction that never ends, and groups
of each kind.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import Producer, TopicPartition
from kafka.protocol.consumer import JoinGroupRequest, SyncGroupRequest

from tests.support.clients import (
    DEADLINE_S,
    Kafka,
    make_consumer,
    make_producer,
    make_topic,
    make_transactional_producer,
    send,
    unique,
)
from tests.support.messages import filled
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession, record_batch
from tests.support.waiting import wait_until

PARTITIONS = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMMITS, ABORTS, FIRST, SECOND, LONG, FRESH, OPEN = ("commits", "aborts", "first", "second", "long", "fresh", "open")
COMPLETED = {
    COMMITS: "CompleteCommit",
    ABORTS: "CompleteAbort",
    FIRST: "CompleteAbort",
    SECOND: "CompleteCommit",
    LONG: "CompleteAbort",
    "codecs": "CompleteCommit",
}
TRANSACTIONAL_IDS = (*COMPLETED, FRESH, OPEN)
# Groups: one that consumed and left, one with a member, one that only transactions wrote to, and one with offsets in
# the open transaction.
LEFT, MEMBER, BY_TRANSACTION, PENDING = "left", "member", "by-transaction", "pending"
GROUPS = (LEFT, MEMBER, BY_TRANSACTION, PENDING)
OPEN_VALUES = [b"open-%d" % number for number in range(5)]
AFTER_OPEN = [b"after-%d" % number for number in range(5)]
PENDING_BEFORE, PENDING_AFTER = 7, 11
_SESSION_MS = 300_000
# For the cleaner: how often the same keys are written, each time once committed and once aborted.
ROUNDS, KEYS = 12, 10


class History(NamedTuple):
    """What the writers know: per partition the values of each outcome, in the order of sending."""

    topic: str
    decided: Mapping[int, list[bytes]]
    aborted: Mapping[int, list[bytes]]

    def all_values(self, partition: int) -> list[bytes]:
        """Return every value of the partition, sorted, because the order among outcomes is unknown."""
        open_values = OPEN_VALUES + AFTER_OPEN if partition == 0 else []
        return sorted(self.decided[partition] + self.aborted[partition] + open_values)


class _Writer:
    """The writer of the history's parts."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka = kafka
        self.topic = topic
        self.history = History(
            topic, {number: [] for number in range(PARTITIONS)}, {number: [] for number in range(PARTITIONS)}
        )

    def note(self, partition: int, values: list[bytes], *, commit: bool = True) -> None:
        """Record the outcome of values."""
        (self.history.decided if commit else self.history.aborted)[partition].extend(values)

    def without_transactions(self) -> None:
        """Send batches of every codec with keys and headers, followed by some of an idempotent producer."""
        for codec in CODECS:
            producer = make_producer(self.kafka, compression_type=codec)
            values = _values(codec, 40)
            for number, value in enumerate(values):
                producer.produce(
                    self.topic,
                    value,
                    key=b"%s-%d" % (codec.encode(), number),
                    partition=0,
                    headers=[("codec", codec.encode()), ("nothing", None)],
                )
            assert producer.flush(DEADLINE_S) == 0
            self.note(0, values)
        producer = make_producer(self.kafka, enable_idempotence=True)
        for part in range(7):
            values = _values(f"idempotent-{part}", 10)
            send(producer, self.topic, values)
            self.note(0, values)

    def one_after_the_other(self) -> None:
        """Commit and abort alternately, compressed and not, in both partitions."""
        for codec in CODECS:
            producer = make_transactional_producer(self.kafka, "codecs", compression_type=codec)
            for commit in (False, True):
                self.run(producer, f"{codec}-{commit}", commit=commit)
        for name, commit in ((COMMITS, True), (ABORTS, False)):
            producer = make_transactional_producer(self.kafka, name)
            for turn in range(3):
                self.run(producer, f"{name}-{turn}", commit=commit)

    def run(self, producer: Producer, name: str, *, commit: bool, count: int = 20) -> None:
        """Run one transaction on both partitions."""
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            values = _values(f"{name}-{partition}", count)
            send(producer, self.topic, values, partition=partition)
            self.note(partition, values, commit=commit)
        _end(producer, commit=commit)

    def interleaved(self) -> None:
        """Begin two transactions, commit the second, abort the first; then abort one of several segments."""
        first, second = (make_transactional_producer(self.kafka, name) for name in (FIRST, SECOND))
        for number, producer in enumerate((first, second)):
            producer.begin_transaction()
            values = _values(f"interleaved-{number}", 10)
            send(producer, self.topic, values)
            self.note(0, values, commit=producer is second)
        _end(second, commit=True)
        _end(first, commit=False)
        long = make_transactional_producer(self.kafka, LONG)
        long.begin_transaction()
        for part in range(10):
            values = _values(f"long-{part}", 40)
            send(long, self.topic, values)
            self.note(0, values, commit=False)
        _end(long, commit=False)
        make_transactional_producer(self.kafka, FRESH)

    def groups(self) -> None:
        """Commit offsets as a group member and within transactions."""
        consumer = make_consumer(self.kafka, group=LEFT, enable_partition_eof=False)
        consumer.subscribe([self.topic])
        wait_until(lambda: consumer.poll(0.2), "a record for the group")
        consumer.commit(
            offsets=[TopicPartition(self.topic, 0, 5, "a note"), TopicPartition(self.topic, 1, 6)], asynchronous=False
        )
        consumer.close()
        consumer = make_consumer(self.kafka, group=BY_TRANSACTION)
        metadata = consumer.consumer_group_metadata()
        for name, commit, offset in ((COMMITS, True, 21), (ABORTS, False, 22), (COMMITS, True, 23)):
            producer = make_transactional_producer(self.kafka, name)
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                [TopicPartition(self.topic, 0, offset, name), TopicPartition(self.topic, 1, offset + 100)],
                metadata,
                DEADLINE_S,
            )
            _end(producer, commit=commit)
        consumer.close()

    def left_open(self, client: RawClient) -> None:
        """Leave a transaction open in a partition and in a group, followed by plain records."""
        session = RawSession(client, OPEN)
        assert session.commit_plainly(PENDING, self.topic, PENDING_BEFORE) == 0
        identity = session.init_until_done(timeout_ms=_SESSION_MS)
        error, _ = session.produce(self.topic, record_batch(OPEN_VALUES, identity, 0), version=12)
        assert error == 0
        assert session.commit_in_transaction(identity, PENDING, self.topic, PENDING_AFTER, version=5) == 0
        send(make_producer(self.kafka), self.topic, AFTER_OPEN)


def write_history(kafka: Kafka, config: Mapping[str, str]) -> History:
    """Write everything to a new topic with this configuration and return once all markers are written."""
    writer = _Writer(kafka, make_topic(kafka, partitions=PARTITIONS, config=config))
    writer.without_transactions()
    writer.one_after_the_other()
    writer.interleaved()
    writer.groups()
    with RawClient(kafka.bootstrap_servers) as client:
        for name, state in COMPLETED.items():
            session = RawSession(client, name)
            wait_until(
                lambda session=session, state=state: session.describe().transaction_state == state,
                f"{name} is in {state}",
            )
        writer.left_open(client)
        _join(client, writer.topic)
    return writer.history


def write_repetitions(kafka: Kafka, config: Mapping[str, str]) -> str:
    """Write the same keys repeatedly to a topic with this configuration, with every second transaction aborted."""
    topic = make_topic(kafka, config=config)
    commits, aborts = (make_transactional_producer(kafka, unique("repetitions")) for _ in range(2))
    for turn in range(ROUNDS):
        for producer in (commits, aborts):
            producer.begin_transaction()
            for number in range(KEYS):
                producer.produce(topic, b"%d " % turn * 20, key=b"key-%d" % number, partition=0)
            assert producer.flush(DEADLINE_S) == 0
            _end(producer, commit=producer is commits)
    return topic


def _values(name: str, count: int) -> list[bytes]:
    # Repetitive, or the client would leave the batch uncompressed.
    return [b"%s-%d-" % (name.encode(), number) + b"abcdefgh" * 12 for number in range(count)]


def _end(producer: Producer, *, commit: bool) -> None:
    if commit:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)


def _join(client: RawClient, topic: str) -> None:
    """Join a group with a static member id, and send nothing more once the group is stable."""
    who = {"group_id": MEMBER, "group_instance_id": "static"}
    request = filled(
        JoinGroupRequest,
        **who,
        session_timeout_ms=_SESSION_MS,
        rebalance_timeout_ms=_SESSION_MS,
        protocol_type="consumer",
        protocols=[{"name": "by-hand", "metadata": json.dumps([topic]).encode()}],
    )

    def join() -> Any:
        answer = client.send(request, 5)
        return answer if answer.error_code == 0 else None

    joined = wait_until(join, "the static member has joined")
    given = [{"member_id": joined.member_id, "assignment": b"all of it"}]
    who |= {"generation_id": joined.generation_id, "member_id": joined.member_id}
    answer = client.send(filled(SyncGroupRequest, **who, assignments=given), 3)
    assert answer.error_code == 0
