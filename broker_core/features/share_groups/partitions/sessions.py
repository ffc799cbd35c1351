"""Share sessions: the partitions that a member fetches from a broker, and the order of its requests (KIP-932).

A session belongs to a connection. When the connection is lost, the records that its member has acquired are released.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1


class SessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class SharedPartition(NamedTuple):
    """A partition as a member names it, with the name that its topic had at that time, None for an unknown topic."""

    topic_id: UUID
    partition: int
    topic: str | None


@dataclass(slots=True)
class ShareSession:
    """One session; its epoch counts the member's requests in it.

    The values of `partitions` tell whether the next response has to name a partition, though it has no records.
    """

    key: SessionKey
    connection: object
    epoch: int = 1
    partitions: dict[SharedPartition, bool] = field(default_factory=dict)

    def advance(self, epoch: int) -> None:
        """Check the epoch of a request and count the request; raise INVALID_SHARE_SESSION_EPOCH for another epoch."""
        if epoch != self.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the session of {self.key} is at epoch {self.epoch}"
            )
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1

    def update(self, named: Iterable[SharedPartition], forgotten: Iterable[tuple[UUID, int]]) -> None:
        known = {each[:2] for each in self.partitions}
        for each in named:
            if each[:2] not in known:
                self.partitions[each] = True
        gone = set(forgotten)
        for each in [each for each in self.partitions if each[:2] in gone]:
            del self.partitions[each]

    def must_answer(self, partition: SharedPartition, *, has_records: bool, has_error: bool) -> bool:
        """Return whether a response names the partition: for records, for an error, and once after either change."""
        is_due = self.partitions.get(partition, False)
        if partition in self.partitions:
            self.partitions[partition] = has_error
            if has_records:
                # A partition that had records comes last next time.
                self.partitions[partition] = self.partitions.pop(partition)
        return has_records or has_error or is_due
