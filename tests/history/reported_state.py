"""A broker's report of its logs, transactions and groups, over the network or in process."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.wire import messages as m
from tests.support.messages import filled

# Sends a request of a version and returns the response.
Ask = Callable[[Any, int], Any]
_EARLIEST, _LATEST = -2, -1
_COMMITTED: Final = 1
_MAX_BYTES: Final = 1 << 20
_UNDER_WAY: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


def under_way(ask: Ask) -> list[str]:
    """Return the transactions that are not complete."""
    return _transactional_ids(ask, *_UNDER_WAY)


def high_watermark(ask: Ask, topic: str, partition: int) -> int:
    """Return the high watermark of a partition."""
    return _offset(ask, topic, partition, _LATEST, 0)


def reported_state(ask: Ask, topics: Mapping[str, int], groups: tuple[str, ...]) -> dict[str, Any]:
    """Return a broker's report by name.

    It contains each partition's offsets, producers, records and aborted transactions, each transactional id's
    transaction, and each group's offsets.

    `topics` are numbers of partitions.
    """
    found: dict[str, Any] = {}
    for topic, count in topics.items():
        for partition in range(count):
            name = f"{topic}-{partition}"
            found[f"marks of {name}"] = [
                _offset(ask, topic, partition, when, isolation)
                for when, isolation in ((_EARLIEST, 0), (_LATEST, _COMMITTED), (_LATEST, 0))
            ]
            found[f"producers of {name}"] = _producers(ask, topic, partition)
            found[f"records of {name}"] = _records(ask, topic, partition, found[f"marks of {name}"])
    for name in _transactional_ids(ask):
        found[f"transaction {name}"] = _transaction(ask, name)
    for group in groups:
        found[f"offsets of {group}"] = _offsets(ask, group)
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Describe the differences between two reports."""
    return [
        f"{name} changed from {before.get(name)} to {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _offset(ask: Ask, topic: str, partition: int, when: int, isolation: int) -> int:
    part = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": when}
    topics = [{"name": topic, "partitions": [part]}]
    answer = ask(filled(m.ListOffsetsRequest, replica_id=-1, isolation_level=isolation, topics=topics), 5)
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0, found
    return int(found.offset)


def _producers(ask: Ask, topic: str, partition: int) -> list[tuple[int, ...]]:
    topics = [{"name": topic, "partition_indexes": [partition]}]
    answer = ask(filled(m.DescribeProducersRequest, topics=topics), 0)
    part = answer.topics[0].partitions[0]
    assert part.error_code == 0, part
    return sorted(
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in part.active_producers
    )


def _records(ask: Ask, topic: str, partition: int, marks: list[int]) -> tuple[str, list[tuple[int, int]]]:
    """Return a digest of the bytes that a committed reader gets, and the aborted transactions in them."""
    digest = hashlib.sha256()
    aborted: set[tuple[int, int]] = set()
    offset, end, _ = marks
    while offset < end:
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": _MAX_BYTES}
        request = filled(
            m.FetchRequest,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_MAX_BYTES,
            isolation_level=_COMMITTED,
            rack_id="",
            topics=[{"topic": topic, "partitions": [wanted]}],
            forgotten_topics_data=[],
        )
        answer = ask(request, 12)
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0, part
        data = bytes(part.records or b"")
        assert data, f"a fetch of {topic}-{partition} at {offset} returns no record below {end}"
        digest.update(data)
        aborted |= {(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()}
        offset = _end_of(data)
    return digest.hexdigest(), sorted(aborted)


def _end_of(data: bytes) -> int:
    """Return the offset after the last whole batch."""
    at, end = 0, -1
    while at + 27 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size > len(data):
            break
        end = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big") + 1
        at += size
    return end


def _transactional_ids(ask: Ask, *states: str) -> list[str]:
    """Return the ids of the transactions in these states, or in any."""
    filters = {"state_filters": [*states], "producer_id_filters": [], "duration_filter": -1}
    answer = ask(filled(m.ListTransactionsRequest, **filters, transactional_id_pattern=None), 0)
    assert answer.error_code == 0, answer
    return sorted(each.transactional_id for each in answer.transaction_states)


def _transaction(ask: Ask, name: str) -> tuple[Any, ...]:
    one = ask(m.DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]
    assert one.error_code == 0, one
    return (
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        sorted((topic.topic, sorted(topic.partitions)) for topic in one.topics),
    )


def _offsets(ask: Ask, group: str) -> dict[str, tuple[int, int]]:
    answer = ask(m.OffsetFetchRequest(group_id=group, topics=None, require_stable=True), 7)
    assert answer.error_code == 0, answer
    return {
        f"{topic.name}-{part.partition_index}": (part.error_code, part.committed_offset)
        for topic in answer.topics
        for part in topic.partitions
    }
