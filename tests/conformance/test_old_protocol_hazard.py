"""The hazard that KIP-890 fixes: it exists in the older protocol and not in transactions V2.

Under the old protocol all transactions of a producer have one epoch, so a late request of the previous transaction
looks like one of the current transaction. An old client has this problem on a cluster whose `transaction.version` is 1,
which has no other protocol, and also on one where it is 2. The checker of histories gets what writer and reader saw. It
must find the anomaly under the old protocol, and nothing under the new one.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Message

from broker_core.errors import ErrorCode
from tests.support.clients import READ_COMMITTED, Kafka, end_offset, make_topic, read_to_end, unique
from tests.support.history.anomalies import Kind
from tests.support.history.checker import check
from tests.support.history.format import FAIL, OK
from tests.support.history.recorder import Recorder
from tests.support.interop_brokers import at_version
from tests.support.protocols import CLASSIC, END, PRODUCE, V2, bumped, wait_for_state
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession, record_batch

NONE = ErrorCode.NONE
PARTITIONS: Final = 2


class Outcome(NamedTuple):
    """The response to the late request, the values in the topic at the end, and what the checker found."""

    answer: int
    seen: list[int]
    anomalies: list[Kind]


class Stage:
    """One producer, one topic in which each value is in the partition of its number, and their history."""

    def __init__(self, kafka: Kafka, client: RawClient, protocol: int) -> None:
        self.session = RawSession(client, unique("id"))
        self.protocol = protocol
        self.first = self.session.init_until_done()
        # The producer's identity in its second transaction.
        self.second = bumped(self.first) if protocol == V2 else self.first
        self._recorder = Recorder()
        self._kafka = kafka
        self._topic = make_topic(kafka, partitions=PARTITIONS)

    def begin(self, name: str, *values: int) -> None:
        """Note the beginning of a transaction that is to write these values."""
        self._recorder.begin("writer", "txn", self._steps(values), transaction=name)

    def add(self, value: int, identity: Identity) -> None:
        """Add the value's partition to the transaction, which is a separate step of the old protocol only."""
        if self.protocol == CLASSIC:
            self.session.add_until_done(identity, self._topic, value % PARTITIONS)

    def write(self, value: int, identity: Identity, sequence: int = 0) -> None:
        """Write one record as the protocol requires."""
        self.add(value, identity)
        assert self.send(value, identity, sequence) == NONE

    def send(self, value: int, identity: Identity, sequence: int = 0) -> int:
        """Send one record and nothing before it, and return the error code."""
        batch = record_batch([b"%d" % value], identity, sequence)
        return self.session.produce(self._topic, batch, version=PRODUCE[self.protocol], partition=value % PARTITIONS)[0]

    def end(self, name: str, identity: Identity, values: list[int], *, commit: bool) -> None:
        """End the transaction, note the result that its client sees, and wait for the markers."""
        assert self.session.end_until_done(identity, commit=commit, version=END[self.protocol])[0] == NONE
        self._recorder.note("writer", OK if commit else FAIL, "txn", self._steps(values), transaction=name)
        wait_for_state(self.session, "CompleteCommit" if commit else "CompleteAbort")

    def end_late(self, identity: Identity) -> int:
        """Send the committing EndTxn again, and return the error code."""
        return self.session.end(identity, commit=True, version=END[self.protocol])[0]

    def judge(self, answer: int) -> Outcome:
        """Read everything as a read_committed reader and check the history."""
        self._recorder.begin("reader", "poll")
        messages = read_to_end(self._kafka, self._topic, isolation=READ_COMMITTED, partitions=PARTITIONS)
        self._recorder.note(
            "reader",
            OK,
            "poll",
            [
                [
                    "poll",
                    {
                        self._key(number): [
                            [each.offset(), _value(each)] for each in messages if each.partition() == number
                        ]
                        for number in range(PARTITIONS)
                    },
                ]
            ],
        )
        self._recorder.begin("reader", "drained")
        self._recorder.note(
            "reader",
            OK,
            "drained",
            {
                self._key(number): end_offset(self._kafka, self._topic, isolation=READ_COMMITTED, partition=number)
                for number in range(PARTITIONS)
            },
        )
        anomalies = check(self._recorder.ops)
        return Outcome(answer, sorted(map(_value, messages)), [each.kind for each in anomalies])

    def _key(self, number: int) -> str:
        return f"{self._topic}-{number}"

    def _steps(self, values: tuple[int, ...] | list[int]) -> list[list[object]]:
        return [["send", self._key(value % PARTITIONS), value] for value in values]


