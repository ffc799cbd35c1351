"""The size limits of a Fetch response with many partitions, and how much is read for it."""

import pytest

from broker_core.records.batch import NewRecord, build_batch
from broker_core.simulation.disk import MemoryFile
from broker_core.types import TopicPartition
from tests.support.broker_core.requests import fetch_request
from tests.support.direct import DirectClient, direct_cluster

PARTITIONS = 100
BATCH_BYTES = 10_000


@pytest.fixture
def client():
    cluster = direct_cluster()
    cluster.controller.create_topic("many", PARTITIONS)
    for partition in range(PARTITIONS):
        batch = build_batch([NewRecord(None, bytes(BATCH_BYTES), (), cluster.now_ms)])
        log = cluster.logs.get(TopicPartition("many", partition), cluster.now_ms)
        log.append_as_leader(batch, now_ms=cluster.now_ms, leader_epoch=0)
    return DirectClient(cluster)


def fetch(client, *, max_bytes, limits):
    """Fetch partitions with these limits of their own; return the sizes of their records."""
    partitions = [{"partition": partition, "partition_max_bytes": limit} for partition, limit in enumerate(limits)]
    request = fetch_request("many", *partitions, max_bytes=max_bytes)
    (topic,) = client.ask(request, 12).responses
    assert [each.error_code for each in topic.partitions] == [0] * len(limits)
    return [len(each.records) for each in topic.partitions]


def test_a_full_response_reads_from_no_further_partition(client, monkeypatch):
    fetch(client, max_bytes=2**20, limits=[BATCH_BYTES * 2] * PARTITIONS)
    reads = []
    read = MemoryFile.read
    monkeypatch.setattr(MemoryFile, "read", lambda file, *wanted: reads.append(file) or read(file, *wanted))
    sizes = fetch(client, max_bytes=int(BATCH_BYTES * 2.5), limits=[BATCH_BYTES * 2] * PARTITIONS)
    assert [size > BATCH_BYTES for size in sizes] == [True] * 2 + [False] * (PARTITIONS - 2)
    # Two batches, and the part of a third that fits.
    assert len(reads) == 3


def test_a_partition_with_a_small_limit_of_its_own_does_not_end_the_response(client):
    sizes = fetch(client, max_bytes=2**20, limits=[BATCH_BYTES * 2, 100, BATCH_BYTES * 2])
    assert [size > BATCH_BYTES for size in sizes] == [True, False, True]


def test_the_first_batch_is_sent_although_it_is_above_all_limits(client):
    sizes = fetch(client, max_bytes=100, limits=[100] * 3)
    assert [size > BATCH_BYTES for size in sizes] == [True, False, False]


def test_the_rest_of_a_closed_segment_is_sent_without_waiting_for_the_minimum(client):
    place = TopicPartition("many", 0)
    partition, fields = {"partition": 0}, {"min_bytes": BATCH_BYTES * 5, "max_wait_ms": 500}
    client.post(fetch_request("many", partition, **fields), 12)
    assert client.take() is None
    log = client.cluster.logs.get(place, client.cluster.now_ms)
    log.roll()
    client.cluster.logs.moved(place)
    client.cluster.settle(client.cluster.now_ms)
    assert len(client.take().responses[0].partitions[0].records) > BATCH_BYTES


def test_a_full_partition_below_the_minimum_waits_for_others(client):
    partition = {"partition": 0, "partition_max_bytes": BATCH_BYTES * 2}
    fields = {"min_bytes": BATCH_BYTES * 3, "max_wait_ms": 500}
    log = client.cluster.logs.get(TopicPartition("many", 0), client.cluster.now_ms)
    batch = build_batch([NewRecord(None, bytes(BATCH_BYTES * 2), (), client.cluster.now_ms)])
    log.append_as_leader(batch, now_ms=client.cluster.now_ms, leader_epoch=0)
    client.post(fetch_request("many", partition, **fields), 12)
    assert client.take() is None
    client.cluster.advance(client.cluster.now_ms + 500)
    assert len(client.take().responses[0].partitions[0].records) > BATCH_BYTES
    other = {"partition": 1, "partition_max_bytes": BATCH_BYTES * 2}
    client.post(fetch_request("many", partition, other, **fields), 12)
    assert client.take() is not None


# Rule D.1 more/7.
def test_a_first_batch_above_its_partitions_limit_counts_whole_at_once(client):
    fields = {"min_bytes": BATCH_BYTES, "max_wait_ms": 500}
    client.post(fetch_request("many", {"partition": 0, "partition_max_bytes": 100}, **fields), 12)
    assert len(client.take().responses[0].partitions[0].records) > BATCH_BYTES
    # Another partition's first batch is not sent whole, so its limit counts.
    small = [{"partition": partition, "partition_max_bytes": 100} for partition in range(2)]
    client.post(fetch_request("many", *small, **fields | {"min_bytes": BATCH_BYTES * 2}), 12)
    assert client.take() is None
    client.cluster.advance(client.cluster.now_ms + 500)
    assert client.take() is not None


# Rule D.1 more/7.
def test_a_first_batch_above_its_partitions_limit_does_not_end_a_wait(client):
    partition = {"partition": 0, "partition_max_bytes": 100, "fetch_offset": 1}
    client.post(fetch_request("many", partition, min_bytes=BATCH_BYTES, max_wait_ms=500), 12)
    log = client.cluster.logs.get(TopicPartition("many", 0), client.cluster.now_ms)
    batch = build_batch([NewRecord(None, bytes(BATCH_BYTES), (), client.cluster.now_ms)])
    log.append_as_leader(batch, now_ms=client.cluster.now_ms, leader_epoch=0)
    client.cluster.logs.appended(TopicPartition("many", 0))
    client.cluster.settle(client.cluster.now_ms)
    assert client.take() is None
    client.cluster.advance(client.cluster.now_ms + 500)
    assert len(client.take().responses[0].partitions[0].records) > BATCH_BYTES
