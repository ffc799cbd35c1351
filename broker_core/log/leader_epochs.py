"""The start offsets of leader epochs, with which a reader finds where two logs diverge (KIP-101)."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.errors import DamageError
from broker_core.log.checkpoints import checkpoint_steps, read_checkpoint
from broker_core.ports import Storage, Syncs
from broker_core.types import NO_LEADER_EPOCH

LEADER_EPOCHS_FILE: Final = "leader-epoch-checkpoint"
UNKNOWN_EPOCH_OFFSET: Final = -1


class EpochStart(NamedTuple):
    """A leader epoch and its start offset, at which its first batch begins, if there is one."""

    leader_epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log, ascending, in memory and in Kafka's `leader-epoch-checkpoint`."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._starts: list[EpochStart] = []
        self._changed = False

    @property
    def starts(self) -> list[EpochStart]:
        return list(self._starts)

    @property
    def latest(self) -> int:
        return self._starts[-1].leader_epoch if self._starts else NO_LEADER_EPOCH

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which the offset is or will be written; -1 if it is below the first known epoch."""
        at = bisect_right([start.start_offset for start in self._starts], offset)
        return self._starts[at - 1].leader_epoch if at else NO_LEADER_EPOCH

    def load(self) -> bool:
        """Read the file and return whether it exists; raise `DamageError` if it is invalid."""
        rows = read_checkpoint(self._storage, self._folder, LEADER_EPOCHS_FILE)
        if rows is None:
            return False
        try:
            starts = [EpochStart(int(epoch), int(offset)) for epoch, offset in rows]
        except ValueError:
            raise DamageError(f"{self._folder}/{LEADER_EPOCHS_FILE}: a line is not two numbers") from None
        for one, next_one in itertools.pairwise(starts):
            if next_one.leader_epoch <= one.leader_epoch or next_one.start_offset < one.start_offset:
                raise DamageError(f"{self._folder}/{LEADER_EPOCHS_FILE}: {next_one} follows {one}")
        self._starts = starts
        return True

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Record that `leader_epoch` begins at `start_offset`; earlier epochs without a batch are removed."""
        starts = self._starts
        if leader_epoch < 0 or (starts and leader_epoch <= starts[-1].leader_epoch):
            return
        while starts and starts[-1].start_offset >= start_offset:
            starts.pop()
        starts.append(EpochStart(leader_epoch, start_offset))
        self._changed = True

    def saving_steps(self) -> Iterator[Syncs]:
        """Write the file if it has changed, as `checkpoint_steps` does.

        Batches contain their epoch, so the file may lag behind until a snapshot is written. An epoch without a batch
        is replaced by the next one.
        """
        if self._changed:
            rows = [f"{start.leader_epoch} {start.start_offset}" for start in self._starts]
            yield from checkpoint_steps(self._storage, self._folder, LEADER_EPOCHS_FILE, rows)
            self._changed = False

    def clear(self) -> None:
        self._starts = []
        self._changed = True

    def truncate_end(self, end_offset: int) -> None:
        count = bisect_left([start.start_offset for start in self._starts], end_offset)
        self._changed |= count < len(self._starts)
        del self._starts[count:]

    def truncate_start(self, start_offset: int) -> None:
        """Remove the epochs that ended before `start_offset`; the epoch of that offset now begins there."""
        count = bisect_right([start.start_offset for start in self._starts], start_offset)
        if count == 0 or (count == 1 and self._starts[0].start_offset == start_offset):
            return
        kept = self._starts[count - 1]
        self._starts[:count] = [EpochStart(kept.leader_epoch, start_offset)]
        self._changed = True

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to the given one, and its end offset; (-1, -1) for an unknown epoch."""
        latest = self.latest
        if leader_epoch < 0 or leader_epoch > latest:
            return NO_LEADER_EPOCH, UNKNOWN_EPOCH_OFFSET
        if leader_epoch == latest:
            return leader_epoch, log_end_offset
        at = bisect_right([start.leader_epoch for start in self._starts], leader_epoch)
        floor = self._starts[at - 1].leader_epoch if at else leader_epoch
        return floor, self._starts[at].start_offset
