"""The JSON forms of the arguments: what a request may contain, in the words of the Python API."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from broker_core.broker.fault_injection import Action, Delay, Disconnect, Drop, Error, Flag, Hold, Throttle
from broker_core.server.cluster_controls import CENTURY_S
from broker_core.testing.producing import ProducerRecord, Text, Values

# Kafka's int32 has the time of a throttled answer, in milliseconds.
_LONGEST_THROTTLE_S = 2_147_483
_LONGEST_WAIT_S = 600
_INT16, _INT32, _INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1
# More would stop the broker for minutes.
_MOST_PARTITIONS = 10_000


class Form(BaseModel):
    """The body of a request: each field has its JSON type, and other fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Query(BaseModel):
    """The parameters of a query, which are text; other parameters are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Nothing(Form):
    """No fields: `{}`, or no body."""


PartitionNumber = Annotated[int, Field(ge=0, le=_INT32, description="the number of the partition")]
Seconds = Annotated[float, Field(ge=0, le=_LONGEST_WAIT_S, description="the longest wait in seconds")]
BrokerId = Annotated[int, Field(description="the id of a broker")]
Id = Annotated[str, Field(description="the id that the creation returned")]
Isolation = Literal["read_committed", "read_uncommitted"]


# Records


class Base64(Form):
    """Bytes that are not UTF-8 text."""

    base64: str

    @field_validator("base64")
    @classmethod
    def _check(cls, text: str) -> str:
        try:
            base64.b64decode(text, validate=True)
        except ValueError as error:
            raise ValueError(f"not Base64: {error}") from None
        return text


def _kind(item: Any) -> str:
    if isinstance(item, str):
        return "text"
    if isinstance(item, Base64) or (isinstance(item, Mapping) and "base64" in item):
        return "base64"
    if item is None:
        return "null"
    return "record" if isinstance(item, Mapping | BaseModel) else "other"


Data = Annotated[
    Annotated[str, Tag("text")] | Annotated[Base64, Tag("base64")] | Annotated[None, Tag("null")],
    Discriminator(
        _kind, custom_error_type="data", custom_error_message='expected text, null or {"base64": "..."} for other bytes'
    ),
]


class Record(Form):
    """A record with more than a value."""

    key: Data = None
    value: Data = None
    headers: dict[str, Data] | list[Annotated[list[Data], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list, description="an object, or pairs of name and value"
    )
    timestamp_ms: int | None = Field(None, ge=0, le=_INT64)
    partition: PartitionNumber | None = None


Item = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[Base64, Tag("base64")]
    | Annotated[None, Tag("null")]
    | Annotated[Record, Tag("record")],
    Discriminator(
        _kind,
        custom_error_type="record",
        custom_error_message=(
            'expected a value (text, null or {"base64": "..."}) or an object with key, value, headers, timestamp_ms '
            "and partition"
        ),
    ),
]


def data_of(form: "str | Base64 | None") -> Text:
    return base64.b64decode(form.base64) if isinstance(form, Base64) else form


def form_of(data: bytes | None) -> str | dict[str, str] | None:
    """Return the JSON form of data: text if it is UTF-8."""
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


class Produce(Form):
    """The arguments of `produce`."""

    topic: str
    values: list[Item] = Field(description="the records: values, or objects with key, value, headers and the like")
    transactional: str | bool | None = Field(None, description="a transactional id, or true for an id of this method")
    end: Literal["commit", "abort", "open"] = Field("commit", description="how the transaction ends")
    partition: PartitionNumber | None = Field(None, description="the partition of records that do not name one")

    def records(self) -> Values:
        return [self._record(each) if isinstance(each, Record) else data_of(each) for each in self.values]

    @staticmethod
    def _record(form: Record) -> ProducerRecord:
        pairs = form.headers.items() if isinstance(form.headers, dict) else form.headers
        # The names are checked where the record is written.
        headers: list[Any] = [(name, data_of(value)) for name, value in pairs]
        return ProducerRecord(data_of(form.key), data_of(form.value), headers, form.timestamp_ms, form.partition)


class EndTransaction(Form):
    """The arguments of `end_transaction`."""

    transactional_id: str
    commit: bool = Field(True, description="false to abort")


class Records(Query):
    """The arguments of `records`."""

    topic: str
    partition: PartitionNumber | None = None
    isolation: Isolation = "read_uncommitted"
    control: bool = Field(False, description="true to return control records too, such as markers of transactions")


class WaitForRecords(Query):
    """The arguments of `wait_for_records`."""

    topic: str
    count: int = Field(ge=0)
    partition: PartitionNumber | None = None
    isolation: Isolation = "read_committed"
    timeout: Seconds = 10


# Topics, groups, snapshots and inspection


class CreateTopic(Form):
    """The arguments of `create_topic`."""

    name: str
    partitions: int = Field(1, le=_MOST_PARTITIONS)
    config: dict[str, str] = Field(default_factory=dict, description="settings of the topic by Kafka's names")


class DeleteTopic(Form):
    """The arguments of `delete_topic`."""

    name: str


class Partition(Query):
    """A partition."""

    topic: str
    partition: PartitionNumber


class TransactionalId(Query):
    """A transactional id."""

    transactional_id: str


class GroupId(Query):
    """A group."""

    group: str = Field(description="the id of the group")


class WaitStable(GroupId):
    """The arguments of `wait_stable`."""

    members: int | None = Field(None, ge=0, description="exactly so many members; without it, at least one")
    timeout: Seconds = 10


class WaitCaughtUp(GroupId):
    """The arguments of `wait_caught_up`."""

    timeout: Seconds = 10


class Requests(Query):
    """The arguments of `requests`."""

    api: str | None = Field(None, description="Kafka's name of the API, such as Produce")
    client_id: str | None = None
    transactional_id: str | None = None


class AssertQuiescent(Query):
    """The arguments of `assert_quiescent`."""

    clients_may_wait: bool = Field(False, description="true to ignore the waiting fetches of open consumers")


class Report(Query):
    """The arguments of `report`."""

    title: str = Field("broker_core", description="the title of the page")


class Handle(Form):
    """The id of a fault, an outage or a snapshot."""

    id: Id


# Faults


class ErrorForm(Form):
    """An error response."""

    type: Literal["Error"]
    code: str = Field(description="Kafka's name of the error, such as NOT_COORDINATOR")


class DelayForm(Form):
    """A delay in seconds of real time."""

    type: Literal["Delay"]
    seconds: float = Field(ge=0, le=CENTURY_S)


class DropForm(Form):
    """The loss of the request, or of its answer."""

    type: Literal["Drop"]


class DisconnectForm(Form):
    """A closed connection."""

    type: Literal["Disconnect"]


class HoldForm(Form):
    """A delay until `release`."""

    type: Literal["Hold"]


class ThrottleForm(Form):
    """A quota violation; the client's next request waits."""

    type: Literal["Throttle"]
    seconds: float = Field(ge=0, le=_LONGEST_THROTTLE_S)


