"""The clients of a history: librdkafka in one thread per client, with each operation recorded before and after.

After an error that a client cannot recover from, a new client takes its name, as in a restarted application. An open
operation is recorded as failed if the client reports that, else with an unknown outcome.
"""

import contextlib
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.clients import LOG_NOTHING, READ_COMMITTED
from tests.support.history.format import FAIL, INFO, OK
from tests.support.history.recorder import Recorder

IN, OUT = "in", "out"
PARTITIONS: Final = 2
# Shorter than the rest of a run after the last fault, longer than any fault.
END_DEADLINE_S: Final = 30
# A broker that is paused for longer finds these expired when it resumes.
SESSION_TIMEOUT_S: Final = 6
TRANSACTION_TIMEOUT_S: Final = 10
_POLL_S: Final = 0.2
# A fenced producer logs an emergency, which no log level of librdkafka suppresses.
_NOWHERE = logging.Logger("nowhere", level=logging.CRITICAL + 1)  # noqa: LOG001 - in no tree of loggers
_DELIBERATE_ABORT_SHARE: Final = 0.15
# With one broker every restart would make librdkafka start over from its bootstrap servers (KIP-899), after which
# send_offsets_to_transaction waits forever for the coordinator's former connection (seen with 2.16).
_NO_REBOOTSTRAP: Final = {"metadata.recovery.strategy": "none"}


class Client(Protocol):
    """A client that runs one operation after another until it is stopped."""

    def step(self) -> None:
        """Run one operation."""

    def close(self) -> None:
        """Release the connections."""


def key_of(topic: str, partition: int) -> str:
    """Return the name of a topic-partition in a history."""
    return f"{topic}-{partition}"


class _Transactions:
    """Transactions under one transactional id, recorded with their outcome."""

    def __init__(self, name: str, address: str, recorder: Recorder) -> None:
        self.name = name
        self._address = address
        self._recorder = recorder
        self._producer: Producer | None = None
        self._count = 0

    def run(self, steps: list[list[Any]], work: Callable[[Producer], None], *, abort: bool = False) -> bool:
        """Send the records of `steps`, call `work`, and end the transaction; return whether it was committed."""
        producer = self._ready()
        if producer is None:
            return False
        self._count += 1
        name = f"{self.name}/{self._count}"
        self._recorder.begin(self.name, "txn", steps, transaction=name)
        offsets: dict[int, int] = {}
        kind, error = INFO, ""
        try:
            producer.begin_transaction()
            for step in steps:
                if step[0] == "send":
                    topic, _, partition = step[1].rpartition("-")
                    producer.produce(
                        topic, str(step[2]), partition=int(partition), on_delivery=_noting(offsets, step[2])
                    )
            work(producer)
            producer.flush(END_DEADLINE_S)
            kind = self._end(producer, abort)
        except KafkaException as failure:
            kind, error = self._give_up(producer, failure)
        ended = [["send", step[1], [offsets.get(step[2]), step[2]]] if step[0] == "send" else step for step in steps]
        self._recorder.note(self.name, kind, "txn", ended, transaction=name, error=error or None)
        return kind == OK

    def _ready(self) -> Producer | None:
        if self._producer is None:
            producer = Producer(
                {
                    "bootstrap.servers": self._address,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_S * 1_000,
                    "linger.ms": 0,
                    "log_level": LOG_NOTHING,
                    "retry.backoff.max.ms": 200,
                    "reconnect.backoff.max.ms": 200,
                }
                | _NO_REBOOTSTRAP,
                logger=_NOWHERE,
            )
            try:
                producer.init_transactions(END_DEADLINE_S)
            except KafkaException:
                return None
            self._producer = producer
        return self._producer

    def _end(self, producer: Producer, abort: bool) -> str:
        if abort:
            producer.abort_transaction(END_DEADLINE_S)
            return FAIL
        producer.commit_transaction(END_DEADLINE_S)
        return OK

    def _give_up(self, producer: Producer, failure: KafkaException) -> tuple[str, str]:
        """Abort if the error requires it: only then has the transaction certainly failed."""
        error: KafkaError = failure.args[0]
        if error.txn_requires_abort():
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(END_DEADLINE_S)
                return FAIL, str(error)
        self._producer = None
        return INFO, str(error)


def _noting(offsets: dict[int, int], value: int) -> Callable[[KafkaError | None, Message], None]:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets[value] = message.offset()

    return note


class Writer:
    """A client that writes up to four records to partitions of one topic in each transaction."""

    def __init__(self, name: str, address: str, recorder: Recorder, chance: random.Random) -> None:
        self._transactions = _Transactions(name, address, recorder)
        self._recorder = recorder
        self._chance = chance

    def step(self) -> None:
        """Run one transaction."""
        steps = [
            ["send", key_of(IN, self._chance.randrange(PARTITIONS)), self._recorder.next_value()]
            for _ in range(self._chance.randint(1, 4))
        ]
        self._transactions.run(steps, lambda producer: None, abort=self._chance.random() < _DELIBERATE_ABORT_SHARE)

    def close(self) -> None:
        """Do nothing: the next client with this transactional id takes it over."""


