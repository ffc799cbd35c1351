"""Requests that are handled while a sync is in progress: their responses wait for a sync of their own."""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.ports import File
from broker_core.server import disk
from broker_core.server.disk import DiskFile, DiskStorage
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import TopicPartition
from tests.support.broker_core import requests
from tests.support.broker_core.requests import produce, records
from tests.support.direct import DirectClient, direct_cluster

TOPIC = TopicPartition(requests.TOPIC, 0)
DEADLINE_S = 30


class _Syncs:
    """Syncs that end when the test lets them."""

    def __init__(self, syncs: Sequence[Callable[[], None]]) -> None:
        self.syncs = syncs
        self.has_ended = False
        self.failure: OSError | None = None

    def done(self) -> bool:
        return self.has_ended

    def result(self) -> None:
        self.has_ended = True
        if self.failure is not None:
            raise self.failure
        for sync in self.syncs:
            sync()


class SlowStorage(MemoryStorage):
    """A storage whose syncs take time when they are asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[_Syncs] = []

    def start_syncs(self, files: Sequence[File], size_bytes: int, ended: Callable[[], None]) -> Any:
        if not files:
            return None
        self.started.append(_Syncs([file.begin_sync() for file in files]))
        return self.started[-1]


class OverlappingClient(DirectClient):
    """A client whose requests settle as in the TCP server."""

    def post_bytes(self, data: bytes) -> None:
        self._connection.receive(data, self.cluster.now_ms)
        self.settle()

    def settle(self) -> None:
        self.cluster.settle_overlapping(self.cluster.now_ms, lambda: None)


@pytest.fixture
def storage() -> SlowStorage:
    return SlowStorage()


@pytest.fixture
def clients(storage: SlowStorage) -> tuple[OverlappingClient, OverlappingClient]:
    cluster = direct_cluster(storage)
    cluster.controller.create_topic(TOPIC.topic, 1)
    return OverlappingClient(cluster), OverlappingClient(cluster)


def offset_in(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].base_offset)


def test_response_leaves_when_its_sync_has_ended(storage, clients):
    client, _ = clients
    client.post(*produce(records()))
    client.settle()
    assert client.sent == []
    [sync] = storage.started
    sync.has_ended = True
    client.settle()
    assert offset_in(client.take()) == 0


def test_request_during_a_sync_waits_for_the_next_one(storage, clients):
    first, second = clients
    first.post(*produce(records()))
    second.post(*produce(records()))
    assert len(storage.started) == 1
    storage.started[0].has_ended = True
    second.settle()
    assert (offset_in(first.take()), second.sent, len(storage.started)) == (0, [], 2)
    storage.started[1].has_ended = True
    first.settle()
    assert offset_in(second.take()) == 1


def test_settling_at_once_waits_for_the_sync_in_progress(storage, clients):
    first, second = clients
    first.post(*produce(records()))
    second.post(*produce(records()))
    first.cluster.settle(first.cluster.now_ms)
    assert (offset_in(first.take()), offset_in(second.take())) == (0, 1)
    assert storage.started[0].has_ended


def test_only_what_was_written_before_a_sync_is_durable(storage, clients):
    first, second = clients
    first.post(*produce(records()))
    second.post(*produce(records()))
    storage.started[0].has_ended = True
    first.settle()
    assert first.take() is not None
    storage.crash()
    cluster = direct_cluster(storage)
    assert cluster.logs.get(TOPIC, cluster.now_ms).log_end_offset == 1


def test_failure_of_a_sync_sends_no_response(storage, clients):
    client, _ = clients
    client.post(*produce(records()))
    storage.started[0].has_ended = True
    storage.started[0].failure = OSError("no such disk")
    with pytest.raises(OSError, match="no such disk"):
        client.settle()
    assert client.sent == []


def test_small_syncs_on_a_disk_run_at_once_and_large_ones_in_a_thread(tmp_path):
    storage = DiskStorage(tmp_path)
    threads = []
    ended = threading.Event()

    def sync() -> None:
        threads.append(threading.current_thread())

    file: Any = SimpleNamespace(sync=sync, begin_sync=lambda: sync)
    assert storage.start_syncs([file], disk._MIN_OVERLAPPING_BYTES - 1, ended.set) is None
    pending = storage.start_syncs([file], disk._MIN_OVERLAPPING_BYTES, ended.set)
    assert pending is not None
    assert ended.wait(DEADLINE_S)
    assert pending.done()
    assert [thread is threading.current_thread() for thread in threads] == [True, False]
    storage.close()


@pytest.mark.parametrize("size_bytes", [1, disk._MIN_OVERLAPPING_BYTES])
def test_syncs_of_many_files_do_not_all_have_a_descriptor_at_the_same_time(tmp_path, size_bytes):
    storage = DiskStorage(tmp_path, max_open_files=64)
    lock, begun, most = threading.Lock(), 0, 0

    class CountedFile(DiskFile):
        def begin_sync(self) -> Callable[[], None]:
            nonlocal begun, most
            sync = super().begin_sync()
            with lock:
                begun += 1
                most = max(most, begun)

            def end() -> None:
                nonlocal begun
                sync()
                with lock:
                    begun -= 1

            return end

    files = [CountedFile(storage, str(tmp_path / str(number))) for number in range(64 // 8 + 1)]
    for file in files:
        file.create()
    assert storage.start_syncs(files, size_bytes, lambda: None) is None
    assert begun == 0
    assert 0 < most <= disk._SYNC_THREADS
    storage.close()


def test_file_may_be_closed_while_its_sync_is_in_progress(tmp_path):
    storage = DiskStorage(tmp_path)
    file = storage.open("file")
    file.append(b"x")
    sync = file.begin_sync()
    file.close()
    storage.delete("file")
    other = storage.open("other")
    sync()
    other.append(b"y")
    assert other.size() == 1
    storage.close()
