"""The calls of the routes: what each address of `routes.json` does with the arguments of a request."""

import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi.responses import HTMLResponse

from broker_core.broker.fault_injection import Fault, Moment
from broker_core.embedded import EmbeddedBroker
from broker_core.features.control import forms, views
from broker_core.features.control.handles import Handles, UnknownIdError
from broker_core.report_page import page
from broker_core.server.cluster_controls import Outage
from broker_core.testing.broker_state import state_of
from broker_core.testing.producing import End
from broker_core.testing.snapshots import Snapshot
from broker_core.types import counted
from broker_core.version import __version__

_MOST = 1000
_MOST_SNAPSHOTS = 100
_NO_SETTINGS: Mapping[str, str] = {}
Calls = Mapping[str, Callable[..., Any]]


def calls(kafka: EmbeddedBroker) -> Calls:
    """Return what each route calls, by its name; `forms.ARGUMENTS` and its base have the arguments."""
    disturbances = Disturbances()
    faults, outages = _faults(kafka, disturbances), _outages(kafka, disturbances)
    return {**_state(kafka), **_data(kafka), **_brokers(kafka), **faults, **outages, **_snapshots(kafka)}


def _state(kafka: EmbeddedBroker) -> Calls:
    def about() -> views.About:
        servers, ids = kafka.bootstrap_servers, list(kafka.broker_ids)
        return views.About(bootstrap_servers=servers, broker_ids=ids, version=__version__)

    return {
        "about": about,
        "bootstrap": lambda listener: kafka.bootstrap(listener),
        "partition": lambda topic, partition: kafka.partition(topic, partition),
        "written_partitions": kafka.written_partitions,
        "transactions": kafka.transactions,
        "transaction": kafka.transaction,
        "requests": kafka.requests,
        "assert_quiescent": kafka.assert_quiescent,
        "report": lambda title="broker_core": HTMLResponse(page(title, "", [state_of(kafka)])),
    }


def _data(kafka: EmbeddedBroker) -> Calls:
    def produce(
        topic: str,
        values: list[forms.Item],
        transactional: str | bool | None = None,
        end: End = "commit",
        partition: int | None = None,
    ) -> Any:
        records = list(map(forms.record_of, values))
        return kafka.produce(topic, records, transactional=transactional, end=end, partition=partition)

    return {
        "topics": lambda: kafka.topics,
        "create_topic": lambda name, partitions=1, config=_NO_SETTINGS: kafka.create_topic(name, partitions, config),
        "delete_topic": kafka.delete_topic,
        "produce": produce,
        "end_transaction": kafka.end_transaction,
        "records": kafka.records,
        "wait_for_records": kafka.wait_for_records,
        "groups": lambda: kafka.groups,
        "group": lambda group: kafka.group(group).view(),
        "wait_stable": lambda group, members=None, timeout=10: kafka.group(group).wait_stable(members, timeout),
        "wait_caught_up": lambda group, timeout=10: kafka.group(group).wait_caught_up(timeout),
    }


