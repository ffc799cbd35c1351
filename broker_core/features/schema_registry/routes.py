"""The paths of the REST API, and what each of them answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker_core.features.schema_registry import errors
from broker_core.features.schema_registry.errors import InvalidSchema, RegistryError
from broker_core.features.schema_registry.parsed_schema import LEVELS
from broker_core.features.schema_registry.registry import LATEST, SCHEMA_TYPES, Registry, requested
from broker_core.features.schema_registry.state import (
    DEFAULT_CONTEXT,
    SchemaVersion,
    context_of,
    context_prefix,
    normal_subject,
)
from broker_core.version import __version__

_CONFIG_KEYS = {
    **dict.fromkeys(("alias", "compatibilityGroup"), str),
    **dict.fromkeys(("normalize", "validateFields", "validateNewSchemas"), bool),
}
# Settings of Confluent's that would change what a registration does.
_UNSUPPORTED_KEYS = (
    "aliasForDeks",
    "validateRules",
    "compatibilityPolicy",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
_MAX_VERSION = 2**31 - 1


@dataclass(frozen=True)
class Call:
    """A request: the parts of its path by name, its query, and its JSON body."""

    registry: Registry
    path: Mapping[str, str]
    pairs: Sequence[tuple[str, str]]
    body: Mapping[str, Any]

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the query; of a repeated one, the last."""
        return dict(self.pairs)

    @property
    def context(self) -> str:
        """What names of subjects begin with that the request does not qualify: the context in the path."""
        try:
            return context_prefix(self.path.get("context", ""))
        except ValueError as error:
            raise RegistryError(400, str(error)) from error

    def qualified(self, name: str) -> str:
        return normal_subject(name if name.startswith((":.", ":*:")) else self.context + name)

    @property
    def subject(self) -> str:
        """The subject in the path; an alias is replaced by its subject."""
        return self.registry.aliased(self.qualified(self.path["subject"]))

    @property
    def scope(self) -> str | None:
        """The subject or the context whose settings are meant; None for the default context."""
        return self.qualified(self.path.get("subject", "")) or None

    @property
    def subject_of_id(self) -> str:
        """The parameter `subject`, which names the context of an id, too."""
        return self.registry.aliased(self.qualified(self.query.get("subject", "")))

    @property
    def subject_prefix(self) -> str:
        return self.qualified(self.query.get("subjectPrefix", "")).removeprefix(":*:")

    @property
    def version(self) -> int:
        """The version in the path, `LATEST` for "latest"."""
        text = self.path["version"].strip()
        if text.lower() == "latest":
            return LATEST
        number = _number(text)
        if number is None or not (number == LATEST or 1 <= number <= _MAX_VERSION):
            raise RegistryError(
                42202,
                f"The specified version '{text}' is not a valid version id. "
                'Allowed values are between [1, 2^31-1] and the string "latest"',
            )
        return number

    @property
    def schema_id(self) -> int:
        number = _number(self.path["id"])
        if number is None:
            raise RegistryError(404, "HTTP 404 Not Found")
        return number

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def page(self, values: list[Any]) -> list[Any]:
        """Return the part of a list that `offset` and `limit` ask for."""
        offset, limit = _number(self.query.get("offset", "")) or 0, _number(self.query.get("limit", "")) or -1
        return values[max(offset, 0) :][: limit if limit > 0 else None]

    def is_wanted(self, version: SchemaVersion) -> bool:
        """Return whether the query asks for a version, by `deleted` and `deletedOnly`."""
        if self.flag("deletedOnly"):
            return version.deleted
        return self.flag("deleted") or not version.deleted

    def shown(self, version: SchemaVersion) -> dict[str, Any]:
        numbers = {"subject": version.subject, "version": version.version, "id": version.schema_id}
        return numbers | self.content(version) | ({"deleted": True} if version.deleted else {})

    def content(self, version: SchemaVersion) -> dict[str, Any]:
        return version.content() | {"schema": self.registry.formatted(version, self.query.get("format", ""))}


def _number(text: str) -> int | None:
    try:
        return int(text) if len(text) <= 11 else None
    except ValueError:
        return None


def _schemas(call: Call) -> Any:
    found = [each for each in call.registry.state.all() if call.is_wanted(each)]
    found = [each for each in found if each.subject.startswith(call.subject_prefix)]
    if call.flag("latestOnly"):
        found = list({each.subject: each for each in found}.values())
    return call.page([call.shown(each) for each in found])


def _by_id(call: Call) -> Any:
    version = call.registry.with_id(call.schema_id, call.subject_of_id)[0]
    found = call.content(version)
    if call.flag("fetchMaxId"):
        found["maxId"] = call.registry.state.max_id(context_of(version.subject))
    return found


