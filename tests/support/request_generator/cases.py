"""The requests: each API and version once with good arguments, and again with each field set to wrong values.

A good value comes from a table, by API and field; a field without a row gets a value for its type, so a new API is
covered without a change here. Steps prepare what a request needs, for example a member of a group.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker_core.broker.apis import SERVED
from broker_core.wire.served import ServedApi
from tests.support.request_generator.steps import OTHERS, SETUP, Step
from tests.support.request_generator.values import (
    BY_ENTITY,
    GOOD,
    GOOD_IN_ALL,
    LONG,
    MISSING,
    NOT_SENT,
    NOT_SENT_VALUES,
    OTHER_VALUES,
    UNANSWERED,
    UNKNOWN_ID,
    UNKNOWN_UUID,
    WRONG_INTEGERS,
    ZERO_UUID,
)

APIS: Final[Mapping[str, ServedApi]] = {api.name: api for api in SERVED.values()}


@dataclass(frozen=True)
class Case:
    """One request whose answers are compared, with the steps before it."""

    number: int
    step: Step
    label: str
    setup: tuple[Step, ...] = ()
    has_rights: bool = True
    may_wait: bool = False

    @property
    def name(self) -> str:
        """Return how the case is called in messages."""
        who = "" if self.has_rights else " without rights"
        return f"{self.step.api} v{self.step.version} {self.label}{who}"


def build(api: ServedApi, version: int, body: Mapping[str, Any], resolve: Callable[[Any], Any]) -> Any:
    """Return kafka-python's message for a body; fields that the body leaves out have their defaults."""
    return _container(api.request, api.request._struct, version, body, resolve)


def _container(
    form: Any, struct_field: Any, version: int, body: Mapping[str, Any], resolve: Callable[[Any], Any]
) -> Any:
    values = {}
    for each in _fields(struct_field, version):
        if each.name not in body:
            continue
        value = body[each.name]
        if value is not None and each.is_struct_array():
            inner = getattr(form, each.type_str)
            value = [_container(inner, each, version, item, resolve) for item in value]
        elif value is not None and each.is_struct():
            value = _container(getattr(form, each.type_str), each, version, value, resolve)
        else:
            value = [resolve(item) for item in value] if isinstance(value, list) else resolve(value)
        values[each.name] = value
    return form(**values)


def _fields(struct_field: Any, version: int) -> Iterator[Any]:
    return (each for each in struct_field._fields if each.for_version_q(version))


