"""The journals of the coordinators, which are the partitions of internal topics, and the log of the metadata.

Coordinators do not use logs directly; they append and read through a journal, under the leader epoch they were
elected with. An append under an older epoch is refused, which stops a zombie coordinator.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from broker_core.broker.log_manager import LogManager
from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import TopicConfig
from broker_core.coordinator.journal import JournalEntry, JournalRecord
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.log.producer_state import AppendOrigin
from broker_core.log.recovery import lacks_log
from broker_core.ports import Storage
from broker_core.records.batch import NewRecord, build_batch, build_single
from broker_core.records.control import control_type_of
from broker_core.types import (
    CLUSTER_METADATA_TOPIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ProducerIdentity,
    TopicPartition,
    TransactionEnd,
)


@dataclass(eq=False)
class TopicJournal:
    """One internal topic as the journal of one broker's coordinator."""

    topic: str
    broker_id: int
    metadata: ClusterMetadata
    logs: LogManager
    now_ms: Callable[[], int]

    def append(
        self,
        partition: int,
        coordinator_epoch: int,
        records: Sequence[JournalRecord],
        now_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> int:
        log = self._log(partition, coordinator_epoch, now_ms)
        batch: bytes | bytearray
        header = None
        if producer is None and len(records) == 1:
            batch, header = build_single(*records[0], now_ms)
        else:
            batch = build_batch(
                [NewRecord(record.key, record.value, (), now_ms) for record in records],
                producer_id=producer.producer_id if producer else NO_PRODUCER_ID,
                producer_epoch=producer.producer_epoch if producer else NO_PRODUCER_EPOCH,
                base_sequence=0 if producer else NO_SEQUENCE,
                is_transactional=producer is not None,
            )
        # The handler has verified the producer with its coordinator in the same call, so nothing can happen in between.
        guard = log.producer_state.start_verification(*producer, 0, False) if producer else None
        result = log.append_as_leader(
            batch,
            now_ms=now_ms,
            leader_epoch=coordinator_epoch,
            origin=AppendOrigin.COORDINATOR,
            transaction_guard=guard,
            header=header,
        )
        self.logs.appended(log.topic_partition)
        return result.base_offset

    def append_marker(self, partition: int, coordinator_epoch: int, end: TransactionEnd, now_ms: int) -> int:
        log = self._log(partition, coordinator_epoch, now_ms)
        result = log.append_end_txn_marker(end, now_ms=now_ms, leader_epoch=coordinator_epoch)
        self.logs.appended(log.topic_partition)
        return result.base_offset

    def max_batch_bytes(self, partition: int) -> int:
        return self.logs.topic_config(self.metadata.topic(self.topic), self.broker_id).max_message_bytes

    def read(self, partition: int) -> Iterator[JournalEntry]:
        """Read the partition from its start, control batches included.

        Raises `DamageError` where a leader epoch is lower than one before it. The newest record of an id counts, so a
        zombie's batch, or one of another log, would replace newer state.
        """
        topic_partition = TopicPartition(self.topic, partition)
        if self.logs.is_untouched(topic_partition):
            return
        leader_epoch = NO_LEADER_EPOCH
        for offset, header, record in self.logs.get(topic_partition, self.now_ms()).read_journal():
            if header.partition_leader_epoch < leader_epoch:
                raise DamageError(
                    f"the batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch},"
                    f" the batch before it of {leader_epoch}"
                )
            leader_epoch = header.partition_leader_epoch
            control = control_type_of(record.key) if header.is_control else None
            if header.is_control and control is None:
                continue
            yield JournalEntry(
                offset,
                record.timestamp_ms,
                header.producer_id,
                header.producer_epoch,
                header.is_transactional,
                control,
                None if control is not None else record.key,
                None if control is not None else record.value,
            )

    def _log(self, partition: int, coordinator_epoch: int, now_ms: int) -> PartitionLog:
        topic_partition = TopicPartition(self.topic, partition)
        leadership = self.metadata.leadership(topic_partition)
        if leadership.leader != self.broker_id or leadership.leader_epoch != coordinator_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.broker_id} at epoch {coordinator_epoch} does not lead {topic_partition}: "
                f"broker {leadership.leader} does, at epoch {leadership.leader_epoch}",
            )
        return self.logs.get(topic_partition, now_ms)


class MetadataLog(PartitionLog):
    """The log of the one partition of `__cluster_metadata`; appended records are durable after `sync`."""

    now_ms: Callable[[], int]

    @classmethod
    def at(cls, storage: Storage, now_ms: Callable[[], int]) -> Self:
        """Open the log; raise `DamageError` if its log files were removed and others are left."""
        folder = f"{CLUSTER_METADATA_TOPIC}-0"
        if lacks_log(storage.list_folder(folder)):
            # Recovery would begin an empty log, and all topics would be unknown.
            raise DamageError(
                f"{folder} has files of a log, but its .log files are missing, so the topics are not known: copy the "
                "missing files back, or start with an empty folder"
            )
        config = TopicConfig(cleanup_policy="compact")
        log = cls.open(storage, folder, TopicPartition(CLUSTER_METADATA_TOPIC, 0), config, now_ms())
        log.now_ms = now_ms
        return log

    def records(self) -> Iterator[tuple[int, bytes]]:
        return ((offset, record.value) for offset, _, record in self.read_journal() if record.value)

    def append(self, key: bytes, value: bytes) -> int:
        now_ms = self.now_ms()
        batch = build_batch([NewRecord(key, value, (), now_ms)])
        return self.append_as_leader(batch, now_ms=now_ms, leader_epoch=0).base_offset

    def sync(self) -> None:
        if self.unsynced_bytes:
            super().sync()
