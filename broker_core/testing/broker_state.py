"""The state of a broker that a report shows: its newest requests, partitions, transactions and groups.

Its size is bounded, and so is the time that it takes to read it, as a run may have thousands of failed tests.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from broker_core.broker.cluster import Cluster
from broker_core.broker.monitoring.inspection import (
    PartitionView,
    RecordView,
    TransactionView,
    partition_view,
    record_views,
    transaction_views,
    written_partitions,
)
from broker_core.broker.request_log import RequestSeen
from broker_core.errors import KafkaError
from broker_core.server.socket_server import SocketServer
from broker_core.testing.groups import GroupView, group_ids, group_view
from broker_core.testing.inspection_controls import InspectionControls
from broker_core.testing.snapshots import in_memory

CLOSED = "The broker had been closed. This is what it contained then."
SHOWN_RECORDS = 200

_SHOWN_REQUESTS = 1000
_SHOWN_PARTITIONS = 40
_SHOWN_TRANSACTIONS = 200
_SHOWN_GROUPS = 100
# Offsets of one partition, if there are few partitions, and of all together.
_DRAWN_OFFSETS = 1000
_READ_OFFSETS = 10_000
_UNKNOWN = "Its partitions, transactions and groups are not known"
CLOSED_UNKNOWN = f"The broker had been closed. {_UNKNOWN}."


@dataclass(frozen=True)
class PartitionState:
    """A partition with its records from `first_offset` on."""

    view: PartitionView
    records: Sequence[RecordView]
    first_offset: int


@dataclass(frozen=True)
class BrokerState:
    """What a report shows of a broker. `note` says what is missing, or that the broker was closed.

    `earlier_requests` and the other counts are the numbers of what is left out. `is_known` is False if there are only
    requests.
    """

    requests: Sequence[RequestSeen]
    earlier_requests: int = 0
    name: str = ""
    note: str = ""
    is_known: bool = False
    partitions: Sequence[PartitionState] = field(default_factory=tuple)
    more_partitions: int = 0
    transactions: Sequence[TransactionView] = field(default_factory=tuple)
    more_transactions: int = 0
    groups: Sequence[GroupView] = field(default_factory=tuple)
    more_groups: int = 0


def state_of(broker: InspectionControls, since: int = 0) -> BrokerState:
    """Return the state of a broker that has not been closed, with its requests after the first `since`."""
    seen = requests_of(broker, since)
    try:
        return broker._thread.act(
            lambda server: _read_crashed(server, seen) if server.is_down else _read(server.cluster, seen)
        )
    except RuntimeError as error:
        return replace(seen, note=f"{_UNKNOWN}: {error}.")


def state_when_closed(broker: InspectionControls) -> Callable[[int], BrokerState]:
    """Return a function like `state_of` for the time after a broker with files in memory, which runs, is closed."""
    server = broker._thread.server
    cluster = None if server is None or server.is_down else server.cluster

    def state(since: int) -> BrokerState:
        seen = requests_of(broker, since)
        # Another thread may be closing it at this moment.
        if server is None or broker._thread.is_started:
            return replace(seen, note=CLOSED_UNKNOWN)
        if cluster is None:
            return _read_crashed(server, seen)
        # The logs are closed. In memory, they can be opened again.
        return _read(cluster, replace(seen, note=CLOSED))

    return state


def _read_crashed(server: SocketServer, seen: BrokerState) -> BrokerState:
    note = "All brokers had crashed. This is what a restart would find."
    return _read(server.cluster_of(in_memory(server.storage)), replace(seen, note=note))


def requests_of(broker: InspectionControls, since: int = 0) -> BrokerState:
    """Return a state that contains only the requests, without asking the broker's thread."""
    total = broker._requests.total
    newest = list(broker._requests)[-_SHOWN_REQUESTS:]
    kept = newest[max(0, len(newest) - (total - since)) :]
    return BrokerState(kept, total - len(kept))


def _read(cluster: Cluster, seen: BrokerState) -> BrokerState:
    places = written_partitions(cluster)
    shown = places[:_SHOWN_PARTITIONS]
    offsets = max(SHOWN_RECORDS, min(_DRAWN_OFFSETS, _READ_OFFSETS // max(len(shown), 1)))
    partitions = []
    for place in shown:
        # Without a leader, for example.
        with suppress(KafkaError):
            log = cluster.logs.get(place, cluster.now_ms)
            first = max(log.log_start_offset, log.log_end_offset - offsets)
            view = partition_view(cluster, place, first)
            partitions.append(PartitionState(view, record_views(cluster, place, from_offset=first), first))
    transactions, groups = transaction_views(cluster), group_ids(cluster)
    return replace(
        seen,
        is_known=True,
        partitions=partitions,
        more_partitions=len(places) - len(partitions),
        transactions=transactions[:_SHOWN_TRANSACTIONS],
        more_transactions=len(transactions[_SHOWN_TRANSACTIONS:]),
        groups=[group_view(cluster, group_id) for group_id in groups[:_SHOWN_GROUPS]],
        more_groups=len(groups[_SHOWN_GROUPS:]),
    )
