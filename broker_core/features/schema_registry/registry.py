"""The registry's operations on subjects, versions and schemas."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from broker_core.features.schema_registry import errors
from broker_core.features.schema_registry.avro_schemas import AvroSchema
from broker_core.features.schema_registry.errors import InvalidSchema, RegistryError
from broker_core.features.schema_registry.json_schemas import JsonSchema
from broker_core.features.schema_registry.parsed_schema import (
    DEFAULT_LEVEL,
    ParsedSchema,
    Reference,
    ReferencedSchema,
    Resolved,
    compact_json,
    reasons_against,
)
from broker_core.features.schema_registry.protobuf_schemas import ProtobufSchema
from broker_core.features.schema_registry.schema_topic import SchemaTopic
from broker_core.features.schema_registry.state import (
    SchemaVersion,
    State,
    context_of,
    context_prefix,
    delete_subject_record,
    metadata_of,
    optional_object,
    references_of,
    schema_key,
    setting_record,
    whole_number,
    within,
)

Value = TypeVar("Value")

SCHEMA_TYPES = ("JSON", "PROTOBUF", "AVRO")
DEFAULT_MODE = "READWRITE"
_READ_ONLY = ("READONLY", "READONLY_OVERRIDE")
_MODES = ("READWRITE", *_READ_ONLY, "IMPORT")
# The context whose settings apply to all contexts without their own.
_EVERYWHERE = ":.__GLOBAL:"
LATEST = -1


def requested(body: Mapping[str, Any]) -> SchemaVersion:
    """Return the schema in a JSON body; raises `RegistryError` if there is none.

    It has no subject, and the id and version that a client sends in mode IMPORT, otherwise 0.
    """
    schema_type = body.get("schemaType") or "AVRO"
    if schema_type not in SCHEMA_TYPES:
        raise RegistryError(42201, f"Invalid schema type {schema_type}")
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise InvalidSchema("Empty schema")
    try:
        references = references_of(body.get("references"))
    except (TypeError, KeyError) as error:
        raise InvalidSchema("Invalid schema: a reference needs a name, a subject and a version") from error
    try:
        wanted_id, version = (
            0 if body.get(key) is None else max(whole_number(body, key), 0) for key in ("id", "version")
        )
        metadata, rule_set = metadata_of(body), optional_object(body, "ruleSet")
    except TypeError as error:
        raise RegistryError(400, f"Invalid request: {error}") from error
    return SchemaVersion("", version, wanted_id, schema_type, text, references, metadata, rule_set)


class Registry:
    """The operations; each of them sees all records that were written before it."""

    def __init__(self, topic: SchemaTopic) -> None:
        self._topic = topic
        self._parsed: dict[str, ParsedSchema] = {}

    @property
    def state(self) -> State:
        return self._topic.state()

    @property
    def cluster_id(self) -> str:
        return self._topic.cluster_id()

    # Schemas

    def register(self, subject: str, request: SchemaVersion, *, normalize: bool) -> SchemaVersion:
        """Return the version of a schema in a subject, after registering it if it is new there."""
        if not subject.strip() or subject in ("__GLOBAL", "__EMPTY") or any(ord(each) < 32 for each in subject):
            raise RegistryError(42208, f"The specified subject '{subject}' is not a valid.")
        state = self.state
        registered = self._registered(state, subject, request, normalize=normalize)
        if registered is not None:
            return registered
        is_import = self._check_writable(state, subject, request)
        parsed, version = self._canonical(state, subject, request, normalize=normalize, is_new=True)
        versions = state.versions(subject)
        active = [each for each in versions if not each.deleted]
        known_id = state.id_of(context_of(subject), version.identity)
        next_version = 1 + max((each.version for each in versions), default=0)
        if not is_import:
            reasons = self._reasons(state, version, parsed, active)
            if reasons:
                raise RegistryError(
                    40901,
                    f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
                    f"[{', '.join(reasons)}]",
                )
            if request.version not in (0, next_version):
                raise InvalidSchema("Version is not one more than previous version")
        version = replace(
            version,
            version=request.version or next_version,
            schema_id=request.schema_id or known_id or state.max_id(context_of(subject)) + 1,
        )
        context = context_of(subject)
        others = state.with_id(context, version.schema_id) if is_import else []
        if any(each.identity != version.identity for each in others):
            raise RegistryError(
                42205, f"Overwrite new schema with id {version.schema_id} in context {context} is not permitted."
            )
        # A deleted version of the same schema gives way to the new one, unless another schema refers to it.
        gone = [
            (schema_key(subject, each.version), None)
            for each in versions
            if each.deleted and each.schema_id == version.schema_id and not _referrers(state, each)
        ]
        self._topic.write(*gone, version.to_record())
        return version

    def _registered(
        self, state: State, subject: str, request: SchemaVersion, *, normalize: bool
    ) -> SchemaVersion | None:
        """Return the version that has the schema already, whatever the mode; None if the client names another one."""
        parsed, version = self._canonical(state, subject, request, normalize=normalize, is_new=False)
        found = self._same(state, state.versions(subject, deleted=False), parsed, version)
        if found is None or request.schema_id not in (0, found.schema_id):
            return None
        return (
            found
            if request.version == 0 or (request.schema_id, request.version) == (found.schema_id, found.version)
            else None
        )

    def lookup(self, subject: str, request: SchemaVersion, *, normalize: bool, deleted: bool) -> SchemaVersion:
        """Return the version of a schema in a subject; raises 40401 or 40403 if there is none."""
        state = self.state
        parsed, version = self._canonical(state, subject, request, normalize=normalize, is_new=False)
        candidates = state.versions(subject, deleted=deleted)
        if not candidates:
            raise errors.subject_not_found(subject)
        found = self._same(state, candidates, parsed, version)
        if found is None:
            raise errors.schema_not_found()
        return found

    def reasons_against(
        self, subject: str, request: SchemaVersion, number: int | None, *, normalize: bool
    ) -> list[str]:
        """Return why a schema is not compatible with a version, or with what the subject's level asks for."""
        state = self.state
        active = state.versions(subject, deleted=False)
        if number is not None:
            active = [each for each in active if number in (LATEST, each.version)][-1:]
            if not active and number != LATEST:
                raise errors.version_not_found(number)
        parsed, version = self._canonical(state, subject, request, normalize=normalize, is_new=True)
        return self._reasons(state, version, parsed, active)

    def version(self, subject: str, number: int, *, deleted: bool) -> SchemaVersion:
        """Return a version of a subject, `LATEST` for the newest; raises 40401 or 40402 if there is none."""
        versions = self.state.versions(subject, deleted=deleted)
        if not versions:
            raise errors.subject_not_found(subject)
        found = [each for each in versions if number in (LATEST, each.version)]
        if not found:
            raise errors.version_not_found(number)
        return found[-1]

    def with_id(self, schema_id: int, subject: str) -> list[SchemaVersion]:
        """Return the versions with an id, in the context of a subject; raises 40403 if there is none."""
        found = self.state.with_id(context_of(subject), schema_id)
        if not found:
            raise errors.schema_not_found(schema_id)
        return found

    def referrers(self, subject: str, number: int, *, deleted: bool) -> list[SchemaVersion]:
        found = self.version(subject, number, deleted=deleted)
        return [each for each in _referrers(self.state, found) if deleted or not each.deleted]

    def formatted(self, version: SchemaVersion, form: str) -> str:
        return self._parse(self.state, version).formatted(form) if form.strip() else version.text

    # Deletion

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Delete a version, or remove a deleted one for good; return its number."""
        state = self.state
        candidates = state.versions(subject)
        if not candidates:
            raise errors.subject_not_found(subject)
        if number == LATEST:
            candidates = [each for each in candidates if each.deleted == permanent] or candidates
            number = candidates[-1].version
        found = [each for each in candidates if each.version == number]
        if not found:
            raise errors.version_not_found(number)
        (version,) = found
        if version.deleted and not permanent:
            raise RegistryError(
                40406,
                f"Subject '{subject}' Version {number} was soft deleted.Set permanent=true to delete permanently",
            )
        self._check_not_read_only(state, subject)
        self._check_unreferenced(state, version, permanent=permanent)
        if not permanent:
            self._topic.write(replace(version, deleted=True).to_record())
            return number
        if not version.deleted:
            raise RegistryError(
                40407,
                f"Subject '{subject}' Version {number} was not deleted first before being permanently deleted",
            )
        settings = self._settings(state, subject) if len(state.versions(subject)) == 1 else []
        self._topic.write((schema_key(subject, number), None), *settings)
        return number

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject, or remove the deleted ones for good; return their numbers."""
        state = self.state
        versions = state.versions(subject, deleted=permanent)
        if not versions:
            if state.versions(subject):
                raise RegistryError(
                    40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
                )
            raise errors.subject_not_found(subject)
        self._check_not_read_only(state, subject)
        for each in versions:
            self._check_unreferenced(state, each, permanent=permanent, within=subject)
            if permanent and not each.deleted:
                raise RegistryError(
                    40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
                )
        if permanent:
            removed = [(schema_key(subject, each.version), None) for each in reversed(versions)]
            self._topic.write(*removed, *self._settings(state, subject))
        else:
            self._topic.write(delete_subject_record(subject, versions[-1].version))
        return [each.version for each in versions]

    # Settings

    def config(self, subject: str | None) -> dict[str, Any]:
        configs = self.state.configs
        return {"compatibilityLevel": DEFAULT_LEVEL} | configs.get(None, {}) | (_in_scope(configs, subject) or {})

    def aliased(self, subject: str) -> str:
        """Return the subject that a subject's alias names, or the subject itself."""
        alias = self.state.configs.get(subject, {}).get("alias")
        return within(subject, alias) if alias else subject

    def mode(self, subject: str | None) -> str:
        return _in_scope(self.state.modes, subject) or DEFAULT_MODE

    def set_config(self, subject: str | None, config: Mapping[str, Any] | None) -> None:
        self._check_not_read_only(self.state, subject)
        self._topic.write(setting_record("CONFIG", subject, config))

    def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> None:
        if mode not in _MODES:
            raise RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD.")
        state = self.state
        gone: list[tuple[bytes, bytes | None]] = []
        if mode == "IMPORT" and _in_scope(state.modes, subject) != "IMPORT" and not force:
            names = [each for each in state.subjects if subject in (None, each, context_prefix(context_of(each)))]
            if any(state.versions(name, deleted=False) for name in names):
                raise RegistryError(42205, "Cannot import since found existing subjects")
            for each in (version for name in names for version in state.versions(name)):
                self._check_unreferenced(state, each, permanent=True)
                gone.append((schema_key(each.subject, each.version), None))
        self._topic.write(*gone, setting_record("MODE", subject, {"mode": mode}))

    def delete_mode(self, subject: str | None, *, recursive: bool) -> None:
        """Delete the mode of a scope, and with `recursive` those in it; None is the scope of all."""
        gone = {subject}
        if recursive and (subject is None or subject == context_prefix(context_of(subject))):
            gone.update(each for each in self.state.modes if each is not None and each.startswith(subject or ""))
        self._topic.write(*(setting_record("MODE", each, None) for each in gone))

    # Checks

    def _check_writable(self, state: State, subject: str, request: SchemaVersion) -> bool:
        """Refuse a registration that the mode does not allow; return whether the mode is IMPORT."""
        self._check_not_read_only(state, subject)
        is_import = _in_scope(state.modes, subject) == "IMPORT"
        place = f"Subject {subject} in context {context_of(subject)}"
        if request.schema_id and not is_import:
            raise RegistryError(42205, f"{place} is not in import mode")
        if not request.schema_id and is_import:
            raise RegistryError(42205, f"{place} is not in read-write mode")
        return is_import

    def _check_not_read_only(self, state: State, subject: str | None) -> None:
        if _in_scope(state.modes, subject) in _READ_ONLY:
            context = context_of(subject or "")
            raise RegistryError(42205, f"Subject {subject or 'null'} in context {context} is in read-only mode")

    def _check_unreferenced(
        self, state: State, version: SchemaVersion, *, permanent: bool, within: str | None = None
    ) -> None:
        """Refuse to delete a version that schemas refer to; schemas of the subject `within` do not count."""
        if any(each.subject != within and (permanent or not each.deleted) for each in _referrers(state, version)):
            key = f"{{magic=1,keytype=SCHEMA,subject={version.subject},version={version.version}}}"
            raise RegistryError(42206, f"One or more references exist to the schema {key}.")

    def _reasons(
        self, state: State, version: SchemaVersion, parsed: ParsedSchema, active: list[SchemaVersion]
    ) -> list[str]:
        """Return why a schema is not compatible with earlier ones; with a group set, only those in its group count."""
        config = self.config(version.subject)
        group = config.get("compatibilityGroup")
        if group is not None:
            active = [each for each in active if each.properties.get(group) == version.properties.get(group)]
        earlier = [(each.version, self._parse(state, each)) for each in active]
        return reasons_against(config["compatibilityLevel"], parsed, earlier)

    def _settings(self, state: State, subject: str) -> list[tuple[bytes, bytes | None]]:
        kept = (("CONFIG", state.configs), ("MODE", state.modes))
        return [setting_record(keytype, subject, None) for keytype, settings in kept if subject in settings]

    # Parsing

    def _canonical(
        self, state: State, subject: str, request: SchemaVersion, *, normalize: bool, is_new: bool
    ) -> tuple[ParsedSchema, SchemaVersion]:
        references, config = request.references, self.config(subject)
        resolved = _resolved(state, subject, request.schema_type, references, frozenset())
        parsed = parse(
            request.schema_type, request.text, resolved, is_new=is_new and config.get("validateNewSchemas", True)
        )
        if is_new and config.get("validateFields") and parsed.reserved_field is not None:
            raise InvalidSchema(
                f"Invalid schema of type {request.schema_type}: field names cannot start with $$ prefix: "
                f"{parsed.reserved_field}"
            )
        text = parsed.text
        if normalize or config.get("normalize"):
            text, references = parsed.equality_key, tuple(sorted(references))
        return parsed, replace(request, subject=subject, text=text, references=references)

    def _same(
        self, state: State, candidates: list[SchemaVersion], parsed: ParsedSchema, wanted: SchemaVersion
    ) -> SchemaVersion | None:
        """Return the newest of the versions that is the schema.

        The order of keys in JSON does not count, and an Avro schema may be written out with what it refers to.
        """
        for each in reversed(candidates):
            if each.identity == wanted.identity:
                return each
        for each in reversed(candidates):
            same_context = replace(each, text=wanted.text, references=()).identity
            if same_context != replace(wanted, references=()).identity:
                continue
            known = self._parse(state, each)
            if each.references == wanted.references and known.equality_key == parsed.equality_key:
                return each
            if each.references and not wanted.references and known.written_out == parsed.written_out is not None:
                return each
        return None

    def _parse(self, state: State, version: SchemaVersion) -> ParsedSchema:
        resolved = _resolved(state, version.subject, version.schema_type, version.references, frozenset())
        # A reference names a subject and a version, which may have been removed and registered again.
        key = compact_json([version.identity, resolved])
        if key not in self._parsed:
            self._parsed[key] = parse(version.schema_type, version.text, resolved)
        return self._parsed[key]


