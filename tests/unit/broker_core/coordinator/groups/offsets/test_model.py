"""Offsets are right for any order of plain commits, transactions, markers, deletions and expiry.

The model keeps the history and computes each offset from it. Among the records of a key since its last tombstone, it
considers the plain ones and those whose transaction's next marker commits. The last of them is the committed offset.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.groups.offsets.store import FetchedOffset, OffsetKey
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition
from tests.support.broker_core.group_world import NONE, START_MS, GroupWorld
from tests.support.examples import examples

RETENTION_MS = 60_000
CHECK_MS = 25_000
GROUPS = ("g", "h")
PARTITIONS = (TopicPartition("t", 0), TopicPartition("u", 0))
KEYS = [OffsetKey(group, partition) for group in GROUPS for partition in PARTITIONS]
PRODUCERS = (1, 2)


class Event(NamedTuple):
    """One event; fields that do not apply are None."""

    name: str
    key: OffsetKey | None = None
    producer_id: int | None = None
    offset: int = -1
    at_ms: int = 0


@dataclass
class History:
    """The model: each answer comes from the whole history."""

    events: list[Event] = field(default_factory=list)
    next_check_ms: int = START_MS + CHECK_MS

    def committed(self, key: OffsetKey) -> Event | None:
        """Return the last record that is in effect."""
        in_force = [event for index, event in self._records(key) if self._fate(index, event) == "commit"]
        return in_force[-1] if in_force else None

    def is_pending(self, key: OffsetKey) -> bool:
        """Return whether a record waits for a marker."""
        return any(self._fate(index, event) == "open" for index, event in self._records(key))

    def forget(self, key: OffsetKey) -> None:
        self.events.append(Event("tombstone", key))

    def pass_until(self, now_ms: int) -> None:
        """Run the expiry checks that are due."""
        while self.next_check_ms <= now_ms:
            for key in KEYS:
                record = self.committed(key)
                if record and not self.is_pending(key) and self.next_check_ms - record.at_ms >= RETENTION_MS:
                    self.forget(key)
            self.next_check_ms += CHECK_MS

    def _records(self, key: OffsetKey) -> list[tuple[int, Event]]:
        own = [(index, event) for index, event in enumerate(self.events) if event.key == key]
        tombstones = [place for place, (_, event) in enumerate(own) if event.name == "tombstone"]
        return own[tombstones[-1] + 1 :] if tombstones else own

    def _fate(self, index: int, record: Event) -> str:
        if record.producer_id is None:
            return "commit"
        markers = (
            event.name for event in self.events[index:] if event.key is None and event.producer_id == record.producer_id
        )
        return next(markers, "open")


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.sampled_from(KEYS)),
        st.tuples(st.just("transactional"), st.sampled_from(KEYS), st.sampled_from(PRODUCERS)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from(PRODUCERS)),
        st.tuples(st.just("delete_offset"), st.sampled_from(KEYS)),
        st.tuples(st.just("delete_group"), st.sampled_from(GROUPS)),
        st.tuples(st.just("pass"), st.sampled_from([1, CHECK_MS // 2, CHECK_MS, RETENTION_MS])),
        st.tuples(st.just("fail_over")),
        st.tuples(st.just("refused"), st.sampled_from(KEYS), st.none() | st.sampled_from(PRODUCERS)),
    ),
    max_size=40,
)


def act(world: GroupWorld, history: History, number: int, name: str, *arguments: Any) -> None:
    """Apply one operation to the coordinator and to the history."""
    at_ms = world.now_ms
    if name in ("plain", "transactional"):
        key, producer_id = (*arguments, None)[:2]
        assert commit(world, key, producer_id, number) is NONE
        history.events.append(Event(name, key, producer_id, number, at_ms))
    elif name in ("commit", "abort"):
        assert world.end(commit=name == "commit", producer=ProducerIdentity(arguments[0], 0)) is NONE
        history.events.append(Event(name, None, arguments[0]))
    elif name == "refused":
        world.journal.refuse_next.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert commit(world, *arguments, number) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif name == "delete_offset":
        world.coordinator.delete_offsets(arguments[0].group_id, [arguments[0].topic_partition], at_ms)
        history.forget(arguments[0])
    elif name == "delete_group":
        world.coordinator.delete_groups(arguments, at_ms)
        for key in KEYS:
            if key.group_id == arguments[0]:
                history.forget(key)
    elif name == "pass":
        world.pass_ms(arguments[0])
        history.pass_until(world.now_ms)
    else:
        world.fail_over()
        history.next_check_ms = at_ms + CHECK_MS


def commit(world: GroupWorld, key: OffsetKey, producer_id: int | None, offset: int) -> ErrorCode:
    """Commit plainly, or in a transaction if a producer id is given."""
    if producer_id is None:
        return world.commit(offset, key.topic_partition, key.group_id)
    return world.txn_commit(offset, key.topic_partition, key.group_id, ProducerIdentity(producer_id, 0))


def check(world: GroupWorld, history: History) -> None:
    """Compare a client's view with the history, and the state of a new coordinator with the current one."""
    for key in KEYS:
        record = history.committed(key)
        expected = FetchedOffset(NONE, record.offset if record else -1)
        unstable = FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        for require_stable in (False, True):
            result = world.coordinator.fetch_offsets(key.group_id, [key.topic_partition], require_stable=require_stable)
            fetched = unstable if require_stable and history.is_pending(key) else expected
            assert result.offsets == {key.topic_partition: fetched}
    successor = world.instance()
    successor.become_leader(0, 99, world.now_ms)
    live, loaded = world.shard(), successor._shards[0]
    assert vars(loaded.offsets) == vars(live.offsets)
    assert loaded.recorded == live.recorded
    assert set(loaded.groups) <= set(live.groups)


# Rules E.2/1, E.2/2, E.2/5 and E.1/19.
@examples(300)
@given(OPERATIONS)
def test_offsets_match_a_model_of_the_whole_history(operations: Sequence[tuple[Any, ...]]):
    world = GroupWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=CHECK_MS)
    history = History()
    for number, operation in enumerate(operations):
        act(world, history, number, *operation)
        check(world, history)
