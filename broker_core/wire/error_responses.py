"""Errors in responses: the response with one error for a whole request, and the error codes in a response.

Most APIs have one error code at the top; the others have one for each item of the request, and
repeat its name. Tables define where it is, and which other fields are answered with -1 for "unknown".
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker_core.wire.framing import Request


class _Echo(NamedTuple):
    """The items of a request's array that an array of the answer repeats.

    `asked` may name the arrays of an array's items, as `outer.inner`. `names` gives for a field of the answer the field
    of the request that it repeats, "" for the item itself; fields of the same name are repeated anyway.
    """

    asked: str
    answered: str
    names: Mapping[str, str] = {}
    inner: "tuple[_Echo, ...]" = ()


_PARTITIONS: Final = (_Echo("partitions", "partitions"),)
_TOPICS: Final = (_Echo("topics", "topics", inner=_PARTITIONS),)
_INDEXES: Final = (_Echo("partition_indexes", "partitions", {"partition_index": ""}),)
_ADDED: Final = (_Echo("partitions", "results_by_partition", {"partition_index": ""}),)

# The fields that each API repeats of its request; the response of an API not listed has only the error at the top.
_ECHOES: Final[Mapping[str, tuple[_Echo, ...]]] = {
    "Produce": (_Echo("topic_data", "responses", inner=(_Echo("partition_data", "partition_responses"),)),),
    "Fetch": (
        _Echo("topics", "responses", inner=(_Echo("partitions", "partitions", {"partition_index": "partition"}),)),
    ),
    "ListOffsets": _TOPICS,
    "Metadata": (_Echo("topics", "topics"),),
    "OffsetCommit": _TOPICS,
    "OffsetFetch": (_Echo("topics", "topics", inner=_INDEXES), _Echo("groups", "groups")),
    "FindCoordinator": (_Echo("coordinator_keys", "coordinators", {"key": ""}),),
    "DescribeGroups": (_Echo("groups", "groups", {"group_id": ""}),),
    "CreateTopics": (_Echo("topics", "topics"),),
    "DeleteTopics": (_Echo("topics", "responses"), _Echo("topic_names", "responses", {"name": ""})),
    "DeleteRecords": _TOPICS,
    "OffsetForLeaderEpoch": _TOPICS,
    "AddPartitionsToTxn": (_Echo("v3_and_below_topics", "results_by_topic_v3_and_below", inner=_ADDED),),
    "WriteTxnMarkers": (_Echo("markers", "markers", inner=(_Echo("topics", "topics", inner=_INDEXES),)),),
    "TxnOffsetCommit": _TOPICS,
    "CreateAcls": (_Echo("creations", "results"),),
    "DeleteAcls": (_Echo("filters", "filter_results"),),
    "DescribeConfigs": (_Echo("resources", "results"),),
    "CreatePartitions": (_Echo("topics", "results"),),
    "DeleteGroups": (_Echo("groups_names", "results", {"group_id": ""}),),
    "IncrementalAlterConfigs": (_Echo("resources", "responses"),),
    "AlterClientQuotas": (_Echo("entries", "entries", inner=(_Echo("entity", "entity"),)),),
    "AlterConfigs": (_Echo("resources", "responses"),),
    "DescribeUserScramCredentials": (_Echo("users", "results", {"user": "name"}),),
    "AlterUserScramCredentials": (
        _Echo("deletions", "results", {"user": "name"}),
        _Echo("upsertions", "results", {"user": "name"}),
    ),
    "DescribeTopicPartitions": (_Echo("topics", "topics"),),
    "AlterReplicaLogDirs": (
        _Echo(
            "dirs.topics",
            "results",
            {"topic_name": "name"},
            inner=(_Echo("partitions", "partitions", {"partition_index": ""}),),
        ),
    ),
    "AlterPartitionReassignments": (_Echo("topics", "responses", inner=_PARTITIONS),),
    "ListPartitionReassignments": (_Echo("topics", "topics", inner=_INDEXES),),
    "ElectLeaders": (
        _Echo(
            "topic_partitions",
            "replica_election_results",
            inner=(_Echo("partitions", "partition_result", {"partition_id": ""}),),
        ),
    ),
    "DescribeProducers": (_Echo("topics", "topics", inner=_INDEXES),),
    "DescribeTransactions": (_Echo("transactional_ids", "transaction_states", {"transactional_id": ""}),),
    "ConsumerGroupDescribe": (_Echo("group_ids", "groups", {"group_id": ""}),),
    "ShareGroupDescribe": (_Echo("group_ids", "groups", {"group_id": ""}),),
    "DescribeShareGroupOffsets": (_Echo("groups", "groups"),),
    **dict.fromkeys(
        (
            "InitializeShareGroupState",
            "ReadShareGroupState",
            "WriteShareGroupState",
            "DeleteShareGroupState",
            "ReadShareGroupStateSummary",
        ),
        (_Echo("topics", "results", inner=_PARTITIONS),),
    ),
}
# Responses of these versions have only the error at the top, though they have fields for the items.
_ONLY_AT_THE_TOP: Final = {"OffsetFetch": range(2, 8), "Fetch": range(13, 100)}
# The fields that are -1 in an error response.
_UNKNOWN: Final = frozenset(
    {
        "base_offset",
        "committed_offset",
        "committed_leader_epoch",
        "controller_id",
        "end_offset",
        "generation_id",
        "high_watermark",
        "leader_epoch",
        "low_watermark",
        "node_id",
        "num_partitions",
        "offset",
        "port",
        "producer_epoch",
        "producer_id",
        "replication_factor",
        "timestamp",
    }
)


def error_response(request: Request, error_code: int) -> Any:
    """Return the response with which Kafka answers this request when it fails as a whole."""
    api, version = request.api, request.version
    at_the_top = version in _ONLY_AT_THE_TOP.get(api.name, ())
    echoes = () if at_the_top else _ECHOES.get(api.name, ())
    return _filled(api.response, api.response._struct, request.body, request.body._struct, echoes, error_code, version)


def _filled(
    form: Any,
    struct: Any,
    asked: Any,
    asked_struct: Any,
    echoes: tuple[_Echo, ...],
    error_code: int,
    version: int,
    names: Mapping[str, str] | None = None,
) -> Any:
    values: dict[str, Any] = {}
    known = _fields(asked_struct, version) if asked_struct is not None else {}
    for name, field in _fields(struct, version).items():
        if name.endswith("error_code"):
            if not field.tagged_field_q(version):
                values[name] = error_code
        elif field.is_struct_array() or field.is_array():
            values[name] = [
                item
                for echo in echoes
                if echo.answered == name and echo.asked.partition(".")[0] in known
                for item in _items(getattr(form, field.type_str), field, asked, known, echo, error_code, version)
            ]
        elif names is not None and name in names:
            values[name] = asked if names[name] == "" else getattr(asked, names[name])
        # At the top nothing is repeated: a producer that is refused gets no producer id.
        elif names is not None and name in known and not known[name].is_struct_array():
            values[name] = getattr(asked, name)
        elif name in _UNKNOWN:
            values[name] = -1
        elif field.type_str in ("bytes", "records"):
            values[name] = b""
    return form(**values)


def _items(
    form: Any, field: Any, asked: Any, known: Mapping[str, Any], echo: _Echo, error_code: int, version: int
) -> Iterator[Any]:
    outer, _, nested = echo.asked.rpartition(".")
    holders = [asked] if not outer else getattr(asked, outer) or ()
    asked_field = _fields(known[outer], version)[nested] if outer else known[nested]
    inner = asked_field if asked_field.is_struct_array() else None
    for holder in holders:
        for item in getattr(holder, nested) or ():
            yield _filled(form, field, item, inner, echo.inner, error_code, version, echo.names)


def _fields(struct: Any, version: int) -> dict[str, Any]:
    return {field.name: field for field in struct._fields if field.for_version_q(version)}


_ENDING: Final = "error_code"

# Worked out once for each response and version.
_paths: "dict[tuple[type, int], tuple[_Path, ...]]" = {}


class _Path(NamedTuple):
    """One field: an error code, or what holds some."""

    name: str
    inner: "tuple[_Path, ...]"
    is_array: bool


def error_codes(response: Any, version: int) -> list[int]:
    """Return every code in the response, 0 for what went well, of the fields that this version has."""
    key = (type(response), version)
    paths = _paths.get(key)
    if paths is None:
        paths = _paths[key] = _paths_of(response._struct, version)
    found: list[int] = []
    _add_codes(response, paths, found)
    return found


def _add_codes(value: Any, paths: tuple[_Path, ...], found: list[int]) -> None:
    for name, inner, is_array in paths:
        part = getattr(value, name)
        if not inner:
            found.append(int(part))
        elif part is not None:
            for item in part if is_array else (part,):
                _add_codes(item, inner, found)


def _paths_of(struct: Any, version: int) -> tuple[_Path, ...]:
    paths = []
    for field in struct._fields:
        if not field.for_version_q(version):
            continue
        is_array = field.is_struct_array()
        inner = _paths_of(field, version) if is_array or field.is_struct() else ()
        if inner or field.name.endswith(_ENDING):
            paths.append(_Path(field.name, inner, is_array))
    return tuple(paths)
