"""Visibility of records: as written and read by each client."""

import time
from collections import Counter

import pytest

from tests.interop.driver import Client
from tests.interop.judge import end, make_topic, wait_for_end_offset, write
from tests.support.clients import READ_COMMITTED, READ_UNCOMMITTED, unique
from tests.support.interop_brokers import Running
from tests.support.waiting import wait_until

LONG_WAIT_MS = 8_000


def test_read_committed_sees_committed_records_and_read_uncommitted_all_but_markers(kafka: Running, client: Client):
    topic = make_topic(kafka)
    producer = client.producer(unique("id"))
    producer.begin()
    assert producer.send(topic, "a1", "a2") == [0, 1]
    producer.abort()
    wait_for_end_offset(kafka, topic, 3)
    producer.begin()
    assert producer.send(topic, "c1") == [3]
    assert producer.send(topic, "c2") == [4]
    producer.commit()
    end(kafka, topic)
    assert [(each.offset, each.value) for each in client.read(topic)] == [(3, "c1"), (4, "c2")]
    assert [(each.offset, each.value) for each in client.read(topic, isolation=READ_UNCOMMITTED)] == [
        (0, "a1"),
        (1, "a2"),
        (3, "c1"),
        (4, "c2"),
    ]


def test_read_committed_stops_at_the_first_of_two_open_transactions(kafka: Running, client: Client):
    topic = make_topic(kafka)
    one, two = client.producer(unique("one")).begin(), client.producer(unique("two")).begin()
    write(kafka, topic, "before")
    one.send(topic, "one-1")
    two.send(topic, "two-1")
    one.send(topic, "one-2")
    two.send(topic, "two-2")
    two.commit()
    stuck = client.values(topic, until=None, at_least=1, quiet_s=0.5)
    everything = client.values(topic, isolation=READ_UNCOMMITTED, until=None, at_least=5)
    one.commit()
    end(kafka, topic)
    assert stuck == ["before"]
    assert everything == ["before", "one-1", "two-1", "one-2", "two-2"]
    assert client.values(topic) == everything


def test_end_offset_of_read_committed_is_the_last_stable_offset(kafka: Running, client: Client):
    topic = make_topic(kafka)
    write(kafka, topic, "before")
    producer = client.producer(unique("id")).begin()
    producer.send(topic, "open-1", "open-2")
    write(kafka, topic, "after")
    assert (client.end_of(topic), client.end_of(topic, READ_UNCOMMITTED)) == (1, 4)
    producer.abort()
    wait_for_end_offset(kafka, topic, 5)
    assert (client.end_of(topic), client.end_of(topic, READ_UNCOMMITTED)) == (5, 5)


def test_timestamp_lookup_stops_at_the_last_stable_offset(kafka: Running, client: Client):
    topic = make_topic(kafka)
    write(kafka, topic, "before")
    producer = client.producer(unique("id")).begin()
    began_ms = int(time.time() * 1000) + 1
    wait_until(lambda: time.time() * 1000 > began_ms, "the record before is older")
    producer.send(topic, "open")
    assert (client.offset_at(topic, began_ms), client.offset_at(topic, began_ms, READ_UNCOMMITTED)) == (None, 1)
    assert client.offset_at(topic, 0) == 0
    producer.commit()
    wait_for_end_offset(kafka, topic, 3)
    assert client.offset_at(topic, began_ms) == 1


def test_reader_advances_past_more_aborted_records_than_one_fetch_returns(kafka: Running, client: Client):
    topic, fetch_bytes = make_topic(kafka), 10_000
    producer = client.producer(unique("id")).begin()
    for _ in range(5):
        producer.send(topic, *["x" * fetch_bytes] * 2)
    producer.abort()
    producer.begin().send(topic, "committed")
    producer.commit()
    end(kafka, topic)
    assert client.values(topic, fetch_bytes=fetch_bytes) == ["committed"]


def test_compressed_records_are_committed_and_aborted(kafka: Running, client: Client):
    topic = make_topic(kafka)
    producer = client.producer(unique("id"), compression="gzip")
    producer.begin().send(topic, *["aborted" * 100] * 5)
    producer.abort()
    producer.begin().send(topic, *["committed" * 100] * 5)
    producer.commit()
    end(kafka, topic)
    assert client.values(topic) == ["committed" * 100] * 5
    assert client.values(topic, isolation=READ_UNCOMMITTED) == ["aborted" * 100] * 5 + ["committed" * 100] * 5


# Rule D.1 more/3.
@pytest.mark.parametrize("commits", [False, True], ids=["aborted", "committed"])
def test_delayed_fetch_returns_the_outcome_of_an_open_transaction(kafka: Running, client: Client, commits: bool):
    topic = make_topic(kafka)
    producer = client.producer(unique("id")).begin()
    write(kafka, topic, "before")
    producer.send(topic, "open-1")
    client.start_reading(topic, tell=1, max_wait_ms=LONG_WAIT_MS)
    assert client.reader.wait_for_note() == 1
    # By now the reader has requested what follows the first record, and waits.
    producer.send(topic, "open-2")
    end(kafka, topic)
    if commits:
        producer.commit()
    else:
        producer.abort()
    ended_s = time.monotonic()
    client.reader.wait_for_note()
    assert time.monotonic() - ended_s < LONG_WAIT_MS / 2000, "the fetch response did not come before its deadline"
    assert [each.value for each in client.finish_reading()] == ["before", *(["open-1", "open-2"] if commits else [])]


def test_ten_thousand_of_eleven_thousand_records_in_20_partitions_are_aborted(kafka: Running, client: Client):
    partitions = 20
    topic = make_topic(kafka, partitions=partitions)
    producer = client.producer(unique("id"))
    for word, count in (("aborted", 500), ("committed", 50)):
        producer.begin()
        for partition in range(partitions):
            producer.send(topic, *(f"{word} {number}" for number in range(count)), partition=partition)
        if word == "aborted":
            producer.abort()
        else:
            producer.commit()
    end(kafka, topic, partitions)
    committed = Counter({f"committed {number}": partitions for number in range(50)})
    aborted = Counter({f"aborted {number}": partitions for number in range(500)})
    assert Counter(client.values(topic, partitions=partitions)) == committed
    assert Counter(client.values(topic, partitions=partitions, isolation=READ_UNCOMMITTED)) == committed + aborted


def test_records_written_by_one_client_are_read_by_another(kafka: Running, client: Client, peer: Client):
    topic = make_topic(kafka)
    producer = client.producer(unique("id"))
    for number in range(6):
        producer.begin().send(topic, f"{number}-1", f"{number}-2")
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    end(kafka, topic)
    written = {
        isolation: [f"{number}-{part}" for number in range(0, 6, step) for part in (1, 2)]
        for isolation, step in ((READ_COMMITTED, 2), (READ_UNCOMMITTED, 1))
    }
    assert {isolation: peer.values(topic, isolation=isolation) for isolation in written} == written