def _value(message: Message) -> int:
    return int(message.value() or b"")


@pytest.fixture
def kafka_of_version_1(kafka: Kafka) -> Iterator[Kafka]:
    """Return the broker while its finalized `transaction.version` is 1."""
    with at_version(kafka, 1):
        yield kafka


def late_end(kafka: Kafka, protocol: int) -> Outcome:
    """Send the EndTxn of a committed transaction again while the next one, to be aborted, is half written."""
    with RawClient(kafka.bootstrap_servers) as client:
        stage = Stage(kafka, client, protocol)
        stage.begin("t1", 10)
        stage.write(10, stage.first)
        stage.end("t1", stage.first, [10], commit=True)
        stage.begin("t2", 21, 20)
        stage.write(21, stage.second)
        answer = stage.end_late(stage.first)
        if answer == NONE:
            wait_for_state(stage.session, "CompleteCommit")
        else:
            assert stage.session.describe().transaction_state == "Ongoing"
        stage.write(20, stage.second, sequence=1 if protocol == CLASSIC else 0)
        stage.end("t2", stage.second, [21, 20], commit=False)
        return stage.judge(answer)


def late_write(kafka: Kafka, protocol: int) -> Outcome:
    """Send a batch that its client gave up with an aborted transaction during the next one, which is committed."""
    with RawClient(kafka.bootstrap_servers) as client:
        stage = Stage(kafka, client, protocol)
        stage.begin("t1", 10, 12)
        stage.write(10, stage.first)
        # The network delays the batch of 12; its client gives up.
        stage.end("t1", stage.first, [10, 12], commit=False)
        stage.begin("t2", 21)
        stage.write(21, stage.second)
        # The second transaction adds the partition, to write there later.
        stage.add(12, stage.second)
        answer = stage.send(12, stage.first, sequence=1)
        stage.end("t2", stage.second, [21], commit=True)
        return stage.judge(answer)


def test_late_end_txn_ends_the_next_transaction_under_version_1(kafka_of_version_1: Kafka):
    """The first half is committed while the rest is written; the response to the client is that all was aborted."""
    assert late_end(kafka_of_version_1, CLASSIC) == (NONE, [10, 21], [Kind.ABORTED_READ])


def test_late_end_txn_of_an_old_client_ends_the_next_transaction_under_version_2(kafka: Kafka):
    assert late_end(kafka, CLASSIC) == (NONE, [10, 21], [Kind.ABORTED_READ])


def test_late_end_txn_is_refused_under_the_new_protocol(kafka: Kafka):
    assert late_end(kafka, V2) == (ErrorCode.PRODUCER_FENCED, [10], [])


def test_late_write_enters_the_next_transaction_under_version_1(kafka_of_version_1: Kafka):
    """A record that the client gave up with its first transaction is committed with its second."""
    assert late_write(kafka_of_version_1, CLASSIC) == (NONE, [12, 21], [Kind.ABORTED_READ])


def test_late_write_of_an_old_client_enters_the_next_transaction_under_version_2(kafka: Kafka):
    assert late_write(kafka, CLASSIC) == (NONE, [12, 21], [Kind.ABORTED_READ])


def test_late_write_is_refused_under_the_new_protocol(kafka: Kafka):
    assert late_write(kafka, V2) == (ErrorCode.INVALID_PRODUCER_EPOCH, [21], [])
