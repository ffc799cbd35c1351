"""The committed offsets of one partition of `__consumer_offsets`, and the pending ones.

A transactional commit is kept separately, by producer, until the marker of its transaction: a commit marker
applies it unless a plain commit was recorded later, an abort marker drops it (KIP-98, rules E.2). Only the replay
of records calls the methods that change the store.
"""

from collections.abc import Mapping
from typing import NamedTuple

from broker_core.coordinator.groups.offsets.records import OffsetKey, OffsetValue
from broker_core.types import TopicPartition


class StoredOffset(NamedTuple):
    """A committed offset with the offset of its record, which decides which commit is later."""

    value: OffsetValue
    log_offset: int


class OffsetStore:
    """Committed and pending offsets."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, StoredOffset]] = {}
        self._pending: dict[int, dict[OffsetKey, StoredOffset]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    def committed(self, group_id: str) -> Mapping[TopicPartition, StoredOffset]:
        return self._committed.get(group_id, {})

    def is_pending(self, key: OffsetKey) -> bool:
        """Return whether an open transaction may still change this offset."""
        return key.topic_partition in self._open.get(key.group_id, {})

    def pending_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the group's partitions whose offset an open transaction may still change."""
        return list(self._open.get(group_id, {}))

    def has_offsets(self, group_id: str) -> bool:
        """Return whether the group has an offset, committed or pending."""
        return group_id in self._committed or group_id in self._open

    def group_ids(self) -> list[str]:
        """Return every group that has an offset here, committed or pending."""
        return list(dict.fromkeys([*self._committed, *self._open]))

    def snapshot(self) -> tuple[dict[OffsetKey, StoredOffset], dict[int, dict[OffsetKey, StoredOffset]]]:
        """Return a copy of all offsets, committed and pending, for comparison."""
        committed = {
            OffsetKey(group_id, topic_partition): stored
            for group_id, partitions in self._committed.items()
            for topic_partition, stored in partitions.items()
        }
        return committed, {producer_id: dict(pending) for producer_id, pending in self._pending.items()}

    def commit(self, key: OffsetKey, stored: StoredOffset) -> None:
        self._committed.setdefault(key.group_id, {})[key.topic_partition] = stored

    def commit_pending(self, producer_id: int, key: OffsetKey, stored: StoredOffset) -> None:
        """Keep a transactional commit until its marker; the last one for a key counts."""
        self._pending.setdefault(producer_id, {})[key] = stored
        self._open.setdefault(key.group_id, {}).setdefault(key.topic_partition, set()).add(producer_id)

    def forget(self, key: OffsetKey) -> None:
        group_offsets = self._committed.get(key.group_id, {})
        group_offsets.pop(key.topic_partition, None)
        if not group_offsets:
            self._committed.pop(key.group_id, None)
        for producer_id in tuple(self._open.get(key.group_id, {}).get(key.topic_partition, ())):
            del self._pending[producer_id][key]
            if not self._pending[producer_id]:
                del self._pending[producer_id]
            self._close(producer_id, key)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply or drop the producer's pending offsets, if there are any."""
        for key, stored in self._pending.pop(producer_id, {}).items():
            self._close(producer_id, key)
            current = self.committed(key.group_id).get(key.topic_partition)
            if commit and (current is None or stored.log_offset > current.log_offset):
                self.commit(key, stored)

    def _close(self, producer_id: int, key: OffsetKey) -> None:
        partitions = self._open[key.group_id]
        partitions[key.topic_partition].discard(producer_id)
        if not partitions[key.topic_partition]:
            del partitions[key.topic_partition]
        if not partitions:
            del self._open[key.group_id]