class Worker:
    """A client that consumes, transforms and produces, with the group's offsets in its transactions."""

    def __init__(self, name: str, address: str, recorder: Recorder, chance: random.Random, group: str) -> None:
        self._name = name
        self._address = address
        self._recorder = recorder
        self._chance = chance
        self._group = group
        self._transactions = _Transactions(name, address, recorder)
        self._consumer: Consumer | None = None

    def step(self) -> None:
        """Copy a few records."""
        consumer = self._ready()
        try:
            messages = [each for each in consumer.consume(5, _POLL_S) if each.error() is None]
        except KafkaException:
            self.close()
            return
        if not messages:
            return
        records, ends = _by_key(messages)
        steps: list[list[Any]] = [
            ["send", key_of(OUT, self._chance.randrange(PARTITIONS)), self._recorder.next_value()] for _ in messages
        ]
        steps += [["poll", records], ["offsets", self._group, {key_of(*place): end for place, end in ends.items()}]]
        offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]

        def commit_offsets(producer: Producer) -> None:
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), END_DEADLINE_S)

        if not self._transactions.run(steps, commit_offsets, abort=self._chance.random() < _DELIBERATE_ABORT_SHARE):
            # The records must be read again from the group's offset, where a new member starts.
            self.close()

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
            self._recorder.begin(self._name, "crash")
            self._recorder.note(self._name, OK, "crash")

    def _ready(self) -> Consumer:
        if self._consumer is None:

            def moved(*_: object) -> None:
                self._recorder.begin(self._name, "assign")
                self._recorder.note(self._name, OK, "assign")

            self._consumer = Consumer(
                _consumer_settings(self._address, READ_COMMITTED)
                | {
                    "group.id": self._group,
                    "session.timeout.ms": SESSION_TIMEOUT_S * 1_000,
                    "heartbeat.interval.ms": 500,
                }
            )
            self._consumer.subscribe([IN], on_assign=moved)
        return self._consumer


class Reader:
    """A client that reads all partitions from their beginning, and restarts from there now and then."""

    def __init__(self, name: str, address: str, recorder: Recorder, chance: random.Random, isolation: str) -> None:
        self.name = name
        self._recorder = recorder
        self._chance = chance
        self._isolation = isolation
        self._consumer = Consumer(_consumer_settings(address, isolation) | {"group.id": name})
        self._assign(dict.fromkeys(_everywhere(), 0))

    def step(self) -> None:
        """Poll once."""
        if self._chance.random() < 0.02:
            self._assign(dict.fromkeys(_everywhere(), 0))
        self._poll()

    def drain(self, ends: Mapping[tuple[str, int], int], deadline_s: float) -> list[str]:
        """Read from the beginning to the ends of the logs, and return the partitions whose end was not reached in time.

        Call it when all writers have stopped. A committed reader does not get past a transaction that never ends.
        """
        deadline = time.monotonic() + deadline_s
        self._assign(dict.fromkeys(_everywhere(), 0))
        missing = {place for place, end in ends.items() if end > 0}
        while missing and time.monotonic() < deadline:
            self._poll()
            for position in self._consumer.position([TopicPartition(*place) for place in missing]):
                place = (position.topic, position.partition)
                if position.offset >= ends[place]:
                    missing.discard(place)
        self._recorder.begin(self.name, "drained")
        self._recorder.note(
            self.name, OK, "drained", {key_of(*place): end for place, end in ends.items() if place not in missing}
        )
        return sorted(key_of(*place) for place in missing)

    def close(self) -> None:
        self._consumer.close()

    def _assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        self._recorder.begin(self.name, "assign")
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in positions.items()])
        self._recorder.note(self.name, OK, "assign")

    def _poll(self) -> None:
        self._recorder.begin(self.name, "poll", isolation=self._isolation)
        messages = [each for each in self._consumer.consume(50, _POLL_S) if each.error() is None]
        self._recorder.note(self.name, OK, "poll", [["poll", _by_key(messages)[0]]], isolation=self._isolation)


class OffsetReader:
    """A client that reads a group's committed offsets, and waits for open transactions."""

    def __init__(self, name: str, address: str, recorder: Recorder, group: str) -> None:
        self._name = name
        self._recorder = recorder
        self._group = group
        self._consumer = Consumer(_consumer_settings(address, READ_COMMITTED) | {"group.id": group})

    def step(self) -> None:
        """Fetch the offsets once."""
        self._recorder.begin(self._name, "committed")
        try:
            found = self._consumer.committed([TopicPartition(IN, each) for each in range(PARTITIONS)], 5)
        except KafkaException as failure:
            self._recorder.note(self._name, FAIL, "committed", error=str(failure))
            return
        offsets = {
            key_of(each.topic, each.partition): each.offset if each.offset >= 0 else None
            for each in found
            if each.error is None
        }
        self._recorder.note(self._name, OK, "committed", [["offsets", self._group, offsets]])

    def close(self) -> None:
        self._consumer.close()


def _consumer_settings(address: str, isolation: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "log_level": LOG_NOTHING,
        "reconnect.backoff.max.ms": 200,
    } | _NO_REBOOTSTRAP


def _everywhere() -> list[tuple[str, int]]:
    return [(topic, partition) for topic in (IN, OUT) for partition in range(PARTITIONS)]


def _by_key(messages: Sequence[Message]) -> tuple[dict[str, list[list[int]]], dict[tuple[str, int], int]]:
    """Return the records in the form of a history, and the next offset of each partition."""
    records: dict[str, list[list[int]]] = defaultdict(list)
    ends: dict[tuple[str, int], int] = {}
    for each in messages:
        place = (str(each.topic()), int(each.partition() or 0))
        offset = int(each.offset() or 0)
        records[key_of(*place)].append([offset, int(each.value() or b"0")])
        ends[place] = offset + 1
    return dict(records), ends
