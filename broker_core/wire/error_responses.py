"""Errors in responses: for a whole request or for each of its items, and the error codes in a response.

Most APIs have one error code at the top; the others have one for each item of the request, and
repeat its name. An API declares where it is; a table has the other fields that are answered with -1 for "unknown".
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from broker_core.errors import ErrorCode, KafkaError
from broker_core.wire import messages as m
from broker_core.wire.framing import Request
from broker_core.wire.served import Echo

Fields = Mapping[str, Any]
# The fields of parts of schemas, which stay, by their ids and the version.
_known: dict[tuple[int, int], Fields] = {}
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
    echoes = () if version in api.unspecific else api.echoes
    return _filled(api.response, api.response._struct, request.body, request.body._struct, echoes, error_code, version)


def response_to_each(request: Request, step: Callable[..., Fields], asked: Any = None) -> m.ApiMessage:
    """Return the response with a result for each item of the request, or of `asked`, which its API echoes.

    `step` takes the entries that hold an item, and the item. It returns more fields of the result, or raises an error.
    """
    api, struct = request.api, request.body._struct
    response: m.ApiMessage = _filled(
        api.response, api.response._struct, asked or request.body, struct, api.echoes, 0, request.version, None, step
    )
    return response


def _filled(
    form: Any,
    struct: Any,
    asked: Any,
    asked_struct: Any,
    echoes: tuple[Echo, ...],
    error_code: int,
    version: int,
    names: Mapping[str, str] | None = None,
    step: Callable[..., Fields] | None = None,
) -> Any:
    values: dict[str, Any] = {}
    known = _fields(asked_struct, version) if asked_struct is not None else {}
    fields = _fields(struct, version)
    for name, field in fields.items():
        if name.endswith("error_code"):
            if not field.tagged_field_q(version):
                values[name] = error_code
        elif field.is_struct_array() or field.is_array():
            values[name] = [
                item
                for echo in echoes
                if echo.answered == name and echo.asked.partition(".")[0] in known
                for item in _items(getattr(form, field.type_str), field, asked, known, echo, error_code, version, step)
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
    if step is not None and names is not None and not echoes:
        values |= dict.fromkeys(values.keys() & _UNKNOWN, -1)
        values |= _outcome(step, explained="error_message" in fields)
    return form(**values)


def _outcome(step: Callable[..., Fields], *, explained: bool) -> dict[str, Any]:
    code, message, found = ErrorCode.NONE, None, {}
    try:
        found = dict(step())
    except KafkaError as error:
        code, message = error.code, error.message or None
    return {"error_code": code, **({"error_message": message} if explained else {}), **found}


def _items(
    form: Any,
    field: Any,
    asked: Any,
    known: Mapping[str, Any],
    echo: Echo,
    error_code: int,
    version: int,
    step: Callable[..., Fields] | None,
) -> Iterator[Any]:
    outer, _, nested = echo.asked.rpartition(".")
    holders = [asked] if not outer else getattr(asked, outer) or ()
    asked_field = _fields(known[outer], version)[nested] if outer else known[nested]
    inner = asked_field if asked_field.is_struct_array() else None
    for holder in holders:
        for item in getattr(holder, nested) or ():
            deeper = step and partial(step, item)
            yield _filled(form, field, item, inner, echo.inner, error_code, version, echo.names, deeper)


def _fields(struct: Any, version: int) -> Fields:
    key = (id(struct), version)
    if key not in _known:
        _known[key] = {field.name: field for field in struct._fields if field.for_version_q(version)}
    return _known[key]


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
    # What is inside is looked at later: a function that calls itself takes longer.
    values = [(response, paths)]
    for value, its_paths in values:
        for name, inner, is_array in its_paths:
            part = getattr(value, name)
            if not inner:
                found.append(int(part))
            elif part is not None:
                values += [(item, inner) for item in part] if is_array else [(part, inner)]
    return found


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
