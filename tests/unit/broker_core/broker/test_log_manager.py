"""What the logs of many partitions cost the disk."""

from collections import Counter

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


def test_the_folder_above_all_logs_is_synced_once_for_the_new_logs_of_a_step() -> None:
    storage = CountingStorage()
    cluster = direct_cluster(storage)
    cluster.controller.create_topic("many", PARTITIONS)
    cluster.settle(cluster.now_ms)
    storage.synced.clear()
    for partition in range(PARTITIONS):
        log = cluster.logs.get(TopicPartition("many", partition), cluster.now_ms)
        log.append_as_leader(records(1), now_ms=cluster.now_ms, leader_epoch=0)
        cluster.logs.appended(log.topic_partition)
    cluster.settle(cluster.now_ms)
    assert storage.synced == {"": 1, **{f"many-{partition}": 1 for partition in range(PARTITIONS)}}
    storage.synced.clear()
    cluster.logs.close(cluster.now_ms)
    # The names of its indexes and of its leader epochs, then that of its snapshot.
    assert storage.synced == {f"many-{partition}": 2 for partition in range(PARTITIONS)}
