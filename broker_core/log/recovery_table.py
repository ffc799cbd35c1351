"""The table of recovery: the conditions of a log's folder, what is kept, and the action for each.

The batches are authoritative, and the first invalid one ends the log. Everything else can be rebuilt
from them, so it is deleted if it may be wrong.
"""

from enum import Enum
from typing import NamedTuple


class LogRecoveryAction(Enum):
    """The actions of recovery; `recovery_actions` has a function for each."""

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


_Action = LogRecoveryAction
_Row = tuple[str, str, LogRecoveryAction, bool]


def _usual(text: str, kept: str, action: LogRecoveryAction) -> _Row:
    """Return the row of a condition that a crash or unfinished work leaves."""
    return text, kept, action, True


def _damage(text: str, kept: str, action: LogRecoveryAction) -> _Row:
    """Return the row of a condition that the operator should know."""
    return text, kept, action, False


class LogCondition(Enum):
    """The conditions of a log's folder that need a decision: what is kept of the log, and the action."""

    NO_SEGMENT = _usual("no segment", "nothing; the log start if there is one", _Action.CREATE_SEGMENT)
    LEFTOVER_FILE = _usual("a file of unfinished work", "the log without it", _Action.DELETE_FILE)
    UNFINISHED_SWAP = _usual(
        "a compacted segment that has not replaced its sources yet",
        "the log as compaction leaves it",
        _Action.FINISH_SWAP,
    )
    ORPHAN_INDEX = _usual("an index without its log file", "the log without it", _Action.DELETE_FILE)
    SEGMENT_BELOW_LOG_START = _usual(
        "a segment wholly below the log start", "the segments from the log start on", _Action.DELETE_SEGMENT
    )
    LOG_START_DAMAGED = _damage("an invalid log start checkpoint", "every segment", _Action.USE_FIRST_SEGMENT)
    LOG_START_AHEAD = _damage("a log start beyond the log end", "the deletion of deleted records", _Action.START_EMPTY)
    SNAPSHOT_DAMAGED = _damage(
        "a snapshot with a wrong version, checksum or length", "all batches, older snapshots", _Action.DELETE_SNAPSHOT
    )
    SNAPSHOT_AHEAD = _damage(
        "a snapshot at an offset where no batch begins", "all batches, older snapshots", _Action.DELETE_SNAPSHOT
    )
    BATCHES_MISSING = _damage("batches that were durable are missing", "the batches that are there", _Action.NOTHING)
    SNAPSHOT_BEHIND = _usual(
        "a snapshot before the log end", "the snapshot and all whole batches behind it", _Action.REPLAY
    )
    SNAPSHOT_STRAY = _usual(
        "a snapshot that is neither a segment's nor the newest", "all batches, newer snapshots", _Action.DELETE_SNAPSHOT
    )
    NO_SNAPSHOT = _usual("no snapshot", "all whole batches", _Action.REPLAY)
    INDEX_MISSING = _usual("a missing offset or time index", "all batches", _Action.REBUILD_INDEX)
    INDEX_DAMAGED = _usual(
        "an offset or time index that does not match its log file", "all batches", _Action.REBUILD_INDEX
    )
    TRANSACTION_INDEX_DAMAGED = _damage(
        "a transaction index with impossible entries", "all batches", _Action.REBUILD_TRANSACTION_INDEX
    )
    TORN_TAIL = _damage(
        "bytes that are not a whole batch with the right checksum and offset",
        "the batches before it",
        _Action.CUT_SEGMENT,
    )
    SEGMENT_AFTER_DAMAGE = _damage(
        "a segment behind the end of the log", "the segments before it", _Action.DELETE_SEGMENT
    )
    HALF_CREATED_SEGMENT = _usual("a last segment without a batch", "the segment: appends go on in it", _Action.NOTHING)
    MARKER_UNREADABLE = _damage(
        "a control batch with a valid checksum and invalid content",
        "the batch, without any effect on transactions",
        _Action.NOTHING,
    )
    EPOCHS_MISSING = _usual("no leader epoch checkpoint beside a snapshot", "all batches", _Action.REBUILD_EPOCHS)
    EPOCHS_DAMAGED = _damage("an invalid leader epoch checkpoint", "all batches", _Action.REBUILD_EPOCHS)
    EPOCHS_AHEAD = _usual("leader epochs that begin behind the log end", "the epochs with batches", _Action.CUT_EPOCHS)
    CLEANER_DAMAGED = _damage("an invalid compaction checkpoint", "all batches", _Action.CLEAN_FROM_START)
    CLEANER_AHEAD = _usual("a compaction checkpoint beyond the log end", "all batches", _Action.CLEAN_FROM_START)

    def __init__(self, text: str, kept: str, action: LogRecoveryAction, is_ordinary: bool) -> None:
        self.text = text
        self.kept = kept
        self.action = action
        self.is_ordinary = is_ordinary


class RecoveryFinding(NamedTuple):
    """One condition that recovery found."""

    condition: LogCondition
    subject: str

    @property
    def is_damage(self) -> bool:
        """Return whether this is more than what a crash usually leaves, so that it is logged."""
        return not self.condition.is_ordinary

    def __str__(self) -> str:
        condition = self.condition
        return f"{self.subject}: {condition.text}; {condition.action.value}; kept: {condition.kept}"
