"""The routes that show the state of the broker."""

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from fastapi.responses import HTMLResponse

from broker_core.embedded import EmbeddedBroker
from broker_core.features.control import forms, views
from broker_core.features.control.routing import Table
from broker_core.report_page import page
from broker_core.testing.broker_state import state_of
from broker_core.version import __version__


def inspection_routes(kafka: EmbeddedBroker) -> APIRouter:
    """Return the routes."""
    table = Table("inspection")

    @table.get("bootstrap_servers")
    def about() -> views.About:
        """Return the addresses that clients connect to, and the ids of the brokers."""
        return views.About(
            bootstrap_servers=kafka.bootstrap_servers, broker_ids=list(kafka.broker_ids), version=__version__
        )

    @table.get("bootstrap")
    def bootstrap(query: Annotated[forms.Bootstrap, InQuery()]) -> views.Address:
        """Return the addresses of one listener."""
        return views.Address(bootstrap_servers=kafka.bootstrap(query.listener))

    @table.get("partition")
    def partition(query: Annotated[forms.Partition, InQuery()]) -> views.PartitionState:
        """Return offsets, leader, producers and open transactions of a partition."""
        return views.PartitionState.of_view(kafka.partition(query.topic, query.partition))

    @table.get("written_partitions")
    def written_partitions() -> views.Places:
        """Return the partitions that records were written to, internal topics left out."""
        return views.Places(partitions=[views.Place.of(each) for each in kafka.written_partitions()])

    @table.get("transactions")
    def transactions() -> views.Transactions:
        """Return the state of each transactional id."""
        return views.Transactions(transactions=[views.Transaction.of(each) for each in kafka.transactions()])

    @table.get("transaction")
    def transaction(query: Annotated[forms.TransactionalId, InQuery()]) -> views.Transaction:
        """Return the state of a transactional id."""
        return views.Transaction.of(kafka.transaction(query.transactional_id))

    @table.get("requests")
    def requests(query: Annotated[forms.Requests, InQuery()]) -> views.Requests:
        """Return the newest requests that match, oldest first."""
        found = kafka.requests(**query.model_dump())
        return views.Requests(requests=[views.Request.of(each) for each in found])

    @table.get("assert_quiescent")
    def assert_quiescent(query: Annotated[forms.AssertQuiescent, InQuery()]) -> views.Done:
        """Check that nothing is in progress; 409 with the list of what is."""
        kafka.assert_quiescent(clients_may_wait=query.clients_may_wait)
        return views.Done()

    @table.get("pytest --kafka-report")
    def report(query: Annotated[forms.Report, InQuery()]) -> HTMLResponse:
        """Return a page about requests, partitions, transactions and groups, with their timelines."""
        return HTMLResponse(page(query.title, "", [state_of(kafka)]))

    return table.router
