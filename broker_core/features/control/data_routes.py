"""The routes for topics, records, transactions, groups and snapshots, and for the state of the broker."""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi.responses import HTMLResponse
from pydantic import Field

from broker_core.broker.monitoring.inspection import RecordView
from broker_core.embedded import EmbeddedBroker
from broker_core.features.control import forms, views
from broker_core.features.control.handles import Handles
from broker_core.features.control.routing import Fields, Table
from broker_core.report_page import page
from broker_core.testing.broker_state import state_of
from broker_core.testing.data_controls import Isolation
from broker_core.testing.producing import End
from broker_core.testing.snapshots import Snapshot
from broker_core.version import __version__

_MOST_SNAPSHOTS = 100
_NO_SETTINGS: dict[str, str] = {}


def _records(found: Iterable[RecordView]) -> Fields:
    return {"records": [views.Record.of_view(each) for each in found]}


def topic_routes(table: Table, kafka: EmbeddedBroker) -> None:
    table.section = "topics and records"

    @table.get("topics", views.Topics)
    def topics() -> Fields:
        """Return the topics with their numbers of partitions, internal topics left out."""
        return {"topics": kafka.topics}

    @table.post("create_topic", 201)
    def create_topic(
        name: str,
        partitions: Annotated[int, Field(le=forms.MOST_PARTITIONS)] = 1,
        config: Annotated[dict[str, str], Field(description="settings of the topic by Kafka's names")] = _NO_SETTINGS,
    ) -> None:
        """Create a topic."""
        kafka.create_topic(name, partitions, config)

    @table.post("delete_topic")
    def delete_topic(name: str) -> None:
        """Delete a topic with its records."""
        kafka.delete_topic(name)

    @table.post("produce", form=views.Written)
    def produce(
        topic: str,
        values: Annotated[
            list[forms.Item], Field(description="the records: values, or objects with key, value, headers and the like")
        ],
        transactional: Annotated[
            str | bool | None, Field(description="a transactional id, or true for an id of this method")
        ] = None,
        end: Annotated[End, Field(description="how the transaction ends")] = "commit",
        partition: Annotated[
            forms.PartitionNumber | None, Field(description="the partition of records that do not name one")
        ] = None,
    ) -> Fields:
        """Write records, in a transaction if one is named, and return their places."""
        records = list(map(forms.record_of, values))
        return {"records": kafka.produce(topic, records, transactional=transactional, end=end, partition=partition)}

    @table.post("end_transaction")
    def end_transaction(
        transactional_id: str, commit: Annotated[bool, Field(description="false to abort")] = True
    ) -> None:
        """Commit or abort the open transaction of a transactional id."""
        kafka.end_transaction(transactional_id, commit=commit)

    @table.get("records", views.Records)
    def records(
        topic: str,
        partition: forms.PartitionNumber | None = None,
        isolation: Isolation = "read_uncommitted",
        control: Annotated[
            bool, Field(description="true to return control records too, such as markers of transactions")
        ] = False,
    ) -> Fields:
        """Return the records of a topic or partition, as a reader of that isolation level gets them."""
        return _records(kafka.records(topic, partition, isolation=isolation, control=control))

    @table.get("wait_for_records", views.Records, waits=True)
    def wait_for_records(
        topic: str,
        count: forms.Count,
        partition: forms.PartitionNumber | None = None,
        isolation: Isolation = "read_committed",
        timeout: forms.Seconds = 10,
    ) -> Fields:
        """Wait until a topic has at least `count` records, and return all of them."""
        found = kafka.wait_for_records(topic, count, partition=partition, isolation=isolation, timeout=timeout)
        return _records(found)


def group_routes(table: Table, kafka: EmbeddedBroker) -> None:
    table.section = "groups"

    @table.get("groups", views.Groups)
    def groups() -> Fields:
        """Return the ids of all groups."""
        return {"groups": kafka.groups}

    @table.get("group(...).view")
    def group(group: forms.GroupId) -> views.Group:
        """Return members, committed offsets and lag of a group."""
        return views.Group.of(kafka.group(group).view())

    @table.get("group(...).wait_stable", waits=True)
    def wait_stable(
        group: forms.GroupId,
        members: Annotated[
            forms.Count | None, Field(description="exactly so many members; without it, at least one")
        ] = None,
        timeout: forms.Seconds = 10,
    ) -> views.Group:
        """Wait until a group is stable, and return its state."""
        return views.Group.of(kafka.group(group).wait_stable(members, timeout))

    @table.get("group(...).wait_caught_up", waits=True)
    def wait_caught_up(group: forms.GroupId, timeout: forms.Seconds = 10) -> views.Group:
        """Wait until no record is left to read for a group, and return its state."""
        return views.Group.of(kafka.group(group).wait_caught_up(timeout))


