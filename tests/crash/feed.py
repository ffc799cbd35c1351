"""Input from Kafka: topics in which each committed row is between rows of aborted transactions.

The size of a micro-batch, in offsets of each partition, equals that of one committed and one aborted transaction with
their markers. So the end of each micro-batch is known, and so is the place of each row, which the query writes along
with it: what the source has delivered follows from what the sink wrote.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.support.history.format import FAIL, INVOKE, OK, Key, Value

PARTITIONS = 2
DEADLINE_S = 60
# Several batches for each partition, so that a range is fetched in several pieces.
SMALL_BATCHES = {"batch.size": 4096, "linger.ms": 5, "sticky.partitioning.linger.ms": 0}
SMALL_FETCHES = {"kafka.max.partition.fetch.bytes": "4096"}
# In each partition: an aborted record before the rows and one after them, and two markers.
_OFFSETS_BESIDE = 4
_PLACE = re.compile(r"(?P<line>\S+\.(?P<micro_batch>\d+)\.\d+ .*) <- (?P<partition>\d+)@(?P<offset>\d+)")
Step = tuple[str, str, str, Any, str | None]


@dataclass(frozen=True)
class Sent:
    """One transaction and the offset of each of its values."""

    name: str
    is_committed: bool
    places: Mapping[str, tuple[int, int]]


@dataclass(eq=False)
class Feed:
    """The topic that one query reads, and everything that was written to it."""

    topic: str = field(default_factory=lambda: f"feed-{uuid.uuid4().hex[:8]}")
    transactions: list[Sent] = field(default_factory=list)
    offsets_of_micro_batch: int = 0

    @property
    def client_id(self) -> str:
        """Return the client id of the source, for failpoints and in its requests."""
        return f"reads-{self.topic}"

    def options(self, address: str) -> dict[str, str]:
        """Return the source's options."""
        return {
            "kafka.bootstrap.servers": address,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "kafka.client.id": self.client_id,
            "maxOffsetsPerTrigger": str(self.offsets_of_micro_batch),
            **SMALL_FETCHES,
        }

    def rows(self) -> Iterator[str]:
        """Yield what the query must write: each committed value with its place."""
        for sent in self.transactions:
            if sent.is_committed:
                for value, (partition, offset) in sent.places.items():
                    yield f"{value} <- {partition}@{offset}"

    def key(self, partition: int) -> Key:
        """Name a partition in a history."""
        return f"{self.topic}-{partition}"

    def story(self) -> Iterator[Step]:
        """Yield the transactions that wrote the topic."""
        for sent in self.transactions:
            begin = [["send", self.key(partition), value] for value, (partition, _) in sent.places.items()]
            end = [["send", self.key(partition), [offset, value]] for value, (partition, offset) in sent.places.items()]
            process = "feeder" if sent.is_committed else "aborting feeder"
            yield process, INVOKE, "txn", begin, sent.name
            yield process, OK if sent.is_committed else FAIL, "txn", end, sent.name

    def consumed(self, rows: Sequence[str]) -> Iterator[Step]:
        """Yield what the source has delivered in each micro-batch, from the rows that the query wrote, in any order."""
        found: dict[int, dict[Key, list[tuple[int, Value]]]] = {}
        for row in rows:
            if place := _PLACE.fullmatch(row):
                key = self.key(int(place["partition"]))
                of_key = found.setdefault(int(place["micro_batch"]), {}).setdefault(key, [])
                of_key.append((int(place["offset"]), place["line"]))
        for number in sorted(found):
            polled = {key: sorted(records) for key, records in sorted(found[number].items())}
            offsets = {key: records[-1][0] + 1 for key, records in polled.items()}
            yield "query", INVOKE, "txn", [], str(number)
            yield "query", OK, "txn", [["poll", polled], ["offsets", "query", offsets]], str(number)
        yield "query", INVOKE, "drained", None, None
        yield "query", OK, "drained", self.ends(), None

    def ends(self) -> dict[Key, int]:
        """Return the offset after the last row of each partition."""
        return {
            self.key(number): 1
            + max(
                offset
                for sent in self.transactions
                for partition, offset in sent.places.values()
                if partition == number
            )
            for number in range(PARTITIONS)
        }


def fill(address: str, feeds: Sequence[tuple[Feed, Sequence[Sequence[str]]]]) -> None:
    """Write lines to each feed, a list for each micro-batch; the topics must exist and be empty."""
    with closing(_Writer(address)) as good, closing(_Writer(address)) as bad:
        for number in range(max(len(lines) for _, lines in feeds)):
            wanted = [(feed, lines[number]) for feed, lines in feeds]
            bad.begin()
            good.begin()
            bad.send(_dropped(feed, number, "before") for feed, _ in wanted)
            good.send(wanted)
            bad.send(_dropped(feed, number, "after") for feed, _ in wanted)
            good.end(is_committed=True)
            bad.end(is_committed=False)
    for feed, lines in feeds:
        feed.offsets_of_micro_batch = len(lines[0]) + PARTITIONS * _OFFSETS_BESIDE


def _dropped(feed: Feed, number: int, when: str) -> tuple[Feed, list[str]]:
    return feed, [f"{feed.topic}.{number}.{each} aborted, {when}" for each in range(PARTITIONS)]


class _Writer:
    """Transactions that span many topics; each feed records its part of them."""

    def __init__(self, address: str) -> None:
        self._name = f"feeder-{uuid.uuid4().hex}"
        self._number = 0
        self._places: dict[Feed, dict[str, tuple[int, int]]] = {}
        self._producer = Producer({"bootstrap.servers": address, "transactional.id": self._name, **SMALL_BATCHES})
        self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        self._number += 1
        self._places = {}
        self._producer.begin_transaction()

    def send(self, lines: Iterable[tuple[Feed, Sequence[str]]]) -> None:
        """Write lines to the partitions of each feed in turn, and wait until the broker has them."""
        for feed, values in lines:
            places = self._places.setdefault(feed, {})
            for number, value in enumerate(values):
                self._producer.produce(
                    feed.topic,
                    value,
                    value.split(" ")[0],
                    partition=number % PARTITIONS,
                    on_delivery=partial(_note, places, value),
                )
        assert self._producer.flush(DEADLINE_S) == 0

    def end(self, *, is_committed: bool) -> None:
        end = self._producer.commit_transaction if is_committed else self._producer.abort_transaction
        end(DEADLINE_S)
        for feed, places in self._places.items():
            feed.transactions.append(Sent(f"{self._name}-{self._number}", is_committed, places))

    def close(self) -> None:
        self._producer.close()


def _note(places: dict[str, tuple[int, int]], value: str, error: KafkaError | None, message: Message) -> None:
    assert error is None, error
    places[value] = message.partition() or 0, message.offset() or 0
