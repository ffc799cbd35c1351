"""The open logs of the partitions, and which of them need a sync or have changed.

Logs are opened when first used, so a cluster with a hundred empty internal partitions starts as fast as one
without them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from broker_core.broker.broker_settings import BrokerSettings
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.partitions import Topic
from broker_core.config import TopicConfig
from broker_core.log.partition_log import PartitionLog
from broker_core.ports import Pending, Storage, Volume
from broker_core.types import NO_LEADER, TopicPartition

# Every producer without an open transaction expires, whatever the timestamps of its records.
_AT_ONCE_MS = -(2**62)


class LogManager:
    """The open log of each partition; the settings of its leader apply to it."""

    log_type: ClassVar[type[PartitionLog]] = PartitionLog

    def __init__(self, storage: Storage, settings: BrokerSettings, metadata: ClusterMetadata) -> None:
        self._storage = storage
        self._settings = settings
        self._metadata = metadata
        self._open: dict[TopicPartition, PartitionLog] = {}
        self._promised: set[TopicPartition] = set()
        self._changed: set[TopicPartition] = set()
        self._forgets_idle_producers = False
        # The process before may have deleted something, too.
        self._has_unsynced_deletions = True
        # The syncs in progress.
        self._syncing: Pending | None = None

    def get(self, topic_partition: TopicPartition, now_ms: int) -> PartitionLog:
        """Return the log of an existing partition; raise UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        log = self._open.get(topic_partition)
        if log is None:
            leadership = self._metadata.leadership(topic_partition)
            config = self._settings.of(leadership.leader)
            log = self._open[topic_partition] = self.log_type.open(
                self._storage,
                folder_of(topic_partition),
                topic_partition,
                self.topic_config(self._metadata.topic(topic_partition.topic), leadership.leader),
                now_ms,
                producer_expiration_ms=config.producer_id_expiration_ms,
                verification_enabled=config.transaction_partition_verification_enable,
            )
            log.begin_leader_epoch(leadership.leader_epoch)
            if self._forgets_idle_producers:
                log.expire_producers(now_ms, _AT_ONCE_MS)
        return log

    def forget_idle_producers(self, now_ms: int) -> None:
        """Remove the producers without an open transaction, also from the logs that are opened later."""
        self._forgets_idle_producers = True
        for log in self._open.values():
            log.expire_producers(now_ms, _AT_ONCE_MS)

    def is_untouched(self, topic_partition: TopicPartition) -> bool:
        """Return whether nothing was ever written to the partition, without opening its log."""
        return topic_partition not in self._open and not self._storage.exists(folder_of(topic_partition))

    def size_bytes(self, topic_partition: TopicPartition, now_ms: int) -> int:
        return 0 if self.is_untouched(topic_partition) else self.get(topic_partition, now_ms).size_bytes

    def volume(self) -> Volume:
        return self._storage.volume()

    def opened(self) -> list[PartitionLog]:
        return list(self._open.values())

    def topic_config(self, topic: Topic, broker_id: int = NO_LEADER) -> TopicConfig:
        """Return the settings in force for the topic's partitions that a broker leads, or at all brokers."""
        return self._settings.of(broker_id).topic_defaults().override(topic.config)

    def appended(self, topic_partition: TopicPartition) -> None:
        """Record that a log has grown, so that it is synced before effects run and waiting fetches are retried."""
        self._changed.add(topic_partition)
        self._promised.add(topic_partition)

    def begin_leader_epoch(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """Record a new leader epoch of a partition; a log that is not open records it when it is opened."""
        log = self._open.get(topic_partition)
        if log is not None:
            log.begin_leader_epoch(leader_epoch)
            self._apply_settings(log)

    def moved(self, topic_partition: TopicPartition) -> None:
        """Record that requests waiting for the partition must be retried, though its log has not grown."""
        self._changed.add(topic_partition)

    def start_sync(self, ended: Callable[[], None]) -> bool:
        """Sync all pending writes; return True if that takes time and is still in progress.

        `ended` is called in any thread at its end. The logs may be used meanwhile. Call `finish_sync` before the next.
        """
        assert self._syncing is None, "a sync is in progress"
        pending = self._pending()
        self._sync_names(pending)
        size_bytes = sum([log.unsynced_bytes for log in pending])
        self._syncing = self._storage.start_syncs([log.take_unsynced() for log in pending], size_bytes, ended)
        self._promised.clear()
        return self._syncing is not None

    def check_disk(self) -> None:
        """Raise OSError if a sync has failed: the disk may have forgotten writes, and the broker must stop."""
        self._storage.sync_all(())

    @property
    def is_synced(self) -> bool:
        return self._syncing is None or self._syncing.done()

    def finish_sync(self) -> None:
        """Wait for the sync in progress, if there is one; raise its failure."""
        if self._syncing is not None:
            syncing, self._syncing = self._syncing, None
            syncing.result()

    def sync(self) -> None:
        """Sync all pending writes; responses are sent only afterwards."""
        self.finish_sync()
        pending = self._pending()
        self._sync_names(pending)
        self._storage.sync_all([log.sync for log in pending])
        # Cleared after the syncs: a write whose sync failed must be synced again next time.
        self._promised.clear()

    def _sync_names(self, logs: Iterable[PartitionLog]) -> None:
        """Make the names of files durable; a thousand new logs have one folder above them."""
        unnamed = [log for log in logs if log.has_unsynced_names]
        if unnamed:
            folders = sorted({folder for log in unnamed for folder in log.folders_of_names()})
            self._storage.sync_all([partial(self._storage.sync_folder, folder) for folder in folders])
        for log in unnamed:
            log.names_synced()

    def _pending(self) -> list[PartitionLog]:
        if not self._settings.static.flush_before_ack:
            return []
        promised = [self._open.get(each) for each in sorted(self._promised)]
        return [log for log in promised if log is not None and log.unsynced_bytes]

    def take_changed(self) -> set[TopicPartition]:
        """Return the partitions that have grown, or whose last stable offset has advanced, since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def reconfigure(self, topic: Topic) -> None:
        for topic_partition in topic.topic_partitions():
            log = self._open.get(topic_partition)
            if log is not None:
                self._apply_settings(log)

    def reconfigure_all(self) -> None:
        for log in self._open.values():
            self._apply_settings(log)

    def _apply_settings(self, log: PartitionLog) -> None:
        topic_partition = log.topic_partition
        leader = self._metadata.leadership(topic_partition).leader
        config = self._settings.of(leader)
        log.update_config(self.topic_config(self._metadata.topic(topic_partition.topic), leader))
        log.update_producer_settings(
            producer_expiration_ms=config.producer_id_expiration_ms,
            verification_enabled=config.transaction_partition_verification_enable,
        )

    def delete(self, topic: Topic, now_ms: int) -> None:
        for topic_partition in topic.topic_partitions():
            log = self._open.pop(topic_partition, None)
            if log is not None:
                log.close(now_ms)
            self._delete(topic_partition)
            self.moved(topic_partition)

    def clear_leftovers(self, topic: str, first: int, end: int) -> None:
        """Let no file of an earlier topic of the same name be left, before the record of partitions `[first, end)`.

        A crash may have come between the record of a deletion and the deletion. And a folder that is deleted may be
        there again after a loss of power, unless the folder above it was synced.
        """
        for topic_partition in (TopicPartition(topic, number) for number in range(first, end)):
            assert topic_partition not in self._open, f"{topic_partition} is in use"
            if self._storage.exists(folder_of(topic_partition)):
                self._delete(topic_partition)
        if self._has_unsynced_deletions:
            self._storage.sync_folder("")
            self._has_unsynced_deletions = False

    def _delete(self, topic_partition: TopicPartition) -> None:
        self._has_unsynced_deletions = True
        self._storage.delete(folder_of(topic_partition))

    def with_files(self) -> list[TopicPartition]:
        """Return the partitions whose logs have files, open or not, so that maintenance covers all of them."""
        topics = list(self._metadata.topics.values())
        return [each for topic in topics for each in topic.topic_partitions() if not self.is_untouched(each)]

    def has_files(self, topic_partition: TopicPartition) -> bool:
        return self._metadata.has_partition(topic_partition) and not self.is_untouched(topic_partition)

    def sync_and_snapshot(self, now_ms: int) -> None:
        """Make the files of all open logs such that an open of a copy of them replays nothing.

        The logs take their steps together: the disk does the syncs of a thousand logs at once in less time.
        """
        logs = [log.closing_steps(now_ms) for log in self._open.values()]
        while steps := [step for log in logs if (step := next(log, None)) is not None]:
            self._storage.sync_all([sync for syncs in steps for sync in syncs])

    def release(self) -> None:
        for log in self._open.values():
            log.release()
        self._open.clear()

    def close(self, now_ms: int) -> None:
        self.sync_and_snapshot(now_ms)
        self.release()


def folder_of(topic_partition: TopicPartition) -> str:
    """Return the name of the partition's folder, as in Kafka."""
    return f"{topic_partition.topic}-{topic_partition.partition}"
