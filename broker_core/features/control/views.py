"""The JSON forms of the results, as they are described for other languages."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from broker_core.broker.fault_injection import Fault
from broker_core.broker.monitoring.inspection import PartitionView, RecordView
from broker_core.broker.request_log import RequestSeen
from broker_core.features.control.forms import form_of
from broker_core.testing.groups import GroupView

# A value, key or header: text, null, or an object with `base64` for bytes that are no UTF-8 text.
Data = Annotated[
    str | dict[str, str] | None, Field(description='text, null, or {"base64": "..."} for bytes that are not UTF-8')
]

Names = Annotated[list[str], BeforeValidator(sorted)]
ErrorNames = Annotated[list[str], BeforeValidator(lambda codes: [each.name for each in codes])]


class View(BaseModel):
    """The form of objects whose attributes have the names of its fields."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, found: Any) -> Self:
        return cls.model_validate(found)


def _result(name: str, meaning: str, field: str, kind: Any) -> type[BaseModel]:
    """Return the form of a result with one field."""
    fields: dict[str, Any] = {field: (kind, ...)}
    return create_model(name, __doc__=meaning, __module__=__name__, **fields)


class Problem(BaseModel):
    """Why a request was refused, and what to do."""

    error: str
    what_to_do: str
    code: str | None = Field(None, description="the name of Kafka's error code, if there is one")


class Done(BaseModel):
    """The result of a call that returns nothing."""

    done: bool = True


class About(BaseModel):
    """The broker that the port controls."""

    bootstrap_servers: str
    broker_ids: list[int]
    version: str = Field(description="the version of broker_core")


Address = _result("Address", "The addresses of a listener.", "bootstrap_servers", str)
Topics = _result("Topics", "The topics with their numbers of partitions.", "topics", dict[str, int])


class Place(View):
    """A partition."""

    topic: str
    partition: int


SortedPlaces = Annotated[list[Place], BeforeValidator(sorted)]

Places = _result("Places", "Partitions.", "partitions", list[Place])


class WrittenRecord(Place):
    """The place of a record that was written."""

    offset: int
    timestamp_ms: int


Written = _result("Written", "The places of records, in the order of the request.", "records", list[WrittenRecord])


class Record(Place):
    """A record in a log; `marker` is COMMIT or ABORT if it ends a transaction."""

    offset: int
    timestamp_ms: int
    key: Data
    value: Data
    headers: list[tuple[str, Data]]
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_control: bool
    marker: str | None

    @classmethod
    def of(cls, view: RecordView) -> Self:
        data = (None, None) if view.is_control else (form_of(view.key), form_of(view.value))
        headers = [(name, form_of(each)) for name, each in view.headers]
        others = {name: getattr(view, name) for name in cls.model_fields.keys() - {"key", "value", "headers"}}
        return cls.model_construct(key=data[0], value=data[1], headers=headers, **others)


Records = _result("Records", "Records in the order of their partitions and offsets.", "records", list[Record])


class Transaction(View):
    """The state of a transactional id; `start_ms` is -1 if no transaction was begun."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: SortedPlaces = Field(description="the partitions without a marker")
    timeout_ms: int
    start_ms: int
    coordinator: int


Transactions = _result("Transactions", "All transactional ids.", "transactions", list[Transaction])


class OpenTransaction(View):
    """A transaction that awaits its marker in a partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


class AbortedTransaction(View):
    """An aborted transaction: the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Producer(View):
    """A producer that a partition knows."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp_ms: int
    current_txn_first_offset: int | None


class PartitionState(Place):
    """The state of a partition; `dump` is a readable listing."""

    leader: int
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    open_transactions: list[OpenTransaction]
    aborted_transactions: list[AbortedTransaction]
    producers: list[Producer]
    dump: str

    @classmethod
    def of(cls, view: PartitionView) -> Self:
        named = {name: getattr(view, name) for name in cls.model_fields.keys() - {"topic", "partition", "dump"}}
        place = view.topic_partition
        return cls(topic=place.topic, partition=place.partition, dump=view.dump(), **named)


Groups = _result("Groups", "The ids of all groups.", "groups", list[str])


class Member(View):
    """A member of a group with its partitions."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: SortedPlaces


class GroupOffset(Place):
    """A partition of a group: its committed offset if there is one, and its lag if the partition exists."""

    committed: int | None
    lag: int | None


class Group(View):
    """The state of a group; Dead for one that does not exist."""

    group: str
    state: str
    members: list[Member]
    offsets: list[GroupOffset]
    total_lag: int | None = Field(description="the sum over all partitions; null if no partition has a lag")

    @classmethod
    def of(cls, view: GroupView) -> Self:
        return cls(
            group=view.group_id,
            state=view.state,
            members=[Member.of(each) for each in view.members],
            offsets=[
                GroupOffset(**place._asdict(), committed=view.committed.get(place), lag=view.lag.get(place))
                for place in sorted(view.committed.keys() | view.lag.keys())
            ],
            total_lag=view.total_lag if view.lag else None,
        )


class Request(View):
    """A request of a client; `text` is a readable line."""

    api: str
    version: int
    client_id: str
    principal: str
    broker: int
    time_ms: int
    size_bytes: int
    outcome: str
    error_codes: ErrorNames
    transactional_ids: Names
    groups: Names
    topics: Names
    partitions: SortedPlaces
    text: str

    @classmethod
    def of(cls, seen: RequestSeen) -> Self:
        return cls(text=str(seen), **{name: getattr(seen, name) for name in cls.model_fields.keys() - {"text"}})


Requests = _result("Requests", "Requests, oldest first.", "requests", list[Request])


class FaultState(BaseModel):
    """A fault: `hits` counts the requests it was applied to, `matched` all requests that match its criteria."""

    id: str
    hits: int
    matched: int
    text: str

    @classmethod
    def of(cls, name: str, fault: Fault) -> "FaultState":
        return cls(id=name, hits=fault.hits, matched=fault.matched, text=repr(fault))


Faults = _result("Faults", "The faults that were not removed.", "faults", list[FaultState])


class Outage(BaseModel):
    """An outage, with the call that began it."""

    id: str
    call: str
    arguments: dict[str, Any]


Outages = _result("Outages", "The outages that were not ended.", "outages", list[Outage])


class BrokerState(BaseModel):
    """A broker."""

    broker: int
    is_running: bool


Brokers = _result("Brokers", "All brokers.", "brokers", list[BrokerState])
Leader = _result("Leader", "The id of a broker; -1 if there is none.", "broker", int)
Clock = _result("Clock", "The broker's time in milliseconds since the epoch.", "now_ms", int)


class Snapshot(BaseModel):
    """A snapshot."""

    id: str
    size_bytes: int


Snapshots = _result("Snapshots", "The snapshots that were not removed.", "snapshots", list[Snapshot])