def _versions_by_id(call: Call) -> Any:
    subject = call.subject_of_id
    found = call.registry.with_id(call.schema_id, subject)
    return [each for each in found if call.is_wanted(each) and subject in (call.context, each.subject)]


def _with_guid(call: Call) -> list[SchemaVersion]:
    found = [each for each in call.registry.state.all() if each.guid == call.path["guid"]]
    if not found:
        raise errors.schema_not_found(call.path["guid"])
    return found


def _ids_by_guid(call: Call) -> Any:
    ids = dict.fromkeys((context_of(each.subject), each.schema_id) for each in _with_guid(call))
    return [{"context": context, "id": schema_id} for context, schema_id in ids]


def _subjects(call: Call) -> Any:
    prefix, state = call.subject_prefix, call.registry.state
    names = [name for name in sorted(state.subjects) if any(map(call.is_wanted, state.versions(name)))]
    if call.flag("deletedOnly"):
        names = [name for name in names if not state.versions(name, deleted=False)]
    return call.page([name for name in names if name.startswith(prefix)])


def _versions(call: Call) -> Any:
    found = [each.version for each in call.registry.state.versions(call.subject) if call.is_wanted(each)]
    if not found:
        raise errors.subject_not_found(call.subject)
    return call.page(found)


def _register(call: Call) -> Any:
    version = call.registry.register(call.subject, requested(call.body), normalize=call.flag("normalize"))
    # Without the schema: confluent-kafka would keep its text where it needs the descriptor that it has sent.
    return {"id": version.schema_id, "version": version.version, "guid": version.guid}


def _lookup(call: Call) -> Any:
    request = requested(call.body)
    deleted, normalize = call.flag("deleted"), call.flag("normalize")
    return call.shown(call.registry.lookup(call.subject, request, normalize=normalize, deleted=deleted))


def _version(call: Call) -> Any:
    return call.shown(call.registry.version(call.subject, call.version, deleted=call.flag("deleted")))


def _referenced_by(call: Call) -> Any:
    found = call.registry.referrers(call.subject, call.version, deleted=call.flag("deleted"))
    return call.page(list(dict.fromkeys(each.schema_id for each in found)))


def _latest_with_metadata(call: Call) -> Any:
    keys, values = ([value for name, value in call.pairs if name == part] for part in ("key", "value"))
    wanted = dict(zip(keys, values, strict=False))
    versions = call.registry.state.versions(call.subject, deleted=call.flag("deleted"))
    if not versions:
        raise errors.subject_not_found(call.subject)
    for each in reversed(versions):
        if wanted.items() <= each.properties.items():
            return call.shown(each)
    raise errors.schema_not_found()


def _check(call: Call) -> Any:
    number = call.version if "version" in call.path else None
    try:
        request = requested(call.body)
        reasons = call.registry.reasons_against(call.subject, request, number, normalize=call.flag("normalize"))
    except InvalidSchema as error:
        if not call.flag("verbose"):
            raise
        reasons = [error.message]
    found: dict[str, Any] = {"is_compatible": not reasons}
    return found | {"messages": reasons} if call.flag("verbose") else found


def _must_be_set(call: Call, settings: Mapping[str | None, Any], code: int, what: str) -> None:
    """Raise the error of a scope without settings of its own, unless the query asks for the settings that apply."""
    if call.scope is not None and not call.flag("defaultToGlobal") and call.scope not in settings:
        raise RegistryError(code, f"Subject '{call.scope}' does not have subject-level {what} configured")


def _config(call: Call) -> Any:
    _must_be_set(call, call.registry.state.configs, 40408, "compatibility")
    return call.registry.config(call.scope)


def _set_config(call: Call) -> Any:
    config = dict(call.registry.state.configs.get(call.scope, {}))
    for key, value in call.body.items():
        if key == "compatibility" and value is not None:
            if str(value).upper() not in LEVELS:
                raise RegistryError(
                    42203,
                    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
                    "forward_transitive, and full_transitive",
                )
            config["compatibilityLevel"] = str(value).upper()
        elif key in _CONFIG_KEYS and value is not None:
            if not isinstance(value, _CONFIG_KEYS[key]):
                raise RegistryError(400, f"Invalid request: {key} cannot be {value!r}")
            config[key] = value
        elif key in _UNSUPPORTED_KEYS and value not in (None, False):
            raise RegistryError(422, f"The setting {key} is not supported by this registry")
    call.registry.set_config(call.scope, config)
    shown = {key: value for key, value in config.items() if key != "compatibilityLevel"}
    return shown | ({"compatibility": config["compatibilityLevel"]} if "compatibilityLevel" in config else {})