ActionForm = Annotated[
    ErrorForm | DelayForm | DropForm | DisconnectForm | HoldForm | ThrottleForm,
    Field(discriminator="type", description="what happens to the requests"),
]


def action_of(form: ActionForm, released: Flag) -> Action:
    """Return the action of a JSON form; `released` ends a Hold. Raises ValueError for an unknown error code."""
    match form:
        case ErrorForm():
            return Error(form.code)
        case DelayForm():
            return Delay(form.seconds)
        case ThrottleForm():
            return Throttle(form.seconds)
        case DropForm():
            return Drop()
        case DisconnectForm():
            return Disconnect()
        case HoldForm():
            return Hold(released)


class Wanted(Form):
    """The requests that a fault applies to: those that match all that is given."""

    api: str | None = Field(None, description="Kafka's name of the API, such as EndTxn")
    times: int | None = Field(None, le=_INT64, description="how many requests at most; by default all")
    nth: int | None = Field(None, le=_INT64, description="only the nth request that matches, counted from 1")
    version: int | None = Field(None, ge=0, le=_INT16, description="the version of the API")
    client_id: str | None = None
    principal: str | None = Field(None, description="the user, with or without User:")
    broker: BrokerId | None = None
    topic: str | None = None
    partition: PartitionNumber | None = None
    group: str | None = None
    transactional_id: str | None = None

    def wanted(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Wanted.model_fields}


class Fault(Wanted):
    """The arguments of `fault`."""

    action: ActionForm
    when: Literal["before", "after_apply", "mid"] = Field(
        "before", description="before the request is handled, after it took effect, or before each marker of EndTxn"
    )


class ThrottleWanted(Wanted):
    """The arguments of `throttle`."""

    seconds: float = Field(ge=0, le=_LONGEST_THROTTLE_S)


class WaitForHits(Query):
    """The arguments of `wait_for_hits`."""

    id: Id
    hits: int = Field(1, ge=0, description="how many requests the fault has to apply to")
    timeout: Seconds = 10


# Brokers, leaders, network and time


class BrokerForm(Form):
    """A broker."""

    broker: BrokerId


class PlaceForm(Form):
    """A partition."""

    topic: str
    partition: PartitionNumber


class MoveLeader(PlaceForm):
    """The arguments of `move_leader`."""

    broker: BrokerId


class CoordinatorForm(Form):
    """A transactional id or a group; one of the two."""

    transactional_id: str | None = None
    group: str | None = None


class MoveCoordinator(CoordinatorForm):
    """The arguments of `move_coordinator`."""

    broker: BrokerId


class Network(Form):
    """The arguments of `network`."""

    latency_ms: float = Field(0, le=CENTURY_S, description="the delay of each request, and again of each answer")
    bytes_per_s: float | None = Field(None, description="the rate of each connection in each direction")
    client_id: str | None = None
    broker: BrokerId | None = None


class Advance(Form):
    """The arguments of `advance`."""

    seconds: float = Field(0, le=CENTURY_S, description="the time is the sum of all four")
    minutes: float = 0
    hours: float = 0
    days: float = 0


class Advertise(Form):
    """The arguments of `advertise`."""

    addresses: str = Field(description="host:port of each broker, with commas between them")
    listener: str | None = Field(None, description="by default the first one")


class Bootstrap(Query):
    """The arguments of `bootstrap`."""

    listener: str