def parse(schema_type: str, text: str, resolved: Resolved, *, is_new: bool = False) -> ParsedSchema:
    """Return a schema, parsed; a new one is checked more strictly. Raises `InvalidSchema`."""
    if schema_type == "AVRO":
        return AvroSchema(text, resolved, is_new=is_new)
    return JsonSchema(text, resolved) if schema_type == "JSON" else ProtobufSchema(text, resolved)


def _resolved(
    state: State, subject: str, schema_type: str, references: tuple[Reference, ...], outer: frozenset[Reference]
) -> Resolved:
    found = []
    for each in references:
        named = within(subject, each.subject)
        versions = [
            version
            for version in state.versions(named, deleted=each.version != LATEST)
            if each.version in (LATEST, version.version)
        ]
        if not versions or each in outer:
            raise InvalidSchema(
                f'Invalid schema: no schema reference found for subject "{each.subject}" and version {each.version}'
            )
        if versions[-1].schema_type != schema_type:
            raise InvalidSchema(
                f'Invalid schema: the reference "{each.name}" to subject "{each.subject}" and version {each.version} '
                f"is a schema of type {versions[-1].schema_type}, and a schema of type {schema_type} can only refer to "
                "schemas of its own type"
            )
        inner = _resolved(state, named, schema_type, versions[-1].references, outer | {each})
        found.append((each, ReferencedSchema(versions[-1].text, inner)))
    return tuple(found)


def _referrers(state: State, version: SchemaVersion) -> list[SchemaVersion]:
    return [
        each
        for each in state.all()
        if any(
            (within(each.subject, to.subject), to.version) == (version.subject, version.version)
            for to in each.references
        )
    ]


def _in_scope(settings: Mapping[str | None, Value], subject: str | None) -> Value | None:
    """Return the setting of a subject, else of its context, else of all contexts; None is the default context."""
    own = settings.get(subject)
    if own:
        return own
    context = None if subject is None else context_prefix(context_of(subject)) or None
    return settings.get(context) or settings.get(_EVERYWHERE)
