"""The routes for faults, brokers, leaders, coordinators, the network and the clock."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from broker_core.broker.fault_injection import Fault, Moment
from broker_core.embedded import EmbeddedBroker
from broker_core.features.control import forms, views
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
    arguments: dict[str, Any]


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


def fault_routes(table: Table, kafka: EmbeddedBroker, disturbances: Disturbances) -> None:
    table.section = "faults"
    found = disturbances.faults

    def add(inject: Callable[[threading.Event], Fault]) -> views.FaultState:
        found.reserve()
        released = threading.Event()
        injected = _Injected(inject(released), released)
        return views.FaultState.of(found.add(injected), injected.fault)

    @table.post("fault", 201, base=forms.Wanted)
    def fault(
        action: forms.ActionForm,
        when: Annotated[
            Moment,
            Field(description="before the request is handled, after it took effect, or before each marker of EndTxn"),
        ] = "before",
        **wanted: Any,
    ) -> views.FaultState:
        """Inject a fault into requests that match all that is given, until `remove_fault`."""
        return add(lambda released: kafka.fault(action=forms.action_of(action, released), when=when, **wanted))

    @table.post("throttle", 201, base=forms.Wanted)
    def throttle(seconds: forms.ThrottleSeconds, **wanted: Any) -> views.FaultState:
        """Throttle the clients of matching requests as a quota does, until `remove_fault`."""
        return add(lambda _: kafka.throttle(seconds, **wanted))

    @table.get("Fault", views.Faults)
    def faults() -> Fields:
        """Return the faults that were not removed."""
        return {"faults": [views.FaultState.of(name, each.fault) for name, each in found.items()]}

    @table.get("wait_for", waits=True)
    def wait_for_hits(
        id: forms.Id,
        hits: Annotated[forms.Count, Field(description="how many requests the fault has to apply to")] = 1,
        timeout: forms.Seconds = 10,
    ) -> views.FaultState:
        """Wait until a fault was applied to at least so many requests."""
        fault = found.get(id).fault
        try:
            kafka.wait_for(lambda: fault.hits >= hits, timeout)
        except AssertionError:
            wanted = counted(hits, "request")
            raise AssertionError(
                f"the fault was applied to {fault.hits} of {wanted} within {timeout} s: {fault!r}"
            ) from None
        return views.FaultState.of(id, fault)

    @table.post("Hold")
    def release(id: forms.Id) -> views.FaultState:
        """Continue the requests that a fault with Hold delays, and do not delay later ones."""
        injected = found.get(id)
        injected.released.set()
        return views.FaultState.of(id, injected.fault)

    @table.post("Fault.remove")
    def remove_fault(id: forms.Id) -> None:
        """Remove a fault; the requests that it delays with Hold continue."""
        disturbances.remove_fault(id)

    @table.post("Fault.remove")
    def reset() -> None:
        """Remove all faults and end all outages that were created with this API."""
        disturbances.end_all()


def outage_routes(table: Table, kafka: EmbeddedBroker, disturbances: Disturbances) -> None:
    """Return the routes for what lasts until it is ended."""
    table.section = "outages and network"
    found = disturbances.outages

    def begin(call: str, begun: Callable[[], Outage], **arguments: Any) -> views.Outage:
        found.reserve()
        given = {name: each for name, each in arguments.items() if each is not None}
        each = _Begun(begun(), call, given)
        return state(found.add(each), each)

    def state(name: str, each: _Begun) -> views.Outage:
        return views.Outage(id=name, call=each.call, arguments=each.arguments)

    @table.post("without_leader", 201)
    def without_leader(topic: str, partition: forms.PartitionNumber) -> views.Outage:
        """Leave a partition without leader until `end_outage`."""
        return begin(
            "without_leader", lambda: kafka.without_leader((topic, partition)), topic=topic, partition=partition
        )

    @table.post("without_coordinator", 201)
    def without_coordinator(transactional_id: str | None = None, group: str | None = None) -> views.Outage:
        """Leave a transactional id or a group without coordinator until `end_outage`."""
        named = {"transactional_id": transactional_id, "group": group}
        return begin("without_coordinator", lambda: kafka.without_coordinator(**named), **named)

    @table.post("stale_broker", 201)
    def stale_broker(broker: forms.BrokerId) -> views.Outage:
        """Cut a broker off from the others until `end_outage`; clients still reach it."""
        return begin("stale_broker", lambda: kafka.stale_broker(broker), broker=broker)

    @table.post("network", 201)
    def network(
        latency_ms: Annotated[forms.Span, Field(description="the delay of each request, and again of each answer")] = 0,
        bytes_per_s: Annotated[float | None, Field(description="the rate of each connection in each direction")] = None,
        client_id: str | None = None,
        broker: forms.BrokerId | None = None,
    ) -> views.Outage:
        """Make the network between clients and brokers slow until `end_outage`."""
        arguments: dict[str, Any] = {
            "latency_ms": latency_ms,
            "bytes_per_s": bytes_per_s,
            "client_id": client_id,
            "broker": broker,
        }
        return begin("network", lambda: kafka.network(**arguments), **arguments)

    @table.get("Outage", views.Outages)
    def outages() -> Fields:
        """Return the outages that were not ended."""
        return {"outages": [state(*each) for each in found.items()]}

    @table.post("Outage.end")
    def end_outage(id: forms.Id) -> None:
        """End an outage."""
        disturbances.end_outage(id)


def broker_routes(table: Table, kafka: EmbeddedBroker) -> None:
    table.section = "brokers"

    @table.get("broker(...).is_running", views.Brokers)
    def brokers() -> Fields:
        """Return all brokers, and whether they run."""
        return {"brokers": [{"broker": each, "is_running": kafka.broker(each).is_running} for each in kafka.broker_ids]}

    @table.post("broker(...).stop")
    def stop_broker(broker: forms.BrokerId) -> None:
        """Shut a broker down cleanly."""
        kafka.broker(broker).stop()

    @table.post("broker(...).crash")
    def crash_broker(broker: forms.BrokerId) -> None:
        """Break the connections of a broker at once; the crash of the last one is a crash of all."""
        kafka.broker(broker).crash()

    @table.post("broker(...).start")
    def start_broker(broker: forms.BrokerId) -> None:
        """Start a broker at its previous address; no effect if it is running."""
        kafka.broker(broker).start()

    @table.post("crash")
    def crash() -> None:
        """Crash all brokers at once; logs in memory lose what was not synced."""
        kafka.crash()

    @table.post("restart")
    def restart() -> None:
        """Start all brokers that are not running; if all are, stop them cleanly first."""
        kafka.restart()


def move_routes(table: Table, kafka: EmbeddedBroker) -> None:
    table.section = "leaders and coordinators"

    @table.get("leader", views.Leader)
    def leader(topic: str, partition: forms.PartitionNumber) -> Fields:
        """Return the broker that leads a partition, -1 if none does."""
        return {"broker": kafka.leader((topic, partition))}

    @table.post("move_leader")
    def move_leader(topic: str, partition: forms.PartitionNumber, broker: forms.BrokerId) -> None:
        """Make a broker the leader of a partition, in a new leader epoch."""
        kafka.move_leader((topic, partition), broker)

    @table.get("coordinator", views.Leader)
    def coordinator(transactional_id: str | None = None, group: str | None = None) -> Fields:
        """Return the broker that coordinates a transactional id or a group, -1 if none does."""
        return {"broker": kafka.coordinator(transactional_id=transactional_id, group=group)}

    @table.post("move_coordinator")
    def move_coordinator(broker: forms.BrokerId, transactional_id: str | None = None, group: str | None = None) -> None:
        """Make a broker the coordinator of a transactional id or a group."""
        kafka.move_coordinator(broker, transactional_id=transactional_id, group=group)


def address_routes(table: Table, kafka: EmbeddedBroker) -> None:
    table.section = "addresses"

    @table.post("advertise", form=views.Address)
    def advertise(
        addresses: Annotated[str, Field(description="host:port of each broker, with commas between them")],
        listener: Annotated[str | None, Field(description="by default the first one")] = None,
    ) -> Fields:
        """Name other addresses to clients, such as the ports that a container's are mapped to."""
        kafka.advertise(addresses, listener)
        return {"bootstrap_servers": kafka.bootstrap(listener or next(iter(kafka.listeners)))}


def clock_routes(table: Table, kafka: EmbeddedBroker) -> None:
    table.section = "virtual time"

    @table.get("clock.now_ms", views.Clock)
    def clock() -> Fields:
        """Return the time of the virtual clock."""
        return {"now_ms": kafka.clock.now_ms()}

    @table.post("clock.advance", form=views.Clock)
    def advance(
        seconds: Annotated[forms.Span, Field(description="the time is the sum of all four")] = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> Fields:
        """Advance the virtual clock; timeouts and retention run, each at its own time."""
        kafka.clock.advance(seconds, minutes=minutes, hours=hours, days=days)
        return {"now_ms": kafka.clock.now_ms()}
