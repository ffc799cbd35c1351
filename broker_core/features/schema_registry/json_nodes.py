"""JSON schemas as nodes of one kind each, which can be compared.

A schema may say several things at once: a type, an enum, alternatives. Each becomes a node, and a node of the kind
"allOf" joins them, as the parser of Confluent Schema Registry does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

_TYPED = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedProperties",
        "propertyNames",
    ),
    "array": (
        "items",
        "prefixItems",
        "additionalItems",
        "contains",
        "minItems",
        "maxItems",
        "uniqueItems",
        "unevaluatedItems",
        "minContains",
        "maxContains",
    ),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
}
CRITERIA = ("allOf", "anyOf", "oneOf")


@dataclass(eq=False)
class Node:
    """One statement of a schema: a type, an enum, a constant, a negation, or a combination of nodes.

    `kind` is a type's name ("number" for integers too), "enum", "const", "not", "allOf", "anyOf", "oneOf", "empty" for
    a schema that accepts everything, or "nothing" for one that accepts nothing. `keywords` is the schema it is from.
    """

    kind: str
    keywords: dict[str, Any] = field(default_factory=dict)
    parts: list["Node"] = field(default_factory=list)
    # By keyword: the nodes of the schemas in objects and arrays.
    properties: dict[str, "Node"] = field(default_factory=dict)
    patterns: dict[str, "Node"] = field(default_factory=dict)
    dependent: dict[str, "Node"] = field(default_factory=dict)
    tuple_items: list["Node"] = field(default_factory=list)
    items: "Node | None" = None
    additional: "Node | None" = None
    unevaluated: "Node | None" = None
    permits_additional: bool = True

    @property
    def is_combined(self) -> bool:
        return self.kind in CRITERIA

    @property
    def has_default(self) -> bool:
        return "default" in self.keywords

    @property
    def is_open(self) -> bool:
        """Whether an object or array may contain anything that the schema does not name."""
        return (
            self.permits_additional
            and self.additional is None
            and not self.patterns
            and (self.unevaluated is None or self.unevaluated.kind == "empty")
        )

    @property
    def unnamed(self) -> "Node | None":
        """The schema of what the schema does not name, in a partially open content model."""
        if self.additional is not None:
            return self.additional
        is_partial = self.permits_additional and self.unevaluated is not None
        return self.unevaluated if is_partial and self.unevaluated.kind not in ("nothing", "empty") else None  # type: ignore[union-attr]


# Returns the schema that a reference names, and the function that resolves the references in it.
Resolve = Callable[[str], tuple[Any, "Resolve"]]


class NodeBuilder:
    """Makes the nodes of a schema with all that it refers to; a schema that contains itself becomes a cycle."""

    def __init__(self) -> None:
        self._known: dict[int, Node] = {}

    def build(self, schema: Any, resolve: Resolve) -> Node:
        if isinstance(schema, bool):
            return Node("empty" if schema else "nothing")
        if id(schema) in self._known:
            return self._known[id(schema)]
        # In place before its parts are made, because one of them may refer to it.
        node = self._known[id(schema)] = Node("empty", schema)
        made = self._made(schema, resolve)
        node.__dict__.update(made.__dict__)
        return node

    def _made(self, schema: dict[str, Any], resolve: Resolve) -> Node:
        if "$ref" in schema:
            target, resolve_there = resolve(schema["$ref"])
            return self.build(target, resolve_there)
        parts = [
            Node(criterion, schema, [self.build(each, resolve) for each in schema[criterion]])
            for criterion in CRITERIA
            if schema.get(criterion)
        ]
        if "not" in schema:
            parts.append(Node("not", schema, [self.build(schema["not"], resolve)]))
        if "enum" in schema:
            parts.append(Node("enum", schema))
        if "const" in schema:
            parts.append(Node("const", schema))
        declared = schema.get("type")
        if isinstance(declared, list) and len(declared) != 1:
            parts.insert(0, Node("anyOf", schema, [self._typed(each, schema, resolve) for each in declared]))
        elif declared is not None:
            name = declared[0] if isinstance(declared, list) else declared
            parts.insert(0, self._typed(name, schema, resolve))
        else:
            # The keywords say which types the schema is about.
            parts[:0] = [self._typed(kind, schema, resolve) for kind, keys in _TYPED.items() if schema.keys() & keys]
        match parts:
            case []:
                return Node("empty", schema)
            case [only]:
                return only
        return Node("allOf", schema, parts)

    def _typed(self, kind: str, schema: dict[str, Any], resolve: Resolve) -> Node:
        node = Node(
            "number" if kind == "integer" else kind, schema if kind != "integer" else {**schema, "type": "integer"}
        )
        if kind == "object":
            self._fill_object(node, schema, resolve)
        elif kind == "array":
            self._fill_array(node, schema, resolve)
        return node

    def _fill_object(self, node: Node, schema: dict[str, Any], resolve: Resolve) -> None:
        node.properties = self._all(schema.get("properties", {}), resolve)
        node.patterns = self._all(schema.get("patternProperties", {}), resolve)
        dependent = {
            name: each for name, each in schema.get("dependencies", {}).items() if not isinstance(each, list)
        } | schema.get("dependentSchemas", {})
        node.dependent = self._all(dependent, resolve)
        self._fill_rest(node, schema.get("additionalProperties"), schema.get("unevaluatedProperties"), resolve)

    def _fill_array(self, node: Node, schema: dict[str, Any], resolve: Resolve) -> None:
        items, additional = schema.get("items"), schema.get("additionalItems")
        if "prefixItems" in schema:
            # Since draft 2020-12, `items` says what follows.
            items, additional = schema["prefixItems"], items
        if isinstance(items, list):
            node.tuple_items = [self.build(each, resolve) for each in items]
        elif items is not None:
            node.items = self.build(items, resolve)
        self._fill_rest(node, additional, schema.get("unevaluatedItems"), resolve)

    def _fill_rest(self, node: Node, additional: Any, unevaluated: Any, resolve: Resolve) -> None:
        node.permits_additional = additional is not False
        if isinstance(additional, dict):
            node.additional = self.build(additional, resolve)
        if unevaluated is not None:
            node.unevaluated = self.build(unevaluated, resolve)

    def _all(self, schemas: dict[str, Any], resolve: Resolve) -> dict[str, Node]:
        return {name: self.build(each, resolve) for name, each in schemas.items()}


def matching_size(edges: Sequence[Iterable[int]]) -> int:
    """Return how many of the left sides can be paired with different right sides, of which `edges` has each one's."""
    taken: dict[int, int] = {}

    def pair(left: int, tried: set[int]) -> bool:
        for right in edges[left]:
            if right not in tried:
                tried.add(right)
                if right not in taken or pair(taken[right], tried):
                    taken[right] = left
                    return True
        return False

    return sum(pair(left, set()) for left in range(len(edges)))
