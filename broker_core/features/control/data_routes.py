"""The routes for topics, records, transactions, groups and snapshots, and for the state of the broker."""

from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

import anyio
import anyio.to_thread
from fastapi import APIRouter
from fastapi import Query as InQuery
from fastapi.responses import HTMLResponse

from broker_core.broker.monitoring.inspection import RecordView
from broker_core.embedded import EmbeddedBroker
from broker_core.features.control import forms, views
from broker_core.features.control.handles import Handles
from broker_core.features.control.routing import Fields, Table
from broker_core.report_page import page
from broker_core.testing.broker_state import state_of
from broker_core.testing.snapshots import Snapshot
from broker_core.version import __version__

T = TypeVar("T")

# Waiting requests have threads of their own, so that the request they wait for is always handled. Each looks at the
# broker a hundred times a second; further ones begin to wait when others have ended.
_MOST_WAITING = 50
_MOST_SNAPSHOTS = 100


class Waits:
    """The threads of the requests that wait; made in the event loop that uses it."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, call: Callable[[], T]) -> T:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_MOST_WAITING)
        # At the end of the server nothing waits for the thread.
        return await anyio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)


def _records(found: Iterable[RecordView]) -> Fields:
    return {"records": [views.Record.of_view(each) for each in found]}


def topic_routes(kafka: EmbeddedBroker, waits: Waits) -> APIRouter:
    table = Table("topics and records")

    @table.get("topics", views.Topics)
    def topics() -> Fields:
        """Return the topics with their numbers of partitions, internal topics left out."""
        return {"topics": kafka.topics}

    @table.post("create_topic", 201)
    def create_topic(body: forms.CreateTopic) -> None:
        """Create a topic."""
        kafka.create_topic(**body.model_dump())

    @table.post("delete_topic")
    def delete_topic(body: forms.DeleteTopic) -> None:
        """Delete a topic with its records."""
        kafka.delete_topic(body.name)

    @table.post("produce", form=views.Written)
    def produce(body: forms.Produce) -> Fields:
        """Write records, in a transaction if one is named, and return their places."""
        written = kafka.produce(
            body.topic, body.records(), transactional=body.transactional, end=body.end, partition=body.partition
        )
        return {"records": written}

    @table.post("end_transaction")
    def end_transaction(body: forms.EndTransaction) -> None:
        """Commit or abort the open transaction of a transactional id."""
        kafka.end_transaction(**body.model_dump())

    @table.get("records", views.Records)
    def records(query: Annotated[forms.Records, InQuery()]) -> Fields:
        """Return the records of a topic or partition, as a reader of that isolation level gets them."""
        return _records(kafka.records(**query.model_dump()))

    @table.get("wait_for_records", views.Records)
    async def wait_for_records(query: Annotated[forms.WaitForRecords, InQuery()]) -> Fields:
        """Wait until a topic has at least `count` records, and return all of them."""
        return await waits.run(lambda: _records(kafka.wait_for_records(**query.model_dump())))

    return table.router


def group_routes(kafka: EmbeddedBroker, waits: Waits) -> APIRouter:
    table = Table("groups")

    @table.get("groups", views.Groups)
    def groups() -> Fields:
        """Return the ids of all groups."""
        return {"groups": kafka.groups}

    @table.get("group(...).view")
    def group(query: Annotated[forms.GroupId, InQuery()]) -> views.Group:
        """Return members, committed offsets and lag of a group."""
        return views.Group.of(kafka.group(query.group).view())

    @table.get("group(...).wait_stable")
    async def wait_stable(query: Annotated[forms.WaitStable, InQuery()]) -> views.Group:
        """Wait until a group is stable, and return its state."""
        return await waits.run(
            lambda: views.Group.of(kafka.group(query.group).wait_stable(query.members, query.timeout))
        )

    @table.get("group(...).wait_caught_up")
    async def wait_caught_up(query: Annotated[forms.WaitCaughtUp, InQuery()]) -> views.Group:
        """Wait until no record is left to read for a group, and return its state."""
        return await waits.run(lambda: views.Group.of(kafka.group(query.group).wait_caught_up(query.timeout)))

    return table.router


def snapshot_routes(kafka: EmbeddedBroker) -> APIRouter:
    table = Table("snapshots")
    handles: Handles[Snapshot] = Handles("snapshot", _MOST_SNAPSHOTS)

    def state(name: str, snapshot: Snapshot) -> views.Snapshot:
        return views.Snapshot(id=name, size_bytes=snapshot.size_bytes)

    @table.post("snapshot", 201)
    def snapshot(_: forms.Nothing | None = None) -> views.Snapshot:
        """Keep all that the cluster has stored at this moment, in memory."""
        handles.reserve()
        taken = kafka.snapshot()
        return state(handles.add(taken), taken)

    @table.get("Snapshot", views.Snapshots)
    def snapshots() -> Fields:
        """Return the snapshots that were not removed."""
        return {"snapshots": [state(*each) for each in handles.items()]}

    @table.post("restore")
    def restore(body: forms.Handle) -> None:
        """Return to a snapshot; clients stay connected."""
        kafka.restore(handles.get(body.id))

    @table.post("Snapshot")
    def remove_snapshot(body: forms.Handle) -> None:
        """Remove a snapshot."""
        handles.remove(body.id)

    return table.router


def inspection_routes(kafka: EmbeddedBroker) -> APIRouter:
    table = Table("inspection")

    @table.get("bootstrap_servers")
    def about() -> views.About:
        """Return the addresses that clients connect to, and the ids of the brokers."""
        return views.About(
            bootstrap_servers=kafka.bootstrap_servers, broker_ids=list(kafka.broker_ids), version=__version__
        )

    @table.get("bootstrap", views.Address)
    def bootstrap(query: Annotated[forms.Bootstrap, InQuery()]) -> Fields:
        """Return the addresses of one listener."""
        return {"bootstrap_servers": kafka.bootstrap(query.listener)}

    @table.get("partition")
    def partition(query: Annotated[forms.Partition, InQuery()]) -> views.PartitionState:
        """Return offsets, leader, producers and open transactions of a partition."""
        return views.PartitionState.of_view(kafka.partition(query.topic, query.partition))

    @table.get("written_partitions", views.Places)
    def written_partitions() -> Fields:
        """Return the partitions that records were written to, internal topics left out."""
        return {"partitions": kafka.written_partitions()}

    @table.get("transactions", views.Transactions)
    def transactions() -> Fields:
        """Return the state of each transactional id."""
        return {"transactions": kafka.transactions()}

    @table.get("transaction")
    def transaction(query: Annotated[forms.TransactionalId, InQuery()]) -> views.Transaction:
        """Return the state of a transactional id."""
        return views.Transaction.of(kafka.transaction(query.transactional_id))

    @table.get("requests", views.Requests)
    def requests(query: Annotated[forms.Requests, InQuery()]) -> Fields:
        """Return the newest requests that match, oldest first."""
        return {"requests": [views.Request.of(each) for each in kafka.requests(**query.model_dump())]}

    @table.get("assert_quiescent")
    def assert_quiescent(query: Annotated[forms.AssertQuiescent, InQuery()]) -> None:
        """Check that nothing is in progress; 409 with the list of what is."""
        kafka.assert_quiescent(clients_may_wait=query.clients_may_wait)

    @table.get("pytest --kafka-report")
    def report(query: Annotated[forms.Report, InQuery()]) -> HTMLResponse:
        """Return a page about requests, partitions, transactions and groups, with their timelines."""
        return HTMLResponse(page(query.title, "", [state_of(kafka)]))

    return table.router
