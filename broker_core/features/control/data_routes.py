"""The routes for topics, records, transactions, groups and snapshots."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import anyio
import anyio.to_thread
from fastapi import APIRouter
from fastapi import Query as InQuery

from broker_core.embedded import EmbeddedBroker
from broker_core.features.control import forms, views
from broker_core.features.control.handles import Handles
from broker_core.features.control.routing import Table
from broker_core.testing.snapshots import Snapshot

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
        """Run a call in a thread."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_MOST_WAITING)
        # At the end of the server nothing waits for the thread.
        return await anyio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)


def topic_routes(kafka: EmbeddedBroker, waits: Waits) -> APIRouter:
    """Return the routes for topics and their records."""
    table = Table("topics and records")

    @table.get("topics")
    def topics() -> views.Topics:
        """Return the topics with their numbers of partitions, internal topics left out."""
        return views.Topics(topics=kafka.topics)

    @table.post("create_topic", 201)
    def create_topic(body: forms.CreateTopic) -> views.Done:
        """Create a topic."""
        kafka.create_topic(body.name, body.partitions, body.config)
        return views.Done()

    @table.post("delete_topic")
    def delete_topic(body: forms.DeleteTopic) -> views.Done:
        """Delete a topic with its records."""
        kafka.delete_topic(body.name)
        return views.Done()

    @table.post("produce")
    def produce(body: forms.Produce) -> views.Written:
        """Write records, in a transaction if one is named, and return their places."""
        written = kafka.produce(
            body.topic, body.records(), transactional=body.transactional, end=body.end, partition=body.partition
        )
        return views.Written(records=[views.WrittenRecord.of(each) for each in written])

    @table.post("end_transaction")
    def end_transaction(body: forms.EndTransaction) -> views.Done:
        """Commit or abort the open transaction of a transactional id."""
        kafka.end_transaction(body.transactional_id, commit=body.commit)
        return views.Done()

    @table.get("records")
    def records(query: Annotated[forms.Records, InQuery()]) -> views.Records:
        """Return the records of a topic or partition, as a reader of that isolation level gets them."""
        found = kafka.records(query.topic, query.partition, isolation=query.isolation, control=query.control)
        return views.Records(records=[views.Record.of_view(each) for each in found])

    @table.get("wait_for_records")
    async def wait_for_records(query: Annotated[forms.WaitForRecords, InQuery()]) -> views.Records:
        """Wait until a topic has at least `count` records, and return all of them."""

        def wait() -> views.Records:
            found = kafka.wait_for_records(
                query.topic,
                query.count,
                partition=query.partition,
                isolation=query.isolation,
                timeout=query.timeout,
            )
            return views.Records(records=[views.Record.of_view(each) for each in found])

        return await waits.run(wait)

    return table.router


def group_routes(kafka: EmbeddedBroker, waits: Waits) -> APIRouter:
    """Return the routes for groups."""
    table = Table("groups")

    @table.get("groups")
    def groups() -> views.Groups:
        """Return the ids of all groups."""
        return views.Groups(groups=kafka.groups)

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
    """Return the routes for snapshots."""
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

    @table.get("Snapshot")
    def snapshots() -> views.Snapshots:
        """Return the snapshots that were not removed."""
        return views.Snapshots(snapshots=[state(*each) for each in handles.items()])

    @table.post("restore")
    def restore(body: forms.Handle) -> views.Done:
        """Return to a snapshot; clients stay connected."""
        kafka.restore(handles.get(body.id))
        return views.Done()

    @table.post("Snapshot")
    def remove_snapshot(body: forms.Handle) -> views.Done:
        """Remove a snapshot."""
        handles.remove(body.id)
        return views.Done()

    return table.router
