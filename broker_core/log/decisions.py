"""Say as a table what recovery may find in a log's folder, what it keeps, and what it does about the rest.

The batches are the truth, and among them the first that cannot be trusted ends the log. Everything else can be made
from them, so it is thrown away at the slightest doubt.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Found(Enum):
    """Name each state of affairs that needs a decision."""

    NO_SEGMENT = "no segment"
    LEFTOVER_FILE = "a file of unfinished work"
    UNFINISHED_SWAP = "a compacted segment that was decided upon and is not yet in its place"
    ORPHAN_INDEX = "an index without its log file"
    SEGMENT_BELOW_LOG_START = "a segment wholly below the log start"
    LOG_START_DAMAGED = "a log start checkpoint that makes no sense"
    LOG_START_AHEAD = "a log start beyond the log end"
    SNAPSHOT_DAMAGED = "a snapshot with a wrong version, checksum or length"
    SNAPSHOT_AHEAD = "a snapshot at an offset where no batch begins"
    SNAPSHOT_BEHIND = "a snapshot before the log end"
    SNAPSHOT_STRAY = "a snapshot that is neither a segment's nor the newest"
    NO_SNAPSHOT = "no snapshot to begin with"
    INDEX_MISSING = "no offset or time index where there must be one"
    INDEX_DAMAGED = "an offset or time index that does not fit its log file"
    TRANSACTION_INDEX_DAMAGED = "a transaction index with impossible entries"
    TORN_TAIL = "bytes that are not a whole batch with the right checksum and offset"
    SEGMENT_AFTER_DAMAGE = "a segment behind the end of the log"
    HALF_CREATED_SEGMENT = "a last segment without a batch"
    MARKER_UNREADABLE = "a control batch with a right checksum and a wrong content"
    EPOCHS_MISSING = "no leader epoch checkpoint beside a snapshot"
    EPOCHS_DAMAGED = "a leader epoch checkpoint that makes no sense"
    EPOCHS_AHEAD = "leader epochs that begin behind the log end"
    CLEANER_DAMAGED = "a checkpoint of compaction that makes no sense"
    CLEANER_AHEAD = "a checkpoint of compaction beyond the log end"


class Action(Enum):
    """Name what recovery does; each is one method of `Repairs`."""

    NOTHING = "go on"
    CREATE_SEGMENT = "create an empty segment at the log start"
    DELETE_FILE = "delete the file"
    FINISH_SWAP = "put it in the place of the segments it was made from"
    DELETE_SEGMENT = "delete the segment"
    DELETE_SNAPSHOT = "delete the snapshot, try the next older one"
    REPLAY = "replay the batches behind it, then write a new one"
    USE_FIRST_SEGMENT = "let the log start at its first segment"
    START_EMPTY = "empty the log and let it start there"
    REBUILD_INDEX = "write it anew from the segment's headers"
    REBUILD_TRANSACTION_INDEX = "write it anew by replaying the segment's producers"
    CUT_SEGMENT = "cut the segment there"
    REBUILD_EPOCHS = "write it anew from all headers"
    CUT_EPOCHS = "forget them"
    CLEAN_FROM_START = "let compaction begin at the log start again"


class Decision(NamedTuple):
    """Hold one row: what is kept of the log, and what is done."""

    kept: str
    action: Action


DECISIONS: Final[Mapping[Found, Decision]] = {
    Found.NO_SEGMENT: Decision("nothing; the log start if there is one", Action.CREATE_SEGMENT),
    Found.LEFTOVER_FILE: Decision("the log without it", Action.DELETE_FILE),
    Found.UNFINISHED_SWAP: Decision("the log as it is when compaction is through with it", Action.FINISH_SWAP),
    Found.ORPHAN_INDEX: Decision("the log without it", Action.DELETE_FILE),
    Found.SEGMENT_BELOW_LOG_START: Decision("the segments from the log start on", Action.DELETE_SEGMENT),
    Found.LOG_START_DAMAGED: Decision("every segment there is", Action.USE_FIRST_SEGMENT),
    Found.LOG_START_AHEAD: Decision("the promise that deleted records stay deleted", Action.START_EMPTY),
    Found.SNAPSHOT_DAMAGED: Decision("all batches, older snapshots", Action.DELETE_SNAPSHOT),
    Found.SNAPSHOT_AHEAD: Decision("all batches, older snapshots", Action.DELETE_SNAPSHOT),
    Found.SNAPSHOT_STRAY: Decision("all batches, newer snapshots", Action.DELETE_SNAPSHOT),
    Found.SNAPSHOT_BEHIND: Decision("the snapshot and all whole batches behind it", Action.REPLAY),
    Found.NO_SNAPSHOT: Decision("all whole batches", Action.REPLAY),
    Found.INDEX_MISSING: Decision("all batches", Action.REBUILD_INDEX),
    Found.INDEX_DAMAGED: Decision("all batches", Action.REBUILD_INDEX),
    Found.TRANSACTION_INDEX_DAMAGED: Decision("all batches", Action.REBUILD_TRANSACTION_INDEX),
    Found.TORN_TAIL: Decision("the batches before it", Action.CUT_SEGMENT),
    Found.SEGMENT_AFTER_DAMAGE: Decision("the segments before it", Action.DELETE_SEGMENT),
    Found.HALF_CREATED_SEGMENT: Decision("the segment: appends go on in it", Action.NOTHING),
    Found.MARKER_UNREADABLE: Decision("the batch, without any effect on transactions", Action.NOTHING),
    Found.EPOCHS_MISSING: Decision("all batches", Action.REBUILD_EPOCHS),
    Found.EPOCHS_DAMAGED: Decision("all batches", Action.REBUILD_EPOCHS),
    Found.EPOCHS_AHEAD: Decision("the epochs that wrote something", Action.CUT_EPOCHS),
    Found.CLEANER_DAMAGED: Decision("all batches", Action.CLEAN_FROM_START),
    Found.CLEANER_AHEAD: Decision("all batches", Action.CLEAN_FROM_START),
}


class Finding(NamedTuple):
    """Report one thing recovery met, for the broker's journal of events."""

    found: Found
    subject: str

    def __str__(self) -> str:
        decision = DECISIONS[self.found]
        return f"{self.subject}: {self.found.value}; {decision.action.value}; kept: {decision.kept}"
