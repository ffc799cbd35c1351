"""Checks of share groups at rest: every record has ended, for a reason, and the persisted states agree."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker_core.broker.cluster import Cluster
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.partitions.share_partition import SharePartition
from broker_core.features.share_groups.states.state import SharePartitionKey, ShareState
from broker_core.log.partition_log import PartitionLog
from broker_core.types import IsolationLevel
from tests.simulation.history import READ_UNCOMMITTED
from tests.simulation.readers import visible
from tests.support.history.format import READ_COMMITTED

if TYPE_CHECKING:
    from tests.simulation.world import World

_ALL = 1 << 30


def is_done(cluster: Cluster, group: str, topic: str) -> bool:
    """Return whether the leaders of a topic have nothing left to give to a group; they must have its state in memory.

    No file is read, because actors call this outside of the server's time.
    """
    known = cluster.metadata.topics[topic]
    ends = {log.topic_partition: log.log_end_offset for log in cluster.logs.opened()}
    for topic_partition in known.topic_partitions():
        leader = cluster.metadata.leadership(topic_partition).leader
        key = SharePartitionKey(group, known.topic_id, topic_partition.partition)
        found = share_broker(cluster.brokers[leader]).partitions.find(key) if leader in cluster.brokers else None
        if found is None or topic_partition not in ends or found.start_offset < ends[topic_partition]:
            return False
    return True


def check_share_groups(world: "World") -> Iterator[str]:
    """Check that every record was delivered and has ended, for a reason, and that this was recorded.

    Only what ended without an acknowledgment may be missing in the recorded state: records that reached the delivery
    count limit while the share coordinator was not there.
    """
    watch, cluster, now_ms = world.shares, world.server.cluster, world.clock.now_ms()
    for group, (settings, _) in world.plan.share_groups.items():
        for topic in world.plan.topics:
            known = cluster.metadata.topics[topic]
            for topic_partition in known.topic_partitions():
                place = f"{topic_partition} of {group}"
                key = SharePartitionKey(group, known.topic_id, topic_partition.partition)
                leader = cluster.brokers[cluster.metadata.leadership(topic_partition).leader]
                share_broker(leader).partitions.forget_all()
                loaded = share_broker(leader).partitions.get(key, now_ms)
                log = cluster.logs.get(topic_partition, now_ms)
                for offset in _offsets(log, settings["share.isolation.level"]):
                    record = (key, offset)
                    is_limit_reached = watch.counts.get(record, 0) >= loaded.settings().delivery_count_limit
                    if record not in watch.counts:
                        yield f"{place}: offset {offset} was never delivered"
                    elif record not in watch.wanted and not is_limit_reached:
                        yield f"{place}: offset {offset} ended, though it was not acknowledged"
                    if not _has_ended(loaded, offset) and (record in watch.done or not is_limit_reached):
                        yield f"{place}: the end of offset {offset} is not recorded"
                yield from _check_state(place, _state(cluster, key), log.log_end_offset)


def _has_ended(partition: SharePartition, offset: int) -> bool:
    if offset < partition.start_offset:
        return True
    return any(first <= offset <= last and each.state.is_terminal for first, last, each in partition.batches.parts())


def _offsets(log: PartitionLog, isolation: str) -> list[int]:
    """Return the offsets of the records that a group reads."""
    level = IsolationLevel[isolation.upper()]
    name = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, _ALL, level)
        aborted = [(each.first_offset, each.producer_id) for each in result.aborted or ()]
        records, after = visible(bytes(result.records), offset, name, aborted)
        found += [number for number, _ in records]
        if after == offset:
            break
        offset = after
    return found


def _state(cluster: Cluster, key: SharePartitionKey) -> ShareState | None:
    states = [share_broker(broker).states.states().get(key) for broker in cluster.brokers.values()]
    found = [state for state in states if state is not None]
    assert len(found) <= 1, "a state has one coordinator"
    return found[0] if found else None


def _check_state(place: str, state: ShareState | None, end_offset: int) -> Iterator[str]:
    if state is None:
        yield f"{place} has no state"
        return
    firsts = [each.first_offset for each in state.batches]
    if firsts != sorted(firsts) or any(
        a.last_offset >= b.first_offset for a, b in zip(state.batches, state.batches[1:], strict=False)
    ):
        yield f"{place}: the batches of the state overlap: {state.batches}"
    if state.start_offset > end_offset:
        yield f"{place}: the state begins at {state.start_offset}, behind the end {end_offset}"
