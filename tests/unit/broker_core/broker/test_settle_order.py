"""The order of steps in a settling cluster: nothing depends on data that a power loss could remove.

The records of a transaction go to two logs, and a disk may write one of them early and lose the other. Whatever
survives, the coordinator's log must not record a transaction as complete while a partition still has it open: nothing
would ever end that transaction.
"""

import errno
import threading
from functools import partial
from random import Random

import pytest

from broker_core.log.partition_log import PartitionLog
from broker_core.log.write_ahead import WriteAheadStorage
from broker_core.server.disk import DiskStorage
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core import requests
from tests.support.broker_core.requests import end_request, init_producer, offset_commit, produced, transactional
from tests.support.direct import DirectClient, direct_cluster
from tests.support.simulated.disk import SimulatedDisk, SimulatedFile
from tests.support.simulated.faults import FaultCounts

TOPIC = TopicPartition(requests.TOPIC, 0)
ONE_STATE_PARTITION = {"transaction.state.log.num.partitions": "1"}
SYNCS_OF_A_COMMIT = 3


class PowerLoss(Exception):
    """A power loss in the middle of a step."""


class CountingFile(SimulatedFile):
    """A file that may lack a descriptor for a sync."""

    __slots__ = ()

    def begin_sync(self):
        if self._disk.lacks_descriptors:
            raise OSError(errno.EMFILE, "too many open files")
        return super().begin_sync()


class CountingDisk(SimulatedDisk):
    """A disk that counts its syncs."""

    def __init__(self):
        super().__init__(Random(1), FaultCounts())
        self.syncs = 0
        self.lacks_descriptors = False

    def use_for_sync(self):
        self.syncs += 1
        return super().use_for_sync()

    def _file(self, node):
        return CountingFile(self, node)


def world(storage):
    """Return a client of a cluster with one transactional id and one topic."""
    cluster = direct_cluster(storage, settings=ONE_STATE_PARTITION)
    cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    if TOPIC.topic not in cluster.metadata.topics:
        cluster.controller.create_topic(TOPIC.topic, 1)
    return DirectClient(cluster)


def begin(client):
    """Produce in a transaction and return the producer."""
    producer = init_producer(client)
    assert produced(client, transactional(producer), transactional_id="id", version=12).error_code == 0
    return producer


def commit(client, producer):
    client.post(end_request(producer), 5)


def state_of_transaction(client):
    """Return the coordinator's description of the id."""
    return client.ask(m.DescribeTransactionsRequest(transactional_ids=["id"]), 0).transaction_states[0]


# Rules A.13 completion/6 and A.13 completion/7.
@pytest.mark.parametrize("survivor", [TRANSACTION_STATE_TOPIC, TOPIC.topic], ids=["state log", "data log"])
@pytest.mark.parametrize("kept_syncs", range(SYNCS_OF_A_COMMIT))
def test_completed_transaction_has_durable_markers_after_any_power_loss(kept_syncs, survivor, monkeypatch):
    storage = MemoryStorage()
    client = world(storage)
    producer = begin(client)
    left = [kept_syncs]
    sync = PartitionLog.sync

    def failing_sync(log):
        if not left[0]:
            raise PowerLoss
        left[0] -= 1
        sync(log)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "sync", failing_sync)
        try:
            commit(client, producer)
            # The completion record may wait for the next sync, because no request waits for it.
            client.cluster.logs.sync()
        except PowerLoss:
            pass
    storage.crash(survives=lambda path, unsynced: unsynced if path.startswith(survivor) else 0)

    client = world(storage)
    log = client.cluster.logs.get(TOPIC, client.cluster.now_ms)
    is_open = log.last_stable_offset < log.log_end_offset
    assert (state_of_transaction(client).transaction_state == "Ongoing") == is_open


def test_commit_syncs_once_for_its_decision_and_once_for_its_markers(monkeypatch):
    client = world(MemoryStorage())
    producer = begin(client)
    synced = []
    sync = PartitionLog.sync

    def noting_sync(log):
        synced.append(log.topic_partition.topic)
        sync(log)

    monkeypatch.setattr(PartitionLog, "sync", noting_sync)
    commit(client, producer)
    assert client.take().error_code == 0
    assert synced == [TRANSACTION_STATE_TOPIC, TOPIC.topic]
    assert state_of_transaction(client).transaction_state == "CompleteCommit"
    # The Describe request synced the completion record.
    assert synced == [TRANSACTION_STATE_TOPIC, TOPIC.topic, TRANSACTION_STATE_TOPIC]


