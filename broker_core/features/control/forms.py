"""The JSON forms of the arguments: what a request may contain, in the words of the Python API."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from broker_core.broker.fault_injection import Action, Delay, Disconnect, Drop, Error, Flag, Hold, Moment, Throttle
from broker_core.server.cluster_controls import CENTURY_S
from broker_core.testing.arguments import MOST_PARTITIONS
from broker_core.testing.data_controls import Isolation
from broker_core.testing.producing import End, ProducerRecord, Text

# Kafka's int32 has the time of a throttled answer, in milliseconds.
_LONGEST_THROTTLE_S = 2_147_483
_LONGEST_WAIT_S = 600
_INT16, _INT32, _INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1


class Form(BaseModel):
    """The body of a request: each field has its JSON type, and other fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Query(BaseModel):
    """The parameters of a query, which are text; other parameters are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


PartitionNumber = Annotated[int, Field(ge=0, le=_INT32, description="the number of the partition")]
_BROKER = "the id of a broker"


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


def record_of(form: Item) -> Text | ProducerRecord:
    if not isinstance(form, Record):
        return data_of(form)
    pairs = form.headers.items() if isinstance(form.headers, dict) else form.headers
    # The names are checked where the record is written.
    headers: list[Any] = [(name, data_of(value)) for name, value in pairs]
    return ProducerRecord(data_of(form.key), data_of(form.value), headers, form.timestamp_ms, form.partition)


# Faults


class ErrorForm(Form):
    """An error response."""

    type: Literal["Error"]
    code: str = Field(description="Kafka's name of the error, such as NOT_COORDINATOR")


class DelayForm(Form):
    """A delay in seconds of real time."""

    type: Literal["Delay"]
    seconds: float = Field(ge=0, le=CENTURY_S)


class PlainForm(Form):
    """Drop loses the request or its answer, Disconnect closes the connection, Hold delays until `release`."""

    type: Literal["Drop", "Disconnect", "Hold"]


class ThrottleForm(Form):
    """A quota violation; the client's next request waits."""

    type: Literal["Throttle"]
    seconds: float = Field(ge=0, le=_LONGEST_THROTTLE_S)


ActionForm = Annotated[
    ErrorForm | DelayForm | PlainForm | ThrottleForm,
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
        case PlainForm():
            actions: dict[str, Action] = {"Drop": Drop(), "Disconnect": Disconnect(), "Hold": Hold(released)}
            return actions[form.type]


class Wanted(Form):
    """The requests that a fault applies to: they match all that is given."""

    api: str | None = Field(None, description="Kafka's name of the API, such as EndTxn")
    times: int | None = Field(None, le=_INT64, description="how many requests at most; by default all")
    nth: int | None = Field(None, le=_INT64, description="only the nth request that matches, counted from 1")
    version: int | None = Field(None, ge=0, le=_INT16, description="the version of the API")
    client_id: str | None = None
    principal: str | None = Field(None, description="the user, with or without User:")
    broker: int | None = Field(None, description=_BROKER)
    topic: str | None = None
    partition: PartitionNumber | None = None
    group: str | None = None
    transactional_id: str | None = None


class Throttling(Wanted):
    """The requests that are throttled, and for how long."""

    seconds: float = Field(ge=0, le=_LONGEST_THROTTLE_S)


class Argument(NamedTuple):
    """The type of an argument, what it means, and the bounds of its value."""

    kind: Any
    description: str | None = None
    bounds: Mapping[str, float] = {}


# The arguments of the methods, by name.
ARGUMENTS: Mapping[str, Argument] = {
    **dict.fromkeys(("name", "topic", "client_id", "transactional_id", "listener"), Argument(str)),
    **dict.fromkeys(("minutes", "hours", "days"), Argument(float)),
    "action": Argument(ActionForm),
    "addresses": Argument(str, "host:port of each broker, with commas between them"),
    "api": Argument(str, "Kafka's name of the API, such as Produce"),
    "broker": Argument(int, _BROKER),
    "bytes_per_s": Argument(float, "the rate of each connection in each direction"),
    "clients_may_wait": Argument(bool, "true to ignore the waiting fetches of open consumers"),
    "commit": Argument(bool, "false to abort"),
    "config": Argument(dict[str, str], "settings of the topic by Kafka's names"),
    "control": Argument(bool, "true to return control records too, such as markers of transactions"),
    "count": Argument(int, bounds={"ge": 0}),
    "end": Argument(End, "how the transaction ends"),
    "group": Argument(str, "the id of the group"),
    "hits": Argument(int, "how many requests the fault has to apply to", {"ge": 0}),
    "id": Argument(str, "the id that the creation returned"),
    "isolation": Argument(Isolation),
    "latency_ms": Argument(float, "the delay of each request, and again of each answer", {"le": CENTURY_S}),
    "members": Argument(int, "exactly so many members; without it, at least one", {"ge": 0}),
    "partition": Argument(int, "the number of the partition", {"ge": 0, "le": _INT32}),
    "partitions": Argument(int, bounds={"le": MOST_PARTITIONS}),
    "seconds": Argument(float, "the time is the sum of all four", {"le": CENTURY_S}),
    "timeout": Argument(float, "the longest wait in seconds", {"ge": 0, "le": _LONGEST_WAIT_S}),
    "title": Argument(str, "the title of the page"),
    "transactional": Argument(str | bool, "a transactional id, or true for an id of this method"),
    "values": Argument(list[Item], "the records: values, or objects with key, value, headers and the like"),
    "when": Argument(Moment, "before the request is handled, after it took effect, or before each marker of EndTxn"),
}
