"""The transactions that wrote a topic, and those that the sink's decisions name, read without any code of the sink.

The log is read with a raw Fetch and kafka-python; a decision is JSON that any consumer can read. So a history can state
the required outcome of each record: readers must see everything that is decided, and nothing else.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from confluent_kafka.admin import TopicMetadata
from kafka.record.memory_records import MemoryRecords

from tests.crash.feed import Step
from tests.support.clients import metadata_of
from tests.support.history.format import FAIL, INFO, INVOKE, OK
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession

_READ_UNCOMMITTED = 0


class Producer(NamedTuple):
    """One transaction: the sink never uses an epoch for two."""

    producer_id: int
    producer_epoch: int


Written = Mapping[Producer, list[tuple[str, int, str]]]
Verdicts = Mapping[Producer, str]


def name(line: str, offset: int) -> str:
    """Name a record of a topic in a history: a row may be in the topic twice, once in an aborted transaction."""
    return f"{line.split(' ')[0]}@{offset}"


def transactions(address: str, topics: Collection[str], partition_count: int) -> dict[str, Written]:
    """Return for each topic key, offset and value of every record, visible or not, by its transaction."""
    cluster = metadata_of(address)
    with ExitStack() as stack:
        sessions = {
            number: RawSession(stack.enter_context(RawClient(f"{broker.host}:{broker.port}")), None)
            for number, broker in cluster.brokers.items()
        }
        return {topic: _written(sessions, cluster.topics[topic], partition_count) for topic in topics}


def _written(sessions: Mapping[int, RawSession], topic: TopicMetadata, partition_count: int) -> Written:
    found: dict[Producer, list[tuple[str, int, str]]] = defaultdict(list)
    for number in range(partition_count):
        session = sessions[topic.partitions[number].leader]
        for producer, offset, value in _records(session, topic.topic, number):
            found[producer].append((f"{topic.topic}-{number}", offset, value))
    return found


def verdicts(decisions: Collection[str]) -> dict[Producer, str]:
    """Return for each transaction that a decision names how it ends.

    The transactions of the last decision on a micro-batch are committed. The outcome of those of earlier attempts, and
    of those that an operator took back, is unknown: a part was lost, or there would be no other decision.
    """
    found: dict[Producer, str] = {}
    standing: dict[tuple[str, str, int], tuple[int, int]] = {}
    # The record that marks a decision topic as created by this version names no transactions.
    documents = [document for document in map(json.loads, decisions) if "transactions" in document]
    for document in documents:
        place = _micro_batch(document)
        standing[place] = max(standing.get(place, (0, 0)), _rank(document))
    for document in sorted(documents, key=_rank):
        stands = _rank(document) == standing[_micro_batch(document)] and not document.get("intervention")
        for each in document["transactions"]:
            found[Producer(each["producer_id"], each["producer_epoch"])] = OK if stands else INFO
    return found


def story(written: Written, ends: Verdicts) -> Iterator[Step]:
    """Yield for each transaction what it wrote, and how it ended: those that no decision names have failed."""
    for producer, records in sorted(written.items()):
        of = f"{producer.producer_id}.{producer.producer_epoch}"
        yield of, INVOKE, "txn", [["send", key, name(value, offset)] for key, offset, value in records], of
        sent = [["send", key, [offset, name(value, offset)]] for key, offset, value in records]
        yield of, ends.get(producer, FAIL), "txn", sent, of


def _records(session: RawSession, topic: str, partition: int) -> Iterator[tuple[Producer, int, str]]:
    position = 0
    while True:
        answer = session.fetch(topic, position, isolation=_READ_UNCOMMITTED, partition=partition)
        assert answer.error_code == 0, f"{topic}-{partition} cannot be read: error {answer.error_code}"
        if position >= answer.high_watermark:
            return
        log = MemoryRecords(bytes(answer.records or b""))
        while (batch := log.next_batch()) is not None:
            if not batch.is_control_batch:
                producer = Producer(batch.producer_id, batch.producer_epoch)
                for record in batch:
                    yield producer, record.offset, (record.value or b"").decode()
            position = batch.next_offset


def _micro_batch(document: Mapping[str, Any]) -> tuple[str, str, int]:
    return document["prefix"], document["query"], document["micro_batch"]


def _rank(document: Mapping[str, Any]) -> tuple[int, int]:
    return document["attempt"], document.get("revision", 0)
