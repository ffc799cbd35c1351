"""The state of one open partition log, shared by the modules of this package."""

from collections.abc import Iterator
from functools import partial

from broker_core.config import TopicConfig
from broker_core.errors import DamageError, InvalidBatch
from broker_core.log.checkpoints import checkpoint_steps
from broker_core.log.indexes import AbortedEntry
from broker_core.log.leader_epochs import LeaderEpochs
from broker_core.log.producer_state import ProducerState
from broker_core.log.segment import Segment, SegmentList
from broker_core.log.snapshots import SnapshotFiles
from broker_core.ports import Storage, Syncs, run_steps
from broker_core.records.compression import Bytes
from broker_core.records.control import parse_end_txn_marker
from broker_core.records.header import BatchHeader
from broker_core.types import IsolationLevel, TopicPartition

LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"


class LogState:
    """The files, producers and offsets of a log.

    Invariant: `log_start_offset <= log_end_offset` and `last_stable_offset <= log_end_offset`.
    """

    def __init__(self, storage: Storage, folder: str, topic_partition: TopicPartition, config: TopicConfig) -> None:
        self.storage = storage
        self.folder = folder
        self.topic_partition = topic_partition
        self.config = config
        self.segments = SegmentList([])
        self.snapshots = SnapshotFiles(storage, folder)
        self.leader_epochs = LeaderEpochs(storage, folder)
        self.producer_state = ProducerState()
        # The first offset that a reader may ask for, and the offset of the next batch.
        self.log_start_offset = 0
        self.log_end_offset = 0
        # The offset at which the next compaction begins; records below it were compacted at least once.
        self.first_dirty_offset = 0
        # The size of the batches that a loss of power could lose, and whether it could lose names of files too.
        self.unsynced_bytes = 0
        self.has_unsynced_names = False
        # The log may be new, and its name in the folder above it lost too.
        self._has_unsynced_folder = True
        # A log start offset, and the base offset of the batch at it.
        self._start_batch = (-1, -1)

    @property
    def high_watermark(self) -> int:
        """Return the log end: the brokers of a cluster share the log, so that every replica has all of it."""
        return self.log_end_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest undecided transaction, as far as the log still has it (rules C.7).

        If the log start moved into the transaction, this is the base offset of the batch at the log start, as Apache
        Kafka has it; it can be below the log start.
        """
        first = self.producer_state.first_unstable_offset
        return first if first is None or first >= self.log_start_offset else self._base_at_log_start()

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which all transactions are decided."""
        first = self.first_unstable_offset
        return self.log_end_offset if first is None else first

    def _base_at_log_start(self) -> int:
        found_for, base_offset = self._start_batch
        if found_for != self.log_start_offset:
            try:
                base_offset = self.segments.batch_base(self.log_start_offset)
            except (DamageError, InvalidBatch, OSError):
                # Reading the log reports the damage.
                base_offset = self.log_start_offset
            self._start_batch = self.log_start_offset, base_offset
        return base_offset

    def bound(self, isolation: IsolationLevel) -> int:
        return self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.log_end_offset

    def apply_batch(self, header: BatchHeader, base_offset: int, buffer: Bytes, at: int) -> AbortedEntry | None:
        """Update the producer state for the batch at `at` in the buffer, which was appended at `base_offset`.

        Returns the entry for the segment's transaction index if the batch aborts a transaction. Raises
        `InvalidBatch` for a control batch that cannot be parsed.
        """
        if not header.has_producer:
            return None
        if not header.is_control:
            self.producer_state.apply_batch(header, base_offset)
            return None
        # Compaction leaves an empty control batch after it has removed all records of the transaction.
        marker = parse_end_txn_marker(buffer, at, header) if header.record_count else None
        return None if marker is None else self.producer_state.apply_marker(header, base_offset, marker)

    def advance_log_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.leader_epochs.truncate_start(offset)
        run_steps(self.storage, self.leader_epochs.saving_steps())
        self.save_log_start()

    def save_log_start(self) -> None:
        self._save(LOG_START_FILE, self.log_start_offset)

    def save_first_dirty(self, offset: int) -> None:
        """Store durably that records below `offset` are compacted."""
        self.first_dirty_offset = offset
        self._save(CLEANER_FILE, offset)

    def _save(self, name: str, offset: int) -> None:
        """Write an offset durably, in the format of Kafka's checkpoint files for a log directory."""
        topic, partition = self.topic_partition
        run_steps(self.storage, checkpoint_steps(self.storage, self.folder, name, [f"{topic} {partition} {offset}"]))
        self.storage.sync_folder(self.folder)

    def sync_names(self) -> None:
        """Make the names of the log's files and of its folder durable."""
        for folder in self.folders_of_names():
            self.storage.sync_folder(folder)
        self.names_synced()

    def folders_of_names(self) -> list[str]:
        """Return the folders whose sync makes the names durable; call `names_synced` afterwards."""
        return [self.folder, self.folder.rpartition("/")[0]] if self._has_unsynced_folder else [self.folder]

    def names_synced(self) -> None:
        self.has_unsynced_names = self._has_unsynced_folder = False

    def snapshot_steps(self) -> Iterator[Syncs]:
        """Make everything durable, then write a snapshot at the log end offset.

        Yield what has to be synced before each next step (see `run_steps`). The order matters: a snapshot must not
        include batches or index entries that a crash could still remove.
        """
        yield self.segments.active.finished()
        self.unsynced_bytes = 0
        yield from self.leader_epochs.saving_steps()
        yield [partial(self.storage.sync_folder, folder) for folder in self.folders_of_names()]
        self.names_synced()
        yield from self.snapshots.writing_steps(self.log_end_offset, self.producer_state.entries)

    def stray_snapshots(self) -> list[int]:
        """Return the offsets of the snapshots that no recovery needs: not the newest, and not at a segment's base."""
        bases = {segment.base_offset for segment in self.segments}
        return [offset for offset in self.snapshots.offsets[:-1] if offset not in bases]

    def roll(self) -> None:
        run_steps(self.storage, self.snapshot_steps())
        self.segments.add(Segment(self.storage, self.folder, self.log_end_offset))
        self.has_unsynced_names = True
