"""The registry's state, derived from the records of `_schemas`, in the form of Confluent Schema Registry."""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker_core.features.schema_registry.parsed_schema import Reference, compact_json

DEFAULT_CONTEXT = "."
_QUALIFIED = re.compile(r":(\.[^:]*):(.*)", re.DOTALL)


def context_of(subject: str) -> str:
    """Return the context of a subject: `.staging` for `:.staging:orders-value`, `.` by default. Ids count in each."""
    match = _QUALIFIED.fullmatch(subject)
    return match[1] if match else DEFAULT_CONTEXT


def normal_subject(subject: str) -> str:
    """Return a subject without a prefix that names the default context."""
    return subject.removeprefix(":.:")


def context_prefix(name: str) -> str:
    """Return what subjects of a context begin with, nothing for the default one; raise ValueError for a colon."""
    bare = name.removeprefix(":").removesuffix(":")
    if ":" in bare:
        raise ValueError(f"Context name '{bare}' cannot contain a colon")
    return "" if bare in ("", DEFAULT_CONTEXT) else f":.{bare.removeprefix('.')}:"


def within(parent: str, subject: str) -> str:
    """Return a subject that is named in the subject `parent`; without a context, it has the context of `parent`."""
    is_qualified = _QUALIFIED.fullmatch(subject) is not None
    return normal_subject(subject if is_qualified else context_prefix(context_of(parent)) + subject)


@dataclass(frozen=True)
class SchemaVersion:
    """A version of a subject; `deleted` after a deletion that can be undone by registering the schema again."""

    subject: str
    version: int
    schema_id: int
    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Any = None
    rule_set: Any = None
    deleted: bool = False

    @property
    def identity(self) -> str:
        """What makes two schemas one: they share an id, in one context."""
        parts = [self.schema_type, self.text, self.references, self.metadata or None, self.rule_set or None]
        return compact_json(parts, sort_keys=True)

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties of the metadata."""
        return (self.metadata or {}).get("properties") or {}

    @property
    def guid(self) -> str:
        return str(uuid.UUID(bytes=hashlib.md5(self.identity.encode(), usedforsecurity=False).digest()))

    def content(self) -> dict[str, Any]:
        """Return the schema as the REST API shows it, without ids and names."""
        found: dict[str, Any] = {"guid": self.guid, "schemaType": self.schema_type}
        if self.references:
            found["references"] = [each._asdict() for each in self.references]
        if self.metadata:
            found["metadata"] = self.metadata
        if self.rule_set:
            found["ruleSet"] = self.rule_set
        return found | {"schema": self.text}

    def to_record(self) -> tuple[bytes, bytes]:
        value = {"subject": self.subject, "version": self.version, "id": self.schema_id}
        content = self.content()
        del content["guid"]
        if self.schema_type == "AVRO":
            del content["schemaType"]
        return schema_key(self.subject, self.version), _json(value | content | {"deleted": self.deleted})


def _json(value: Any) -> bytes:
    return compact_json(value).encode()


def schema_key(subject: str, version: int) -> bytes:
    return _json({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _key(keytype: str, subject: str | None) -> bytes:
    named = {} if subject is None else {"subject": subject}
    return _json({"keytype": keytype, **named, "magic": 0})


def delete_subject_record(subject: str, version: int) -> tuple[bytes, bytes]:
    """Return the record that marks the versions of a subject up to `version` as deleted."""
    return _key("DELETE_SUBJECT", subject), _json({"subject": subject, "version": version})


def setting_record(keytype: str, subject: str | None, value: Mapping[str, Any] | None) -> tuple[bytes, bytes | None]:
    """Return the record with the settings (CONFIG) or the mode (MODE) of a subject, or of all; None removes them."""
    return _key(keytype, subject), None if value is None else _json(value)


class State:
    """Subjects with their versions, settings and modes, after the records seen so far."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, SchemaVersion]] = {}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self._max_ids: dict[str, int] = {}
        # The versions with an id, in the order of registration.
        self._with_id: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record; one that is not the registry's is ignored."""
        try:
            name = _object(json.loads(key or b""))
            content = None if value is None else _object(json.loads(value))
            kind = name["keytype"]
            subject = None if name.get("subject") is None else _text(name, "subject")
            if kind == "SCHEMA":
                subject, number = _text(name, "subject"), whole_number(name, "version")
                version = None if content is None else _version(content)
                self._remove(subject, number)
                if version is not None:
                    self._put(version)
            elif kind == "DELETE_SUBJECT" and content is not None:
                number = whole_number(content, "version")
                for each in self.versions(_text(name, "subject")):
                    if each.version <= number:
                        self._put(replace(each, deleted=True))
            elif kind == "CONFIG":
                _set(self.configs, subject, content)
            elif kind == "MODE":
                _set(self.modes, subject, None if content is None else _text(content, "mode"))
        except (ValueError, KeyError, TypeError, RecursionError):
            return

    def versions(self, subject: str, *, deleted: bool = True) -> list[SchemaVersion]:
        found = sorted(self.subjects.get(subject, {}).items())
        return [each for _, each in found if deleted or not each.deleted]

    def with_id(self, context: str, schema_id: int) -> list[SchemaVersion]:
        places = self._with_id.get((context, schema_id), {})
        return [self.subjects[subject][version] for subject, version in places]

    def all(self) -> Iterator[SchemaVersion]:
        for subject in sorted(self.subjects):
            yield from self.versions(subject)

    def id_of(self, context: str, identity: str) -> int | None:
        return self._ids.get((context, identity))

    def max_id(self, context: str) -> int:
        return self._max_ids.get(context, 0)

    def _put(self, version: SchemaVersion) -> None:
        context = context_of(version.subject)
        self.subjects.setdefault(version.subject, {})[version.version] = version
        self._with_id.setdefault((context, version.schema_id), {})[version.subject, version.version] = None
        self._ids[context, version.identity] = version.schema_id
        self._max_ids[context] = max(self.max_id(context), version.schema_id)

    def _remove(self, subject: str, number: int) -> None:
        version = self.subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        if not self.subjects[subject]:
            del self.subjects[subject]
        place = (context_of(subject), version.schema_id)
        del self._with_id[place][subject, number]
        if not self._with_id[place]:
            del self._with_id[place]
            self._ids.pop((place[0], version.identity), None)


