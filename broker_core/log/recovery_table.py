"""The table of recovery: the conditions of a log's folder, what is kept, and the action for each.

The batches are authoritative, and the first invalid one ends the log. Everything else can be rebuilt
from them, so it is deleted if it may be wrong.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class LogCondition(Enum):
    """The conditions of a log's folder that need a decision."""

    NO_SEGMENT = "no segment"
    LEFTOVER_FILE = "a file of unfinished work"
    UNFINISHED_SWAP = "a compacted segment that has not replaced its sources yet"
    ORPHAN_INDEX = "an index without its log file"
    SEGMENT_BELOW_LOG_START = "a segment wholly below the log start"
    LOG_START_DAMAGED = "an invalid log start checkpoint"
    LOG_START_AHEAD = "a log start beyond the log end"
    SNAPSHOT_DAMAGED = "a snapshot with a wrong version, checksum or length"
    SNAPSHOT_AHEAD = "a snapshot at an offset where no batch begins"
    BATCHES_MISSING = "batches that were durable are missing"
    SNAPSHOT_BEHIND = "a snapshot before the log end"
    SNAPSHOT_STRAY = "a snapshot that is neither a segment's nor the newest"
    NO_SNAPSHOT = "no snapshot"
    INDEX_MISSING = "a missing offset or time index"
    INDEX_DAMAGED = "an offset or time index that does not match its log file"
    TRANSACTION_INDEX_DAMAGED = "a transaction index with impossible entries"
    TORN_TAIL = "bytes that are not a whole batch with the right checksum and offset"
    SEGMENT_AFTER_DAMAGE = "a segment behind the end of the log"
    HALF_CREATED_SEGMENT = "a last segment without a batch"
    MARKER_UNREADABLE = "a control batch with a valid checksum and invalid content"
    EPOCHS_MISSING = "no leader epoch checkpoint beside a snapshot"
    EPOCHS_DAMAGED = "an invalid leader epoch checkpoint"
    EPOCHS_AHEAD = "leader epochs that begin behind the log end"
    CLEANER_DAMAGED = "an invalid compaction checkpoint"
    CLEANER_AHEAD = "a compaction checkpoint beyond the log end"


class LogRecoveryAction(Enum):
    """The actions of recovery; each is a method of `RecoveryActions`."""

    NOTHING = "go on"
    CREATE_SEGMENT = "create an empty segment at the log start"
    DELETE_FILE = "delete the file"
    FINISH_SWAP = "replace the segments it was made from"
    DELETE_SEGMENT = "delete the segment"
    DELETE_SNAPSHOT = "delete the snapshot, try the next older one"
    REPLAY = "replay the batches behind it, then write a new one"
    USE_FIRST_SEGMENT = "start the log at its first segment"
    START_EMPTY = "empty the log and let it start there"
    REBUILD_INDEX = "rewrite it from the segment's headers"
    REBUILD_TRANSACTION_INDEX = "rewrite it by replaying the segment's producers"
    CUT_SEGMENT = "cut the segment there"
    REBUILD_EPOCHS = "rewrite it from all headers"
    CUT_EPOCHS = "forget them"
    CLEAN_FROM_START = "restart compaction at the log start"


class RecoveryDecision(NamedTuple):
    """One row: what is kept of the log, the action, and whether a crash or unfinished work leaves this.

    Any other condition is damage, which the operator should know.
    """

    kept: str
    action: LogRecoveryAction
    is_ordinary: bool = False


