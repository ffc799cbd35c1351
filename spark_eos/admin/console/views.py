"""The documents behind the overview and a transaction's page, from what the collector has seen."""

import heapq
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from broker_core.types import TopicPartition
from spark_eos.admin.console.collector import CollectedState, SeenState
from spark_eos.admin.console.decision_tail import QueryState
from spark_eos.admin.console.pages import LiveLinks
from spark_eos.admin.transactions_view import finding_document
from spark_eos.client.inspection import TransactionDescription
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.sink.naming import TaskId, sinks_task
from spark_eos.transactions.findings import MINUTE_MS, HangingFinding, possible_time
from spark_eos.transactions.standstills import Standstill

# The oldest ones; the page has a filter for the others.
MOST_ROWS: Final = 200
_PACE_OVER: Final = 20


class View(NamedTuple):
    """What the documents are made from."""

    snapshot: CollectedState
    links: LiveLinks
    commands: OperatorCommands
    now_ms: int


def overview(view: View, wanted: str = "") -> dict[str, Any]:
    """Return the overview; `wanted` is a part of the names of topics, ids and queries to show."""
    snapshot = view.snapshot
    standstills = [each for each in snapshot.standstills.values() if wanted in str(each.topic_partition)]
    lagging = heapq.nsmallest(MOST_ROWS, standstills, key=lambda each: each.rank(snapshot.at_ms))
    active = [name for name in snapshot.active if wanted in name]
    opened = heapq.nsmallest(MOST_ROWS, active, key=lambda name: _started_at_ms(snapshot, name) or view.now_ms)
    hanging = [
        finding_row(view, each)
        for standstill in snapshot.standstills.values()
        for each in standstill.opened
        if each.hangs and wanted in f"{each.transaction.topic_partition} {each.transactional_id or ''}"
    ]
    queries = [each for each in query_rows(view) if wanted in f"{each['prefix']}/{each['query']}"]
    groups = _group_rows(view, wanted)
    return {
        "cluster": {
            "bootstrap": ",".join(view.commands.bootstrap_servers),
            "brokers": snapshot.broker_count,
            "topics": snapshot.topic_count,
            "partitions": len(snapshot.places),
            "leaderless": sum(each.leader_id < 0 for each in snapshot.places.values()),
            "states": dict(sorted(snapshot.states.items())),
        },
        "problems": [{"part": part, "text": text} for part, text in snapshot.problems.items()],
        "lagging": {
            "count": len(standstills),
            "topics": len({each.topic_partition.topic for each in standstills}),
            "offsets": sum(each.lag for each in standstills),
            "rows": [_lagging(view, each) for each in lagging],
        },
        "open": {"count": len(active), "rows": [open_transaction(view, name) for name in opened]},
        "hanging": {"count": len(hanging), "rows": sorted(hanging, key=lambda row: row["since_ms"])[:MOST_ROWS]},
        "queries": {"count": len(queries), "rows": queries[:MOST_ROWS]},
        "groups": {"count": len(groups), "rows": groups[:MOST_ROWS]},
    }


def place_of(view: View, topic_partition: TopicPartition) -> dict[str, Any]:
    names = topic_partition._asdict()
    return {**names, "href": view.links.page("partition", **names)}


def id_of(view: View, transactional_id: str | None) -> dict[str, Any] | None:
    if transactional_id is None:
        return None
    return {"name": transactional_id, "href": view.links.page("transaction", id=transactional_id)}


def _lagging(view: View, each: Standstill) -> dict[str, Any]:
    return {
        **place_of(view, each.topic_partition),
        "last_stable_offset": each.last_stable_offset,
        "high_watermark": each.high_watermark,
        "lag": each.lag,
        "since_ms": each.began_at_ms(view.snapshot.at_ms),
        **_dated(view, each.oldest),
        "open": len(each.opened),
        "blocker": None if each.oldest is None else _blocker(view, each.oldest),
    }


def _blocker(view: View, finding: HangingFinding) -> dict[str, Any]:
    producer = finding.transaction.producer
    return {
        "id": id_of(view, finding.transactional_id or view.snapshot.owner(producer.producer_id)),
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "first_offset": producer.first_offset,
        "verdict": finding.verdict.value,
    }


def _started_at_ms(snapshot: CollectedState, transactional_id: str) -> int | None:
    found = snapshot.descriptions.get(transactional_id)
    return found.start_time_ms if found is not None and found.start_time_ms > 0 else None


@lru_cache(maxsize=200_000)
def _task(transactional_id: str) -> TaskId | None:
    return sinks_task(transactional_id)


def open_transaction(view: View, transactional_id: str) -> dict[str, Any]:
    listing = view.snapshot.active[transactional_id]
    found = view.snapshot.descriptions.get(transactional_id)
    task = _task(transactional_id)
    return {
        "id": id_of(view, transactional_id),
        "state": listing.state if found is None else found.state,
        "coordinator_id": listing.coordinator_id,
        "producer_id": listing.producer_id,
        "producer_epoch": None if found is None else found.producer_epoch,
        "started_at_ms": _started_at_ms(view.snapshot, transactional_id),
        "timeout_ms": None if found is None else found.transaction_timeout_ms,
        "partitions": None if found is None else len(found.topic_partitions),
        "query": None if task is None else query_of(view, task),
    }


def query_of(view: View, task: TaskId) -> dict[str, Any]:
    return {"name": task.query, "href": view.links.page("query", prefix=task.prefix, query=task.query)}