def _set(settings: dict[Any, Any], subject: str | None, value: Any) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value


def _version(content: Mapping[str, Any]) -> SchemaVersion:
    return SchemaVersion(
        _text(content, "subject"),
        whole_number(content, "version"),
        whole_number(content, "id"),
        _text(content, "schemaType") if content.get("schemaType") else "AVRO",
        _text(content, "schema"),
        references_of(content.get("references")),
        metadata_of(content),
        optional_object(content, "ruleSet"),
        bool(content.get("deleted", False)),
    )


def references_of(values: Any) -> tuple[Reference, ...]:
    """Return the references in a JSON body; raise KeyError or TypeError for anything else."""
    if not isinstance(values, list | None):
        raise TypeError("references are not a list")
    return tuple(
        Reference(_text(each, "name"), _text(each, "subject"), whole_number(each, "version"))
        for each in map(_object, values or ())
    )


def metadata_of(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the metadata in a JSON body; raise TypeError for anything else."""
    found = optional_object(content, "metadata")
    optional_object(found or {}, "properties")
    return found


def optional_object(content: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return a field that is an object, null or missing; raise TypeError for anything else."""
    return None if content.get(name) is None else _object(content[name], name)


def whole_number(content: Mapping[str, Any], name: str) -> int:
    """Return a field that is a whole number; raise TypeError for anything else."""
    value = content[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is not a whole number")
    return value


def _object(value: Any, name: str = "the value") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{name} is not an object")
    return value


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    return value