RECOVERY_TABLE: Final[Mapping[LogCondition, RecoveryDecision]] = {
    LogCondition.NO_SEGMENT: RecoveryDecision(
        "nothing; the log start if there is one", LogRecoveryAction.CREATE_SEGMENT, is_ordinary=True
    ),
    LogCondition.LEFTOVER_FILE: RecoveryDecision("the log without it", LogRecoveryAction.DELETE_FILE, is_ordinary=True),
    LogCondition.UNFINISHED_SWAP: RecoveryDecision(
        "the log as compaction leaves it", LogRecoveryAction.FINISH_SWAP, is_ordinary=True
    ),
    LogCondition.ORPHAN_INDEX: RecoveryDecision("the log without it", LogRecoveryAction.DELETE_FILE, is_ordinary=True),
    LogCondition.SEGMENT_BELOW_LOG_START: RecoveryDecision(
        "the segments from the log start on", LogRecoveryAction.DELETE_SEGMENT, is_ordinary=True
    ),
    LogCondition.LOG_START_DAMAGED: RecoveryDecision("every segment", LogRecoveryAction.USE_FIRST_SEGMENT),
    LogCondition.LOG_START_AHEAD: RecoveryDecision("the deletion of deleted records", LogRecoveryAction.START_EMPTY),
    LogCondition.SNAPSHOT_DAMAGED: RecoveryDecision("all batches, older snapshots", LogRecoveryAction.DELETE_SNAPSHOT),
    LogCondition.SNAPSHOT_AHEAD: RecoveryDecision("all batches, older snapshots", LogRecoveryAction.DELETE_SNAPSHOT),
    LogCondition.BATCHES_MISSING: RecoveryDecision("the batches that are there", LogRecoveryAction.NOTHING),
    LogCondition.SNAPSHOT_STRAY: RecoveryDecision(
        "all batches, newer snapshots", LogRecoveryAction.DELETE_SNAPSHOT, is_ordinary=True
    ),
    LogCondition.SNAPSHOT_BEHIND: RecoveryDecision(
        "the snapshot and all whole batches behind it", LogRecoveryAction.REPLAY, is_ordinary=True
    ),
    LogCondition.NO_SNAPSHOT: RecoveryDecision("all whole batches", LogRecoveryAction.REPLAY, is_ordinary=True),
    LogCondition.INDEX_MISSING: RecoveryDecision("all batches", LogRecoveryAction.REBUILD_INDEX, is_ordinary=True),
    LogCondition.INDEX_DAMAGED: RecoveryDecision("all batches", LogRecoveryAction.REBUILD_INDEX, is_ordinary=True),
    LogCondition.TRANSACTION_INDEX_DAMAGED: RecoveryDecision(
        "all batches", LogRecoveryAction.REBUILD_TRANSACTION_INDEX
    ),
    LogCondition.TORN_TAIL: RecoveryDecision("the batches before it", LogRecoveryAction.CUT_SEGMENT),
    LogCondition.SEGMENT_AFTER_DAMAGE: RecoveryDecision("the segments before it", LogRecoveryAction.DELETE_SEGMENT),
    LogCondition.HALF_CREATED_SEGMENT: RecoveryDecision(
        "the segment: appends go on in it", LogRecoveryAction.NOTHING, is_ordinary=True
    ),
    LogCondition.MARKER_UNREADABLE: RecoveryDecision(
        "the batch, without any effect on transactions", LogRecoveryAction.NOTHING
    ),
    LogCondition.EPOCHS_MISSING: RecoveryDecision("all batches", LogRecoveryAction.REBUILD_EPOCHS, is_ordinary=True),
    LogCondition.EPOCHS_DAMAGED: RecoveryDecision("all batches", LogRecoveryAction.REBUILD_EPOCHS),
    LogCondition.EPOCHS_AHEAD: RecoveryDecision(
        "the epochs with batches", LogRecoveryAction.CUT_EPOCHS, is_ordinary=True
    ),
    LogCondition.CLEANER_DAMAGED: RecoveryDecision("all batches", LogRecoveryAction.CLEAN_FROM_START),
    LogCondition.CLEANER_AHEAD: RecoveryDecision("all batches", LogRecoveryAction.CLEAN_FROM_START, is_ordinary=True),
}


class RecoveryFinding(NamedTuple):
    """One condition that recovery found."""

    condition: LogCondition
    subject: str

    @property
    def is_damage(self) -> bool:
        """Return whether this is more than what a crash usually leaves, so that it is logged."""
        return not RECOVERY_TABLE[self.condition].is_ordinary

    def __str__(self) -> str:
        decision = RECOVERY_TABLE[self.condition]
        return f"{self.subject}: {self.condition.value}; {decision.action.value}; kept: {decision.kept}"