def good_body(api: ServedApi, version: int, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a body with a good value in each field that is not changed."""
    return _good_struct({**GOOD.get(api.name, {}), **(changes or {})}, api.request._struct, version, ())


def _good_struct(good: Mapping[str, Any], struct_field: Any, version: int, path: tuple[str, ...]) -> dict[str, Any]:
    return {
        each.name: _good(good, each, version, (*path, each.name))
        for each in _fields(struct_field, version)
        # Tagged fields are sent only when one is the subject of a case.
        if not each.tagged_field_q(version)
    }


def _row(table: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """Return the key of the most specific row for a field."""
    for start in range(len(path)):
        key = ".".join(path[start:])
        if key in table:
            return key
    return None


def _good(good: Mapping[str, Any], each: Any, version: int, path: tuple[str, ...]) -> Any:
    for table in (good, GOOD_IN_ALL):
        row = _row(table, path)
        if row is not None and not (each.is_struct_array() and table[row] and not isinstance(table[row][0], Mapping)):
            return table[row]
    entity = BY_ENTITY.get(each._entity_type or "")
    if each.is_struct_array():
        return [_good_struct(good, each, version, path)]
    if each.is_struct():
        return _good_struct(good, each, version, path)
    if each.is_array():
        item = entity if entity is not None else _plain(each.array_of.type_str)
        return [item]
    return entity if entity is not None else _plain(each.type_str, each.default)


def _plain(kind: str, default: Any = None) -> Any:
    if default is not None and default != "":
        return default
    return {"string": "text", "bool": False, "uuid": ZERO_UUID, "bytes": b"bytes", "records": b"", "float64": 1.0}.get(
        kind, 0
    )


def _wrong_values(each: Any, version: int, path: tuple[str, ...], good: Any) -> Iterator[tuple[str, Any]]:
    if each.is_array():
        yield from _wrong_arrays(each, good)
    elif each.is_struct():
        if each.nullable_for_version_q(version):
            yield "null", None
    elif each.type_str in WRONG_INTEGERS:
        yield from ((str(value), value) for value in _wrong_integers(each))
    elif each.type_str == "bool":
        yield str(not good), not good
    else:
        yield from _WRONG.get(each.type_str, _WRONG["bytes"]).items()
    row = _row(OTHER_VALUES, path)
    if row is not None:
        yield from ((repr(value), value) for value in OTHER_VALUES[row])


_WRONG: Final[Mapping[str, Mapping[str, Any]]] = {
    "string": {"empty": "", "null": None, "missing": MISSING, "long": LONG, "with a slash": "a/{n}"},
    "uuid": {"zero": ZERO_UUID, "unknown": UNKNOWN_UUID},
    "float64": {"-1.0": -1.0, "0.0": 0.0, "nan": float("nan")},
    "bytes": {"empty": b"", "null": None, "short": b"\xff"},
}


def _wrong_arrays(each: Any, good: Any) -> Iterator[tuple[str, Any]]:
    yield "empty", []
    yield "null", None
    if not good:
        return
    yield "twice", [*good, *good]
    if each._entity_type and each.type_str != "int64":
        yield "missing", [MISSING if isinstance(good[0], str) else 9]
    if isinstance(good[0], str):
        yield "of an empty string", [""]
        yield "more", [*good, MISSING]
    elif isinstance(good[0], int):
        yield "negative", [-1]
        yield "large", [WRONG_INTEGERS[each.array_of.type_str][-1]]
        yield "more", [*good, 7]


def _wrong_integers(each: Any) -> Sequence[int]:
    if each._entity_type == "producerId":
        return (-2, -1, UNKNOWN_ID, 9223372036854775807)
    if each._entity_type == "brokerId":
        return (-2, -1, 9)
    if each.name == "timeout_ms":
        # Whether a shorter time is enough depends on the machine.
        return (-2, -1, 0, 2147483647)
    # A request with acks of 0 has no answer.
    return (-2, 1, 2) if each.name == "acks" else WRONG_INTEGERS[each.type_str]


def _variants(api: ServedApi, version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the good body, and each body that differs from it in one field."""
    body = good_body(api, version)
    yield "good", body
    yield from _struct_variants(api, api.request._struct, version, (), body)


def _struct_variants(
    api: ServedApi, struct_field: Any, version: int, path: tuple[str, ...], body: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in _fields(struct_field, version):
        if (api.name, each.name) in NOT_SENT or each.tagged_field_q(version):
            continue
        good, here = body[each.name], (*path, each.name)
        for label, value in _wrong_values(each, version, here, good):
            is_sent = (api.name, each.name, label) not in NOT_SENT_VALUES
            if is_sent and (value != good or type(value) is not type(good)):
                yield f"{'.'.join(here)}={label}", {**body, each.name: value}
        if each.is_struct_array() and good:
            for label, item in _struct_variants(api, each, version, here, good[0]):
                yield label, {**body, each.name: [item, *good[1:]]}
        elif each.is_struct() and good is not None:
            for label, inner in _struct_variants(api, each, version, here, good):
                yield label, {**body, each.name: inner}


# The answers to these name all that exists, so they are compared before other cases change it.
_FIRST: Final = (
    "ApiVersions",
    "ListGroups",
    "ListTransactions",
    "Metadata",
    "DescribeAcls",
    "DescribeUserScramCredentials",
    "DescribeLogDirs",
)


def cases(versions: Mapping[str, tuple[int, int]], every: int = 1) -> list[Case]:
    """Return all cases for the APIs that are given with their versions, in the order of their sending.

    The newest version gets all cases. An older one gets the good request, and every so many of the others.
    """
    names = sorted(versions, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), APIS[name].key))
    found: list[Case] = []
    for name in names:
        low, high = versions[name]
        for version in range(high, low - 1, -1):
            for index, (label, body) in enumerate(_variants(APIS[name], version)):
                if version == high or not index or not (index + version) % every:
                    path, _, value = label.partition("=")
                    may_wait = (name, path.rpartition(".")[2], value) in UNANSWERED
                    step = Step(name, version, body)
                    found.append(Case(len(found), step, label, SETUP.get(name, ()), may_wait=may_wait))
    for name in names:
        low, high = versions[name]
        for version in range(low, high + 1):
            for other in OTHERS.get(name, ()):
                step = Step(name, version, good_body(APIS[name], version, other.changes))
                found.append(Case(len(found), step, other.label, other.setup))
    for name in names:
        low, high = versions[name]
        for version in range(low, high + 1):
            step = Step(name, version, good_body(APIS[name], version))
            found.append(Case(len(found), step, "good", SETUP.get(name, ()), has_rights=False))
    return found