def _delete_config(call: Call) -> Any:
    before = call.registry.config(call.scope)
    if call.scope is not None:
        if call.scope not in call.registry.state.configs:
            raise errors.subject_not_found(call.scope)
        before = call.registry.state.configs[call.scope]
    call.registry.set_config(call.scope, None)
    return before


def _mode(call: Call) -> Any:
    _must_be_set(call, call.registry.state.modes, 40409, "mode")
    return {"mode": call.registry.mode(call.scope)}


def _set_mode(call: Call) -> Any:
    mode = str(call.body.get("mode", "")).upper()
    call.registry.set_mode(call.scope, mode, force=call.flag("force"))
    return {"mode": mode}


def _delete_mode(call: Call) -> Any:
    scope, recursive = call.scope, call.flag("recursive")
    mode = call.registry.mode(scope)
    is_set = scope is None or scope in call.registry.state.modes
    if scope is not None and not is_set and not recursive:
        raise errors.subject_not_found(scope)
    call.registry.delete_mode(scope, recursive=recursive)
    return {"mode": mode} if is_set else {}


def _cluster(call: Call) -> Any:
    # Confluent's registry uses these names by default.
    clusters = {"kafka-cluster": call.registry.cluster_id, "schema-registry-cluster": "schema-registry"}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


def _delete_context(call: Call) -> None:
    """Answer whether a context is empty; its schemas are all there is of it."""
    if any(context_prefix(context_of(each)) == call.context for each in call.registry.state.subjects):
        raise RegistryError(42211, f"The specified context '{call.context}' is not empty.")


class Text(str):
    """An answer that is not wrapped in JSON."""


_Route = tuple[str, str, Callable[[Call], Any]]
_IN_CONTEXTS: tuple[_Route, ...] = (
    ("GET", "/schemas", _schemas),
    ("GET", "/schemas/types", lambda call: list(SCHEMA_TYPES)),
    ("GET", "/schemas/ids/{id}", _by_id),
    ("GET", "/schemas/ids/{id}/schema", lambda call: Text(_by_id(call)["schema"])),
    (
        "GET",
        "/schemas/ids/{id}/subjects",
        lambda call: call.page(sorted({each.subject for each in _versions_by_id(call)})),
    ),
    (
        "GET",
        "/schemas/ids/{id}/versions",
        lambda call: call.page([{"subject": each.subject, "version": each.version} for each in _versions_by_id(call)]),
    ),
    ("GET", "/schemas/guids/{guid}", lambda call: call.content(_with_guid(call)[0])),
    ("GET", "/schemas/guids/{guid}/ids", _ids_by_guid),
    ("GET", "/subjects", _subjects),
    ("POST", "/subjects/{subject}", _lookup),
    (
        "DELETE",
        "/subjects/{subject}",
        lambda call: call.registry.delete_subject(call.subject, permanent=call.flag("permanent")),
    ),
    ("GET", "/subjects/{subject}/metadata", _latest_with_metadata),
    ("GET", "/subjects/{subject}/versions", _versions),
    ("POST", "/subjects/{subject}/versions", _register),
    ("GET", "/subjects/{subject}/versions/{version}", _version),
    (
        "DELETE",
        "/subjects/{subject}/versions/{version}",
        lambda call: call.registry.delete_version(call.subject, call.version, permanent=call.flag("permanent")),
    ),
    ("GET", "/subjects/{subject}/versions/{version}/schema", lambda call: Text(_version(call)["schema"])),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", _referenced_by),
    ("POST", "/compatibility/subjects/{subject}/versions", _check),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", _check),
    *(
        (method, path, function)
        for method, setting, function in (
            ("GET", "config", _config),
            ("PUT", "config", _set_config),
            ("DELETE", "config", _delete_config),
            ("GET", "mode", _mode),
            ("PUT", "mode", _set_mode),
            ("DELETE", "mode", _delete_mode),
        )
        for path in (f"/{setting}", f"/{setting}/{{subject}}")
    ),
)
# In the order in which they are tried.
ROUTES: tuple[_Route, ...] = (
    ("GET", "/", lambda call: {}),
    ("GET", "/v1/metadata/id", _cluster),
    ("GET", "/v1/metadata/version", lambda call: {"version": __version__}),
    ("GET", "/v1/metadata/deployment", lambda call: {"attributes": []}),
    (
        "GET",
        "/contexts",
        lambda call: call.page(sorted({DEFAULT_CONTEXT, *map(context_of, call.registry.state.subjects)})),
    ),
    ("DELETE", "/contexts/{context}", _delete_context),
    *_IN_CONTEXTS,
    *((method, f"/contexts/{{context}}{path}", function) for method, path, function in _IN_CONTEXTS),
)