def finding_row(view: View, each: HangingFinding) -> dict[str, Any]:
    place, producer = each.transaction.topic_partition, each.transaction.producer
    return {
        **finding_document(each, view.commands, view.now_ms),
        **place_of(view, place),
        "id": id_of(view, each.transactional_id),
        "first_offset": producer.first_offset,
        "since_ms": _seen_since(view, place),
        **_dated(view, each),
        "action": {
            "kind": "abort",
            "topic": place.topic,
            "partition": place.partition,
            "start_offset": producer.first_offset,
            "commit": each.is_committed,
        },
    }


def _dated(view: View, finding: HangingFinding | None) -> dict[str, Any]:
    """Return whether no coordinator knows how long it has been open, and when its last record is dated then."""
    if finding is None or finding.age_ms(view.snapshot.at_ms) is not None:
        return {"is_dated": False, "dated_ms": None}
    dated_ms = possible_time(finding.transaction.producer.last_timestamp_ms, view.now_ms)
    return {"is_dated": dated_ms is not None, "dated_ms": dated_ms}


def _seen_since(view: View, place: TopicPartition) -> int:
    known = view.snapshot.standstills.get(place)
    return view.now_ms if known is None else known.began_at_ms(view.snapshot.at_ms)


def _group_rows(view: View, wanted: str) -> list[dict[str, Any]]:
    rows = [
        {
            "group": each.group_id,
            **place_of(view, each.topic_partition),
            "id": id_of(view, view.snapshot.owner(each.producer_id)),
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "pending": [str(tp) for tp in each.pending[:MOST_ROWS]],
            "since_ms": _seen_since(view, each.topic_partition),
        }
        for each in view.snapshot.groups
        if wanted in each.group_id
    ]
    return sorted(rows, key=lambda row: int(row["since_ms"]))


def query_rows(view: View) -> list[dict[str, Any]]:
    """Return one row for each query with a decision or an open transaction, the least time to a timeout first."""
    opened: dict[tuple[str, str], list[str]] = {}
    for name in view.snapshot.active:
        task = _task(name)
        if task is not None:
            opened.setdefault((task.prefix, task.query), []).append(name)
    names = {*view.snapshot.queries, *opened}
    rows = [
        query_row(view, name, view.snapshot.queries.get(name) or QueryState(*name), opened.get(name, ()))
        for name in sorted(names)
    ]
    return sorted(rows, key=lambda row: (row["times_out_at_ms"] is None, row["times_out_at_ms"] or 0))


def query_row(view: View, name: tuple[str, str], state: QueryState, opened: Collection[str]) -> dict[str, Any]:
    found = [each for id_ in opened if (each := view.snapshot.descriptions.get(id_)) is not None]
    newest, names = state.newest, dict(zip(("prefix", "query"), name, strict=True))
    ends = [each.start_time_ms + each.transaction_timeout_ms for each in found if each.start_time_ms > 0]
    return {
        **names,
        "href": view.links.page("query", **names),
        "problem": state.problem,
        **{part: getattr(newest, part, None) for part in ("run", "micro_batch", "attempt", "decided_at_ms")},
        "runs": len({each.decision.run for each in state.micro_batches}),
        "transactions": None if newest is None else len(newest.transactions),
        "records": None if newest is None else newest.record_count,
        "state": _decision_state(view.snapshot.descriptions, state),
        "open": len(opened),
        "times_out_at_ms": min(ends, default=None),
        "per_minute": pace(state),
    }


def _decision_state(descriptions: Mapping[str, TransactionDescription], state: QueryState) -> str:
    newest = state.newest
    if newest is None:
        return "unreadable" if state.problem else "no decision yet"
    if newest.completed_at_ms is not None:
        return "completed"
    if newest.is_abandoned:
        return "abandoned"
    still = sum(
        (found.producer_id, found.producer_epoch) == each.producer
        for each in newest.transactions
        if (found := descriptions.get(each.transactional_id)) is not None
    )
    return f"decided, {still} of {len(newest.transactions)} open" if still else "decided, none open"


def pace(state: QueryState) -> float | None:
    """Return how many micro-batches were decided in a minute, over the newest ones of the newest run."""
    if state.newest is None:
        return None
    decisions = (each.decision for each in state.micro_batches)
    times = [each.decided_at_ms for each in decisions if each.run == state.newest.run][-_PACE_OVER:]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    return (len(times) - 1) * MINUTE_MS / (times[-1] - times[0])


def transaction_document(
    view: View, transactional_id: str, coordinator_id: int, found: TransactionDescription, history: Iterable[SeenState]
) -> dict[str, Any]:
    snapshot, task = view.snapshot, _task(transactional_id)
    listed = set(found.topic_partitions)
    opened = {
        place: finding
        for place, standstill in snapshot.standstills.items()
        for finding in standstill.opened
        if finding.transaction.producer.producer_id == found.producer_id
    }
    rows = [
        {
            **place_of(view, place),
            "is_listed": place in listed,
            "first_offset": finding and finding.transaction.producer.first_offset,
            "producer_epoch": finding and finding.transaction.producer.producer_epoch,
            "lag": snapshot.standstills[place].lag if place in snapshot.standstills else 0,
            "finding": finding and finding_row(view, finding),
        }
        for place in sorted(listed | opened.keys())
        for finding in [opened.get(place)]
    ]
    may_end = found.state == "Ongoing" and task is None
    return {
        "id": transactional_id,
        "exists": found.exists,
        "state": found.state,
        "coordinator_id": coordinator_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started_at_ms": found.start_time_ms if found.start_time_ms > 0 else None,
        "partitions": {"count": len(rows), "rows": rows[: 5 * MOST_ROWS]},
        "history": [each._asdict() for each in history],
        "task": None
        if task is None
        else {"query": query_of(view, task), "prefix": task.prefix, "run": task.run, "worker": task.worker},
        "command": view.commands.force_terminate(transactional_id) if may_end else None,
        "action": {"kind": "force-terminate", "id": transactional_id} if may_end else None,
    }