def snapshot_routes(table: Table, kafka: EmbeddedBroker) -> None:
    table.section = "snapshots"
    handles: Handles[Snapshot] = Handles("snapshot", _MOST_SNAPSHOTS)

    def state(name: str, snapshot: Snapshot) -> views.Snapshot:
        return views.Snapshot(id=name, size_bytes=snapshot.size_bytes)

    @table.post("snapshot", 201)
    def snapshot() -> views.Snapshot:
        """Keep all that the cluster has stored at this moment, in memory."""
        handles.reserve()
        taken = kafka.snapshot()
        return state(handles.add(taken), taken)

    @table.get("Snapshot", views.Snapshots)
    def snapshots() -> Fields:
        """Return the snapshots that were not removed."""
        return {"snapshots": [state(*each) for each in handles.items()]}

    @table.post("restore")
    def restore(id: forms.Id) -> None:
        """Return to a snapshot; clients stay connected."""
        kafka.restore(handles.get(id))

    @table.post("Snapshot")
    def remove_snapshot(id: forms.Id) -> None:
        """Remove a snapshot."""
        handles.remove(id)


def inspection_routes(table: Table, kafka: EmbeddedBroker) -> None:
    table.section = "inspection"

    @table.get("bootstrap_servers")
    def about() -> views.About:
        """Return the addresses that clients connect to, and the ids of the brokers."""
        return views.About(
            bootstrap_servers=kafka.bootstrap_servers, broker_ids=list(kafka.broker_ids), version=__version__
        )

    @table.get("bootstrap", views.Address)
    def bootstrap(listener: str) -> Fields:
        """Return the addresses of one listener."""
        return {"bootstrap_servers": kafka.bootstrap(listener)}

    @table.get("partition")
    def partition(topic: str, partition: forms.PartitionNumber) -> views.PartitionState:
        """Return offsets, leader, producers and open transactions of a partition."""
        return views.PartitionState.of_view(kafka.partition(topic, partition))

    @table.get("written_partitions", views.Places)
    def written_partitions() -> Fields:
        """Return the partitions that records were written to, internal topics left out."""
        return {"partitions": kafka.written_partitions()}

    @table.get("transactions", views.Transactions)
    def transactions() -> Fields:
        """Return the state of each transactional id."""
        return {"transactions": kafka.transactions()}

    @table.get("transaction")
    def transaction(transactional_id: str) -> views.Transaction:
        """Return the state of a transactional id."""
        return views.Transaction.of(kafka.transaction(transactional_id))

    @table.get("requests", views.Requests)
    def requests(
        api: Annotated[str | None, Field(description="Kafka's name of the API, such as Produce")] = None,
        client_id: str | None = None,
        transactional_id: str | None = None,
    ) -> Fields:
        """Return the newest requests that match, oldest first."""
        wanted: dict[str, Any] = {"api": api, "client_id": client_id, "transactional_id": transactional_id}
        found = kafka.requests(**wanted)
        return {"requests": [views.Request.of(each) for each in found]}

    @table.get("assert_quiescent")
    def assert_quiescent(
        clients_may_wait: Annotated[
            bool, Field(description="true to ignore the waiting fetches of open consumers")
        ] = False,
    ) -> None:
        """Check that nothing is in progress; 409 with the list of what is."""
        kafka.assert_quiescent(clients_may_wait=clients_may_wait)

    @table.get("pytest --kafka-report")
    def report(
        title: Annotated[str, Field(description="the title of the page")] = "broker_core",
    ) -> HTMLResponse:
        """Return a page about requests, partitions, transactions and groups, with their timelines."""
        return HTMLResponse(page(title, "", [state_of(kafka)]))
