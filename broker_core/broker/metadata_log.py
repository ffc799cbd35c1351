"""The log of the cluster's metadata, with one record for each change."""

from collections.abc import Callable, Iterator

from broker_core.config import TopicConfig
from broker_core.errors import DamageError
from broker_core.log.partition_log import PartitionLog
from broker_core.log.recovery import lacks_log
from broker_core.ports import Storage
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import CLUSTER_METADATA_TOPIC, TopicPartition


class MetadataLog:
    """The log of the one partition of `__cluster_metadata`; appended records are durable after `sync`.

    Raises `DamageError` if its log files were removed and others are left.
    """

    def __init__(self, storage: Storage, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        folder = f"{CLUSTER_METADATA_TOPIC}-0"
        if lacks_log(storage.list_folder(folder)):
            # Recovery would begin an empty log, and all topics would be unknown.
            raise DamageError(
                f"{folder} has files of a log, but its .log files are missing, so the topics are not known: copy the "
                "missing files back, or start with an empty folder"
            )
        self._log = PartitionLog.open(
            storage, folder, TopicPartition(CLUSTER_METADATA_TOPIC, 0), TopicConfig(cleanup_policy="compact"), now_ms()
        )

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    def records(self) -> Iterator[tuple[int, bytes]]:
        return ((offset, record.value) for offset, _, record in self._log.read_journal() if record.value)

    def append(self, key: bytes, value: bytes) -> int:
        now_ms = self._now_ms()
        batch = build_batch([NewRecord(key, value, (), now_ms)])
        return self._log.append_as_leader(batch, now_ms=now_ms, leader_epoch=0).base_offset

    def sync(self) -> None:
        if self._log.unsynced_bytes:
            self._log.sync()

    def sync_and_snapshot(self) -> None:
        """Make the log's files such that an open of a copy of them replays no batches."""
        self._log.sync_and_snapshot(self._now_ms())

    def release(self) -> None:
        self._log.release()

    def close(self, now_ms: int) -> None:
        self._log.close(now_ms)
