"""The routes for faults, brokers, leaders, coordinators, the network and the clock."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery

from broker_core.broker.fault_injection import Fault
from broker_core.embedded import EmbeddedBroker
from broker_core.features.control import forms, views
from broker_core.features.control.data_routes import Waits
from broker_core.features.control.handles import Handles, UnknownIdError
from broker_core.features.control.routing import Fields, Table
from broker_core.server.cluster_controls import Outage
from broker_core.types import counted

_MOST = 1000


@dataclass(frozen=True)
class _Injected:
    """A fault, and the event that ends its Hold."""

    fault: Fault
    released: threading.Event


@dataclass(frozen=True)
class _Begun:
    """An outage, and how it was begun."""

    outage: Outage
    call: str
    arguments: forms.Form


class Disturbances:
    """The faults and outages of a control port."""

    def __init__(self) -> None:
        self.faults: Handles[_Injected] = Handles("fault", _MOST)
        self.outages: Handles[_Begun] = Handles("outage", _MOST)

    def remove_fault(self, name: str) -> None:
        injected = self.faults.remove(name)
        injected.fault.remove()
        injected.released.set()

    def end_outage(self, name: str) -> None:
        self.outages.remove(name).outage.end()

    def end_all(self) -> None:
        for ids, end in ((self.faults.ids(), self.remove_fault), (self.outages.ids(), self.end_outage)):
            for each in ids:
                # Another request may have ended it meanwhile.
                with suppress(UnknownIdError):
                    end(each)


def fault_routes(kafka: EmbeddedBroker, waits: Waits, disturbances: Disturbances) -> APIRouter:
    table = Table("faults")
    found = disturbances.faults

    def add(inject: Callable[[threading.Event], Fault]) -> views.FaultState:
        found.reserve()
        released = threading.Event()
        injected = _Injected(inject(released), released)
        return views.FaultState.of(found.add(injected), injected.fault)

    @table.post("fault", 201)
    def fault(body: forms.Fault) -> views.FaultState:
        """Inject a fault into requests that match all that is given, until `remove_fault`."""
        return add(
            lambda released: kafka.fault(action=forms.action_of(body.action, released), when=body.when, **body.wanted())
        )

    @table.post("throttle", 201)
    def throttle(body: forms.ThrottleWanted) -> views.FaultState:
        """Throttle the clients of matching requests as a quota does, until `remove_fault`."""
        return add(lambda _: kafka.throttle(body.seconds, **body.wanted()))

    @table.get("Fault", views.Faults)
    def faults() -> Fields:
        """Return the faults that were not removed."""
        return {"faults": [views.FaultState.of(name, each.fault) for name, each in found.items()]}

    @table.get("wait_for")
    async def wait_for_hits(query: Annotated[forms.WaitForHits, InQuery()]) -> views.FaultState:
        """Wait until a fault was applied to at least so many requests."""
        fault = found.get(query.id).fault

        def wait() -> views.FaultState:
            try:
                kafka.wait_for(lambda: fault.hits >= query.hits, query.timeout)
            except AssertionError:
                wanted = counted(query.hits, "request")
                raise AssertionError(
                    f"the fault was applied to {fault.hits} of {wanted} within {query.timeout} s: {fault!r}"
                ) from None
            return views.FaultState.of(query.id, fault)

        return await waits.run(wait)

    @table.post("Hold")
    def release(body: forms.Handle) -> views.FaultState:
        """Continue the requests that a fault with Hold delays, and do not delay later ones."""
        injected = found.get(body.id)
        injected.released.set()
        return views.FaultState.of(body.id, injected.fault)

    @table.post("Fault.remove")
    def remove_fault(body: forms.Handle) -> None:
        """Remove a fault; the requests that it delays with Hold continue."""
        disturbances.remove_fault(body.id)

    @table.post("Fault.remove")
    def reset(_: forms.Nothing | None = None) -> None:
        """Remove all faults and end all outages that were created with this API."""
        disturbances.end_all()

    return table.router


def outage_routes(kafka: EmbeddedBroker, disturbances: Disturbances) -> APIRouter:
    """Return the routes for what lasts until it is ended."""
    table = Table("outages and network")
    found = disturbances.outages

    def begin(call: str, arguments: forms.Form, begun: Callable[[], Outage]) -> views.Outage:
        found.reserve()
        each = _Begun(begun(), call, arguments)
        return state(found.add(each), each)

    def state(name: str, each: _Begun) -> views.Outage:
        return views.Outage(id=name, call=each.call, arguments=each.arguments.model_dump(exclude_none=True))

    @table.post("without_leader", 201)
    def without_leader(body: forms.PlaceForm) -> views.Outage:
        """Leave a partition without leader until `end_outage`."""
        return begin("without_leader", body, lambda: kafka.without_leader((body.topic, body.partition)))

    @table.post("without_coordinator", 201)
    def without_coordinator(body: forms.CoordinatorForm) -> views.Outage:
        """Leave a transactional id or a group without coordinator until `end_outage`."""
        return begin("without_coordinator", body, lambda: kafka.without_coordinator(**body.model_dump()))

    @table.post("stale_broker", 201)
    def stale_broker(body: forms.BrokerForm) -> views.Outage:
        """Cut a broker off from the others until `end_outage`; clients still reach it."""
        return begin("stale_broker", body, lambda: kafka.stale_broker(body.broker))

    @table.post("network", 201)
    def network(body: forms.Network) -> views.Outage:
        """Make the network between clients and brokers slow until `end_outage`."""
        return begin("network", body, lambda: kafka.network(**body.model_dump()))

    @table.get("Outage", views.Outages)
    def outages() -> Fields:
        """Return the outages that were not ended."""
        return {"outages": [state(*each) for each in found.items()]}

    @table.post("Outage.end")
    def end_outage(body: forms.Handle) -> None:
        """End an outage."""
        disturbances.end_outage(body.id)

    return table.router


def broker_routes(kafka: EmbeddedBroker) -> APIRouter:
    table = Table("brokers")

    @table.get("broker(...).is_running", views.Brokers)
    def brokers() -> Fields:
        """Return all brokers, and whether they run."""
        return {"brokers": [{"broker": each, "is_running": kafka.broker(each).is_running} for each in kafka.broker_ids]}

    @table.post("broker(...).stop")
    def stop_broker(body: forms.BrokerForm) -> None:
        """Shut a broker down cleanly."""
        kafka.broker(body.broker).stop()

    @table.post("broker(...).crash")
    def crash_broker(body: forms.BrokerForm) -> None:
        """Break the connections of a broker at once; the crash of the last one is a crash of all."""
        kafka.broker(body.broker).crash()

    @table.post("broker(...).start")
    def start_broker(body: forms.BrokerForm) -> None:
        """Start a broker at its previous address; no effect if it is running."""
        kafka.broker(body.broker).start()

    @table.post("crash")
    def crash(_: forms.Nothing | None = None) -> None:
        """Crash all brokers at once; logs in memory lose what was not synced."""
        kafka.crash()

    @table.post("restart")
    def restart(_: forms.Nothing | None = None) -> None:
        """Start all brokers that are not running; if all are, stop them cleanly first."""
        kafka.restart()

    return table.router


def move_routes(kafka: EmbeddedBroker) -> APIRouter:
    table = Table("leaders and coordinators")

    @table.get("leader", views.Leader)
    def leader(query: Annotated[forms.Partition, InQuery()]) -> Fields:
        """Return the broker that leads a partition, -1 if none does."""
        return {"broker": kafka.leader((query.topic, query.partition))}

    @table.post("move_leader")
    def move_leader(body: forms.MoveLeader) -> None:
        """Make a broker the leader of a partition, in a new leader epoch."""
        kafka.move_leader((body.topic, body.partition), body.broker)

    @table.get("coordinator", views.Leader)
    def coordinator(query: Annotated[forms.CoordinatorForm, InQuery()]) -> Fields:
        """Return the broker that coordinates a transactional id or a group, -1 if none does."""
        return {"broker": kafka.coordinator(**query.model_dump())}

    @table.post("move_coordinator")
    def move_coordinator(body: forms.MoveCoordinator) -> None:
        """Make a broker the coordinator of a transactional id or a group."""
        kafka.move_coordinator(**body.model_dump())

    return table.router


def address_routes(kafka: EmbeddedBroker) -> APIRouter:
    table = Table("addresses")

    @table.post("advertise", form=views.Address)
    def advertise(body: forms.Advertise) -> Fields:
        """Name other addresses to clients, such as the ports that a container's are mapped to."""
        kafka.advertise(body.addresses, body.listener)
        return {"bootstrap_servers": kafka.bootstrap(body.listener or next(iter(kafka.listeners)))}

    return table.router


def clock_routes(kafka: EmbeddedBroker) -> APIRouter:
    table = Table("virtual time")

    @table.get("clock.now_ms", views.Clock)
    def clock() -> Fields:
        """Return the time of the virtual clock."""
        return {"now_ms": kafka.clock.now_ms()}

    @table.post("clock.advance", form=views.Clock)
    def advance(body: forms.Advance) -> Fields:
        """Advance the virtual clock; timeouts and retention run, each at its own time."""
        kafka.clock.advance(**body.model_dump())
        return {"now_ms": kafka.clock.now_ms()}

    return table.router
