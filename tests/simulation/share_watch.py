"""The deliveries and acknowledgments of records of share groups in a world, and what must hold for each of them.

Acquisitions and their ends are seen where the broker makes them, because a response may be late or lost. An
acknowledgment counts when a member gets its response: only then is it durable.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pytest

from broker_core.errors import KafkaError
from broker_core.features.share_groups.partitions.acquisition import Acquired, Acquisition
from broker_core.features.share_groups.partitions.in_flight import RecordState
from broker_core.features.share_groups.partitions.share_partition import Change, SharePartition
from broker_core.features.share_groups.states.state import SharePartitionKey

Record = tuple[SharePartitionKey, int]


class ShareWatch:
    """The records that members have acquired, and those whose acknowledgment was answered."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self.acquired = 0
        self.redelivered = 0
        # The largest delivery count with which each record was acquired.
        self.counts: dict[Record, int] = {}
        # Records that a member wanted to accept or reject; those for which that was answered; answered releases.
        self.wanted: set[Record] = set()
        self.done: set[Record] = set()
        self.released: dict[Record, int] = {}
        # Records that ended with their lock while the share coordinator was away. As in Kafka, this counts though it is
        # not recorded, and a late acknowledgment of such a record is answered without an error and has no effect.
        self._unrecorded: set[Record] = set()
        # The members that have acquired records, for each share partition in the memory of a broker.
        self._owners: dict[SharePartition, dict[int, str]] = defaultdict(dict)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """See all acquisitions and their ends until the block ends."""
        run, applied, archive, watch = Acquisition.run, SharePartition.applied, SharePartition.archive, self
        write, commit = SharePartition._write, SharePartition.commit

        def watched_run(self: Acquisition, fetch_offset: int) -> list[Acquired]:
            found = run(self, fetch_offset)
            for each in found:
                watch._acquire(self._partition, self._member_id, each)
            return found

        def watched_applied(self: SharePartition, changes: Iterable[Change]) -> None:
            listed = list(changes)
            for change in listed:
                watch._end(self, change.first_offset, change.last_offset)
            applied(self, listed)

        def watched_archive(self: SharePartition, first_offset: int, last_offset: int, state: RecordState) -> None:
            if state is RecordState.ACQUIRED:
                watch._end(self, first_offset, last_offset)
            archive(self, first_offset, last_offset, state)

        def watched_write(self: SharePartition, changes: Sequence[Change]) -> None:
            try:
                write(self, changes)
            except KafkaError:
                watch._unrecorded |= _offsets(self, changes)
                raise

        def watched_commit(self: SharePartition, changes: Sequence[Change]) -> None:
            try:
                commit(self, changes)
            except KafkaError:
                # What was changed is undone.
                watch._unrecorded -= _offsets(self, changes)
                raise

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SharePartition, "_write", watched_write)
            patch.setattr(SharePartition, "commit", watched_commit)
            patch.setattr(Acquisition, "run", watched_run)
            patch.setattr(SharePartition, "applied", watched_applied)
            patch.setattr(SharePartition, "archive", watched_archive)
            yield

    def _acquire(self, partition: SharePartition, member_id: str, acquired: Acquired) -> None:
        owners, limit = self._owners[partition], partition.settings().delivery_count_limit
        count = acquired.delivery_count
        for offset in range(acquired.first_offset, acquired.last_offset + 1):
            record = (partition.key, offset)
            what = (
                f"offset {offset} of {partition.key.group_id} in {partition.topic_partition}: {member_id} acquired it"
            )
            if offset in owners:
                self._problems.append(f"{what}, and {owners[offset]} has it")
            if record in self.done:
                self._problems.append(f"{what} after it was accepted or rejected")
            if count > limit:
                self._problems.append(f"{what} with delivery count {count}, above {limit}")
            if count <= self.released.get(record, 0):
                self._problems.append(f"{what} with delivery count {count}, which was released before")
            owners[offset] = member_id
            self._unrecorded.discard(record)
            self.acquired += 1
            self.redelivered += record in self.counts
            self.counts[record] = max(self.counts.get(record, 0), count)

    def _end(self, partition: SharePartition, first_offset: int, last_offset: int) -> None:
        owners = self._owners[partition]
        for offset in range(first_offset, last_offset + 1):
            owners.pop(offset, None)

    def answered(self, record: Record, *, is_release: bool, delivery_count: int) -> None:
        """Note that the acknowledgment of a record was answered without an error."""
        if record in self._unrecorded:
            return
        if is_release:
            self.released[record] = max(self.released.get(record, 0), delivery_count)
        else:
            self.done.add(record)


def _offsets(partition: SharePartition, changes: Iterable[Change]) -> set[Record]:
    return {
        (partition.key, offset) for change in changes for offset in range(change.first_offset, change.last_offset + 1)
    }
