"""What the logs of many partitions cost the disk."""

from collections import Counter
from itertools import pairwise

from broker_core.broker.cluster import Cluster
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import TopicPartition
from tests.support.broker_core.requests import records
from tests.support.direct import direct_cluster

PARTITIONS = 50


class CountingStorage(MemoryStorage):
    """Storage that counts the syncs of each folder."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: Counter[str] = Counter()

    def sync_folder(self, path: str) -> None:
        self.synced[path] += 1
        super().sync_folder(path)


def write_to_each(cluster: Cluster) -> None:
    for partition in range(PARTITIONS):
        log = cluster.logs.get(TopicPartition("many", partition), cluster.now_ms)
        log.append_as_leader(records(1), now_ms=cluster.now_ms, leader_epoch=0)
        cluster.logs.appended(log.topic_partition)
    cluster.settle(cluster.now_ms)


def test_the_folder_above_all_logs_is_synced_once_for_the_new_logs_of_a_step() -> None:
    storage = CountingStorage()
    cluster = direct_cluster(storage)
    cluster.controller.create_topic("many", PARTITIONS)
    cluster.settle(cluster.now_ms)
    storage.synced.clear()
    write_to_each(cluster)
    assert storage.synced == {"": 1, **{f"many-{partition}": 1 for partition in range(PARTITIONS)}}
    storage.synced.clear()
    cluster.logs.close(cluster.now_ms)
    # First the names of its indexes and of its leader epochs, then the name of its snapshot.
    assert storage.synced == {f"many-{partition}": 2 for partition in range(PARTITIONS)}


def test_a_check_of_retention_opens_many_logs_in_turns() -> None:
    """Requests are handled between the turns; the records are older than the retention time."""
    storage = MemoryStorage()
    cluster = direct_cluster(storage)
    cluster.controller.create_topic("many", PARTITIONS)
    write_to_each(cluster)
    cluster.close(cluster.now_ms)
    cluster = direct_cluster(storage, now_ms=cluster.now_ms + 10**9)
    now_ms, opened = cluster.now_ms + 300_000, [0]
    while cluster.next_deadline_ms() <= now_ms:
        cluster.advance(now_ms)
        opened.append(len(cluster.logs.opened()))
    assert opened[-1] == PARTITIONS
    assert all(after - before <= PARTITIONS // 2 for before, after in pairwise(opened))
    assert all(log.log_start_offset == 1 for log in cluster.logs.opened())