def _brokers(kafka: EmbeddedBroker) -> Calls:
    def advertise(addresses: str, listener: str | None = None) -> str:
        kafka.advertise(addresses, listener)
        return kafka.bootstrap(listener or next(iter(kafka.listeners)))

    def advance(seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> int:
        kafka.clock.advance(seconds, minutes=minutes, hours=hours, days=days)
        return kafka.clock.now_ms()

    return {
        "brokers": lambda: [{"broker": each, "is_running": kafka.broker(each).is_running} for each in kafka.broker_ids],
        "stop_broker": lambda broker: kafka.broker(broker).stop(),
        "crash_broker": lambda broker: kafka.broker(broker).crash(),
        "start_broker": lambda broker: kafka.broker(broker).start(),
        "crash": kafka.crash,
        "restart": kafka.restart,
        "leader": lambda topic, partition: kafka.leader((topic, partition)),
        "move_leader": lambda topic, partition, broker: kafka.move_leader((topic, partition), broker),
        "coordinator": kafka.coordinator,
        "move_coordinator": kafka.move_coordinator,
        "advertise": advertise,
        "clock": lambda: kafka.clock.now_ms(),
        "advance": advance,
    }


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

    def remove_fault(self, id: str) -> None:
        injected = self.faults.remove(id)
        injected.fault.remove()
        injected.released.set()

    def end_outage(self, id: str) -> None:
        self.outages.remove(id).outage.end()

    def end_all(self) -> None:
        for ids, end in ((self.faults.ids(), self.remove_fault), (self.outages.ids(), self.end_outage)):
            for each in ids:
                # Another request may have ended it meanwhile.
                with suppress(UnknownIdError):
                    end(each)


def _faults(kafka: EmbeddedBroker, disturbances: Disturbances) -> Calls:
    found = disturbances.faults

    def add(inject: Callable[[threading.Event], Fault]) -> views.FaultState:
        found.reserve()
        released = threading.Event()
        injected = _Injected(inject(released), released)
        return views.FaultState.of(found.add(injected), injected.fault)

    def fault(action: forms.ActionForm, when: Moment = "before", **wanted: Any) -> views.FaultState:
        return add(lambda released: kafka.fault(action=forms.action_of(action, released), when=when, **wanted))

    def wait_for_hits(id: str, hits: int = 1, timeout: float = 10) -> views.FaultState:
        fault = found.get(id).fault
        try:
            kafka.wait_for(lambda: fault.hits >= hits, timeout)
        except AssertionError:
            wanted = counted(hits, "request")
            raise AssertionError(
                f"the fault was applied to {fault.hits} of {wanted} within {timeout} s: {fault!r}"
            ) from None
        return views.FaultState.of(id, fault)

    def release(id: str) -> views.FaultState:
        injected = found.get(id)
        injected.released.set()
        return views.FaultState.of(id, injected.fault)

    return {
        "fault": fault,
        "throttle": lambda **wanted: add(lambda _: kafka.throttle(**wanted)),
        "faults": lambda: [views.FaultState.of(name, each.fault) for name, each in found.items()],
        "wait_for_hits": wait_for_hits,
        "release": release,
        "remove_fault": disturbances.remove_fault,
        "reset": disturbances.end_all,
    }


def _outages(kafka: EmbeddedBroker, disturbances: Disturbances) -> Calls:
    found = disturbances.outages

    def state(name: str, each: _Begun) -> views.Outage:
        return views.Outage(id=name, call=each.call, arguments=each.arguments)

    def begins(call: str, begin: Callable[..., Outage]) -> Callable[..., views.Outage]:
        def begun(**arguments: Any) -> views.Outage:
            found.reserve()
            given = {name: value for name, value in arguments.items() if value is not None}
            each = _Begun(begin(**arguments), call, given)
            return state(found.add(each), each)

        begun.__signature__ = inspect.signature(begin)  # type: ignore[attr-defined]
        return begun

    beginnings: dict[str, Callable[..., Outage]] = {
        "without_leader": lambda topic, partition: kafka.without_leader((topic, partition)),
        "without_coordinator": kafka.without_coordinator,
        "stale_broker": kafka.stale_broker,
        "network": kafka.network,
    }
    return {
        **{name: begins(name, each) for name, each in beginnings.items()},
        "outages": lambda: [state(*each) for each in found.items()],
        "end_outage": disturbances.end_outage,
    }


def _snapshots(kafka: EmbeddedBroker) -> Calls:
    found: Handles[Snapshot] = Handles("snapshot", _MOST_SNAPSHOTS)

    def state(name: str, snapshot: Snapshot) -> views.Snapshot:
        return views.Snapshot(id=name, size_bytes=snapshot.size_bytes)

    def take() -> views.Snapshot:
        found.reserve()
        taken = kafka.snapshot()
        return state(found.add(taken), taken)

    return {
        "snapshot": take,
        "snapshots": lambda: [state(*each) for each in found.items()],
        "restore": lambda id: kafka.restore(found.get(id)),
        "remove_snapshot": lambda id: found.remove(id),
    }
