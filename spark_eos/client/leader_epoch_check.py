"""The detection of a newer leader whose log has other records (KIP-320).

A leader that lagged behind can be elected if all others are lost (or `unclean.leader.election.enable` is set). It
truncates the log to what it has, and new records take the same offsets: a reader that continues by offsets alone reads
a log that never existed. Every record batch has the epoch of the leader that appended it, so a newer leader can be
asked where, in its log, the epoch that the reader knows has ended.
"""

from typing import NamedTuple

from broker_core.types import NO_LEADER_EPOCH


class LogPoint(NamedTuple):
    """A point that the log of the leader of one epoch has reached."""

    leader_epoch: int = NO_LEADER_EPOCH
    offset: int = 0

    def survives(self, end_offset: int | None) -> bool:
        """Return whether a log where the epoch ended at `end_offset` (None: no such epoch) reaches this point."""
        return end_offset is not None and end_offset >= self.offset


class LeaderEpochCheck:
    """The furthest point known of a log, and the newest leader epoch whose log is known to agree."""

    def __init__(self, planned: LogPoint) -> None:
        self._point = planned
        self._is_plan = planned.leader_epoch > NO_LEADER_EPOCH
        self._agreed_epoch = planned.leader_epoch

    def doubted_by(self, leader_epoch: int) -> LogPoint | None:
        """Return the point to ask a leader about before anything is read from it, or None."""
        nothing_known = self._point.leader_epoch <= NO_LEADER_EPOCH
        return None if nothing_known or leader_epoch <= self._agreed_epoch else self._point

    def agree(self, leader_epoch: int) -> None:
        self._agreed_epoch = leader_epoch

    def extend(self, batch_epoch: int, next_offset: int, leader_epoch: int) -> None:
        """Record what was read from a leader; a plan that reaches further remains the point to ask about."""
        self._agreed_epoch = max(self._agreed_epoch, leader_epoch)
        if not self._is_plan and batch_epoch > NO_LEADER_EPOCH:
            self._point = LogPoint(batch_epoch, next_offset)

    def forget(self) -> None:
        self._point, self._is_plan = LogPoint(), False
