"""The clients of a history: librdkafka's, each in a thread that records each operation before and after.

A client that meets an error it cannot mend is thrown away and a new one takes its name, as an application would be
started again. What it had under way is noted as failed where the client says so, else as of unknown fate.
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
# Shorter than what is left of a run when everything is healed, longer than any fault.
END_DEADLINE_S: Final = 30
# A broker that is paused for longer finds these passed when it goes on.
SESSION_TIMEOUT_S: Final = 6
TRANSACTION_TIMEOUT_S: Final = 10
_POLL_S: Final = 0.2
# A producer that is fenced reports an emergency, which no level of logging keeps back.
_NOWHERE = logging.Logger("nowhere", level=logging.CRITICAL + 1)  # noqa: LOG001 - in no tree of loggers
_DELIBERATE_ABORT_SHARE: Final = 0.15
# With one broker every restart would make librdkafka start over from its bootstrap servers (KIP-899), after which
# send_offsets_to_transaction waits for ever for the coordinator's former connection (seen with 2.16).
_NO_NEW_BEGINNING: Final = {"metadata.recovery.strategy": "none"}


class Client(Protocol):
    """Run one operation after another until stopped."""

    def step(self) -> None:
        """Do one operation."""

    def close(self) -> None:
        """Let go of what is held."""


def key_of(topic: str, partition: int) -> str:
    """Name a topic-partition as histories do."""
    return f"{topic}-{partition}"


class _Transactions:
    """Run transactions under one transactional id and note how they ended."""

    def __init__(self, name: str, address: str, recorder: Recorder) -> None:
        self.name = name
        self._address = address
        self._recorder = recorder
        self._producer: Producer | None = None
        self._count = 0

    def run(self, steps: list[list[Any]], work: Callable[[Producer], None], *, abort: bool = False) -> bool:
        """Send what `steps` say, do `work`, and end the transaction; says whether it was committed."""
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
                | _NO_NEW_BEGINNING,
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
        """Abort if that is what the error asks for: only then did the transaction certainly fail."""
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
    """Write up to four records to any of the partitions of one topic in each transaction."""

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
        """Leave the transactional id to the next client that uses it."""


class Worker:
    """Consume, transform, produce: a member of a group whose offsets are part of its transactions."""

    def __init__(self, name: str, address: str, recorder: Recorder, chance: random.Random, group: str) -> None:
        self._name = name
        self._address = address
        self._recorder = recorder
        self._chance = chance
        self._group = group
        self._transactions = _Transactions(name, address, recorder)
        self._consumer: Consumer | None = None

    def step(self) -> None:
        """Move a few records."""
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
            # What was read has to be read again from where the group is: a new member begins there.
            self.close()

    def close(self) -> None:
        """Leave the group."""
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
    """Read all partitions from their beginning, and begin again now and then."""

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
        """Read from the beginning to the ends of the logs, and name the partitions where that takes too long.

        Call it when nobody writes any more. A transaction that never ends keeps a committed reader from the end.
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
        """Stop reading."""
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
    """Ask where a group stands, and wait for open transactions to say so."""

    def __init__(self, name: str, address: str, recorder: Recorder, group: str) -> None:
        self._name = name
        self._recorder = recorder
        self._group = group
        self._consumer = Consumer(_consumer_settings(address, READ_COMMITTED) | {"group.id": group})

    def step(self) -> None:
        """Ask once."""
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
        """Stop asking."""
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
    } | _NO_NEW_BEGINNING


def _everywhere() -> list[tuple[str, int]]:
    return [(topic, partition) for topic in (IN, OUT) for partition in range(PARTITIONS)]


def _by_key(messages: Sequence[Message]) -> tuple[dict[str, list[list[int]]], dict[tuple[str, int], int]]:
    """Return what was read as histories have it, and the next offset of each partition."""
    records: dict[str, list[list[int]]] = defaultdict(list)
    ends: dict[tuple[str, int], int] = {}
    for each in messages:
        place = (str(each.topic()), int(each.partition() or 0))
        offset = int(each.offset() or 0)
        records[key_of(*place)].append([offset, int(each.value() or b"0")])
        ends[place] = offset + 1
    return dict(records), ends
