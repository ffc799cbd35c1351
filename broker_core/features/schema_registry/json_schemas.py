"""JSON schemas, checked by jsonschema, with references resolved by referencing."""

from typing import Any
from urllib.parse import urljoin

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, SchemaRegistry

from broker_core.features.schema_registry.errors import InvalidSchema
from broker_core.features.schema_registry.json_compatibility import Comparison, incompatible
from broker_core.features.schema_registry.json_nodes import NodeBuilder, Resolve
from broker_core.features.schema_registry.parsed_schema import ParsedSchema, Resolved, compact_json, flat, load_json


class JsonSchema(ParsedSchema):
    """A JSON schema of any draft, by default draft 7, and those it refers to."""

    schema_type = "JSON"

    def __init__(self, text: str, resolved: Resolved = ()) -> None:
        self.value = load_json(text, "JSON")
        if not isinstance(self.value, dict | bool):
            raise InvalidSchema("Invalid schema of type JSON: expected an object or a boolean")
        try:
            validator_for(self.value, default=Draft7Validator).check_schema(self.value)
            base = self.value.get("$id", "") if isinstance(self.value, dict) else ""
            registry: SchemaRegistry = Registry()
            for name, referenced in flat(resolved).items():
                resource = _resource(load_json(referenced.text, "JSON"))
                # A reference is named as it is written, or by the address it has relative to the schema.
                registry = registry.with_resources([(name, resource), (urljoin(base, name), resource)])
            registry = registry.with_resource(base, _resource(self.value))
            self.node = NodeBuilder().build(self.value, _resolve(registry.resolver(base)))
        except SchemaError as error:
            place = "/".join(map(str, error.absolute_path))
            raise InvalidSchema(f"Invalid schema of type JSON: #/{place}: {error.message}") from error
        except Unresolvable as error:
            raise InvalidSchema(f"Invalid schema of type JSON: unresolved $ref {error.ref!r}") from error
        except RecursionError as error:
            raise InvalidSchema("Invalid schema of type JSON: it is nested too deeply") from error
        properties = self.value.get("properties") if isinstance(self.value, dict) else None
        self.reserved_field = next((name for name in properties or () if name.startswith("$$")), None)
        # Within a subject the order of keys does not count.
        super().__init__(compact_json(self.value), compact_json(self.value, sort_keys=True))

    def can_read(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, JsonSchema)
        return [
            f'{{errorType:"{kind}", description:"The schemas differ at path \'{path}\'"}}'
            for kind, path in incompatible(Comparison().between(writer.node, self.node))
        ]


def _resource(value: Any) -> Resource[Any]:
    return Resource.from_contents(value, default_specification=DRAFT7)


def _resolve(resolver: Any) -> Resolve:
    def resolve(reference: str) -> tuple[Any, Resolve]:
        found = resolver.lookup(reference)
        return found.contents, _resolve(found.resolver)

    return resolve