def test_offsets_of_a_transaction_are_committed_with_one_sync_in_the_handler():
    files = CountingDisk()
    clients = [world(WriteAheadStorage(files))]
    clients[0].cluster.controller.ensure_topic(CONSUMER_OFFSETS_TOPIC)
    clients += [DirectClient(clients[0].cluster) for _ in range(2)]
    producers = [init_producer(client, f"id-{at}") for at, client in enumerate(clients)]
    # The first syncs of a file are its own.
    for _ in range(3):
        files.syncs = 0
        for at, (client, producer) in enumerate(zip(clients, producers, strict=True)):
            request = offset_commit(producer, 1, group=f"group-{at}", transactional_id=f"id-{at}")
            client._connection.receive(client.encoded(request, 5), client.cluster.now_ms)
        clients[0].cluster.settle_overlapping(clients[0].cluster.now_ms, lambda: None)
        assert [client.take().topics[0].partitions[0].error_code for client in clients] == [0, 0, 0]
        handled = files.syncs
        for at, client in enumerate(clients):
            producers[at] = client.ask(end_request(producers[at], transactional_id=f"id-{at}"), 5)
    # One for each handler, and one for the answers of all.
    assert handled == len(clients) + 1


@pytest.mark.parametrize("overlapping", [False, True])
def test_broker_stops_after_the_failed_sync_of_a_handler(overlapping):
    """The disk may have forgotten the writes, and would confirm the next ones all the same."""
    files = SimulatedDisk(Random(1), FaultCounts())
    client = world(WriteAheadStorage(files))
    # The block of producer ids is durable before one of them is given out.
    files.syncs_until_failure = 0
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    client._connection.receive(client.encoded(request, 5), client.cluster.now_ms)
    assert client.closed and not client.sent
    assert files.has_failed_sync
    for _ in range(2):
        with pytest.raises(OSError, match="a sync failed: .*check the disk, then start the broker again"):
            if overlapping:
                client.cluster.settle_overlapping(client.cluster.now_ms, lambda: None)
            else:
                client.cluster.settle(client.cluster.now_ms)


@pytest.mark.parametrize("overlapping", [False, True])
def test_broker_stops_if_a_file_cannot_be_opened_for_the_sync_of_a_handler(overlapping):
    """The handler's request fails; another one of the same step must not be answered without its sync."""
    files = CountingDisk()
    client = world(WriteAheadStorage(files))
    cluster = client.cluster
    cluster.controller.ensure_topic(CONSUMER_OFFSETS_TOPIC)
    other, producer = DirectClient(cluster), init_producer(client)
    other._connection.receive(other.encoded(*requests.produce(requests.records())), cluster.now_ms)
    files.lacks_descriptors = True
    client._connection.receive(client.encoded(offset_commit(producer, 1), 5), cluster.now_ms)
    files.lacks_descriptors = False
    assert client.closed
    with pytest.raises(OSError, match="a sync failed: .*too many open files"):
        if overlapping:
            cluster.settle_overlapping(cluster.now_ms, lambda: None)
        else:
            cluster.settle(cluster.now_ms)
    assert other.sent == []


def test_syncs_of_different_files_run_in_parallel(tmp_path):
    meeting = threading.Barrier(2, timeout=30)
    DiskStorage(tmp_path).sync_all([meeting.wait, meeting.wait])


def test_single_sync_runs_in_the_calling_thread(tmp_path):
    threads = []
    DiskStorage(tmp_path).sync_all([lambda: threads.append(threading.current_thread())])
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("storage", [MemoryStorage, lambda: None], ids=["memory", "disk"])
def test_failed_sync_of_several_is_raised(storage, tmp_path):
    def fail():
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        (storage() or DiskStorage(tmp_path)).sync_all([fail, lambda: None, lambda: None])


def test_more_files_than_descriptors_are_synced_together(tmp_path):
    storage = DiskStorage(tmp_path, max_open_files=2)
    files = [storage.open(f"file-{number}") for number in range(40)]
    for file in files:
        file.append(b"x")
    storage.sync_all([file.sync for file in files])
    assert [file.size() for file in files] == [1] * 40
    assert len(storage.pool) <= 2


@pytest.mark.parametrize("count", [0, 1, 2, 8, 30])
def test_every_file_is_synced_once_whatever_fails(tmp_path, count):
    synced = []
    storage = DiskStorage(tmp_path)
    syncs = [partial(synced.append, number) for number in range(count)]
    storage.sync_all(syncs)
    assert sorted(synced) == [*range(count)]

    def fail():
        raise OSError("no space left")

    if count:
        synced.clear()
        with pytest.raises(OSError, match="no space left"):
            storage.sync_all([fail, *syncs])
        assert sorted(synced) == [*range(count)]
    storage.close()
