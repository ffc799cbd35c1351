"""What differs between two JSON schemas, and which differences a reader of older documents survives.

The rules are those of Confluent's documentation, "Schema Evolution and Compatibility for Schema Registry" and "JSON
Schema Serializer and Deserializer: JSON schema compatibility rules", under the policy STRICT, and of the tests of
Confluent Schema Registry, whose names for differences are used. Changes of titles, descriptions, defaults and ids are
always compatible and are not listed.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from broker_core.features.schema_registry.json_nodes import Node, matching_size
from broker_core.features.schema_registry.parsed_schema import compact_json

Found = list[tuple[str, str]]

# The keywords that set a limit, with the name of the difference and the direction that allows more.
_LIMITS = {
    "string": (("maxLength", "MAX_LENGTH", 1), ("minLength", "MIN_LENGTH", -1)),
    "number": (
        ("maximum", "MAXIMUM", 1),
        ("minimum", "MINIMUM", -1),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", 1),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM", -1),
    ),
    "object": (("maxProperties", "MAX_PROPERTIES", 1), ("minProperties", "MIN_PROPERTIES", -1)),
    "array": (
        ("maxItems", "MAX_ITEMS", 1),
        ("minItems", "MIN_ITEMS", -1),
        ("maxContains", "MAX_CONTAINS", 1),
        ("minContains", "MIN_CONTAINS", -1),
    ),
}
# All other differences are incompatible.
COMPATIBLE = frozenset(
    {
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "PATTERN_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
        *(f"{name}_REMOVED" for limits in _LIMITS.values() for _, name, _ in limits),
        *(f"{name}_{'INCREASED' if up > 0 else 'DECREASED'}" for limits in _LIMITS.values() for _, name, up in limits),
    }
)


def incompatible(found: Found) -> Found:
    """Return the differences that a reader of older documents does not survive."""
    return [each for each in found if each[0] not in COMPATIBLE]


class Comparison:
    """A comparison of an earlier schema with a later one; a pair that contains itself counts as compatible there."""

    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()
        self._known: dict[tuple[int, int], Found] = {}
        self._cycles = 0
        self._found: Found = []
        self._path: tuple[str, ...] = ()

    def between(self, original: Node | None, update: Node | None, path: tuple[str, ...] = ()) -> Found:
        if original is None or update is None:
            kind = "SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED"
            return [] if original is update else [(kind, _text(path))]
        pair = (id(original), id(update))
        if pair in self._open:
            self._cycles += 1
            return []
        if pair not in self._known:
            before, outer = self._cycles, (self._found, self._path)
            self._open.add(pair)
            self._found, self._path = [], ()
            self._nodes(original, update)
            found = self._found
            self._found, self._path = outer
            self._open.remove(pair)
            if self._cycles != before:
                # What was found may depend on where the cycle was entered.
                return [(kind, _text(path) + place.removeprefix("#/")) for kind, place in _joined(path, found)]
            self._known[pair] = found
        return [(kind, place) for kind, place in _joined(path, self._known[pair])]

    def _add(self, kind: str, *names: str) -> None:
        self._found.append((kind, _text((*self._path, *names))))

    def _compare(self, original: Node | None, update: Node | None, *names: str) -> None:
        self._found += self.between(original, update, (*self._path, *names))

    def _nodes(self, original: Node, update: Node) -> None:
        if original.is_combined != update.is_combined and self._one_combined(original, update):
            return
        if original.kind != update.kind and not (original.is_combined and update.is_combined):
            if original.kind != "nothing" and update.kind != "empty":
                self._add("TYPE_CHANGED")
            return
        if original.is_combined:
            self._combined(original, update)
        else:
            self._of_one_kind(original, update)

    def _of_one_kind(self, original: Node, update: Node) -> None:
        before, after = original.keywords, update.keywords
        match original.kind:
            case "string":
                self._limits(original, update)
                if before.get("pattern") != after.get("pattern"):
                    self._add(f"PATTERN_{_change(before.get('pattern'), after.get('pattern'))}", "pattern")
            case "number":
                self._numbers(original, update)
            case "const":
                if compact_json(before["const"]) != compact_json(after["const"]):
                    self._add("ENUM_ARRAY_CHANGED", "const")
            case "enum":
                values = [{compact_json(value) for value in each["enum"]} for each in (before, after)]
                self._sets("ENUM_ARRAY", values[0], values[1], "enum")
            case "not":
                is_narrower = not incompatible(self.between(update.parts[0], original.parts[0]))
                self._add("NOT_TYPE_NARROWED" if is_narrower else "NOT_TYPE_EXTENDED", "not")
            case "object":
                self._objects(original, update)
            case "array":
                self._arrays(original, update)

    def _one_combined(self, original: Node, update: Node) -> bool:
        """Compare a schema with the parts of a combination; return whether one of them makes it compatible."""
        combined, other = (update, original) if update.is_combined else (original, update)
        is_wider = update.is_combined and update.kind in ("anyOf", "oneOf")
        is_narrower = original.is_combined and original.kind == "allOf"
        if len(combined.parts) > 1 and not is_wider and not is_narrower:
            return False
        for part in combined.parts:
            found = (
                self.between(other, part, self._path) if update.is_combined else self.between(part, other, self._path)
            )
            if not incompatible(found):
                self._found += found
                if len(combined.parts) > 1:
                    self._add("SUM_TYPE_EXTENDED" if is_wider else "PRODUCT_TYPE_NARROWED")
                return True
        return False

    def _combined(self, original: Node, update: Node) -> None:
        singles = len(original.parts) == 1, len(update.parts) == 1
        if original.kind != update.kind:
            is_extended = (
                update.kind == "anyOf"
                or all(singles)
                or (singles[0] and update.kind == "oneOf")
                or (singles[1] and original.kind == "allOf")
            )
            self._add("COMBINED_TYPE_EXTENDED" if is_extended else "COMBINED_TYPE_CHANGED")
            if not is_extended:
                return
        before, after = _distinct(original.parts), _distinct(update.parts)
        if len(before) < len(after):
            self._add("PRODUCT_TYPE_EXTENDED" if update.kind == "allOf" else "SUM_TYPE_EXTENDED")
        elif len(before) > len(after):
            self._add("PRODUCT_TYPE_NARROWED" if original.kind == "allOf" else "SUM_TYPE_NARROWED")
        edges = [
            [index for index, new in enumerate(after) if not incompatible(self.between(old, new))] for old in before
        ]
        if matching_size(edges) < min(len(before), len(after)):
            self._add("COMBINED_TYPE_SUBSCHEMAS_CHANGED")

    def _numbers(self, original: Node, update: Node) -> None:
        self._limits(original, update)
        found = (each.keywords.get("multipleOf") for each in (original, update))
        before, after = (None if each is None else Decimal(str(each)) for each in found)
        if before != after:
            change = _change(before, after)
            if before and after and after % before == 0:
                change = "EXPANDED"
            elif before and after and before % after == 0:
                change = "REDUCED"
            self._add(f"MULTIPLE_OF_{change}", "multipleOf")
        integers = [each.keywords.get("type") == "integer" for each in (original, update)]
        if integers[0] != integers[1]:
            self._add("TYPE_EXTENDED" if integers[0] else "TYPE_NARROWED")

    def _limits(self, original: Node, update: Node) -> None:
        for keyword, name, _ in _LIMITS[original.kind]:
            before, after = original.keywords.get(keyword), update.keywords.get(keyword)
            if isinstance(before, bool) or isinstance(after, bool) or before == after:
                # Draft 4 has exclusiveMaximum as a flag.
                continue
            if before is None or after is None:
                self._add(f"{name}_{_change(before, after)}", keyword)
            else:
                self._add(f"{name}_{'INCREASED' if before < after else 'DECREASED'}", keyword)

    def _sets(self, name: str, before: set[str], after: set[str], *names: str) -> None:
        if before != after:
            change = "EXTENDED" if before < after else "NARROWED" if after < before else "CHANGED"
            self._add(f"{name}_{change}", *names)

    def _objects(self, original: Node, update: Node) -> None:
        required = [set(each.keywords.get("required", ())) for each in (original, update)]
        for name in original.properties:
            if name in update.properties and (name in required[0]) != (name in required[1]):
                change = "_REMOVED" if name in required[0] else "_ADDED"
                if name in required[1] and update.properties[name].has_default:
                    change = "_WITH_DEFAULT_ADDED"
                self._add(f"REQUIRED_ATTRIBUTE{change}", "required", name)
        for name in [*original.properties, *(each for each in update.properties if each not in original.properties)]:
            if name not in update.properties:
                unnamed = _unnamed_property(update, name)
                self._removed("PROPERTY", original.properties[name], update, unnamed, ("properties", name))
            elif name not in original.properties:
                self._added_property(name, original, update.properties[name], is_required=name in required[1])
            else:
                self._compare(original.properties[name], update.properties[name], "properties", name)
        self._dependencies(original, update)
        self._rest(original, update, "PROPERTIES", "additionalProperties", "unevaluatedProperties")
        self._limits(original, update)

    def _removed(self, what: str, before: Node, update: Node, unnamed: Node | None, names: tuple[str, ...]) -> None:
        """Note that a property or item was removed: what is left of the schema may still allow it."""
        if update.is_open:
            self._add(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL", *names)
        elif unnamed is not None:
            self._partial(f"{what}_REMOVED", before, unnamed, names)
        elif before.kind == "nothing":
            self._add(f"{what}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", *names)
        else:
            self._add(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", *names)

    def _added_property(self, name: str, original: Node, after: Node, *, is_required: bool) -> None:
        names = ("properties", name)
        what = "OPTIONAL_PROPERTY"
        if is_required:
            what = "REQUIRED_PROPERTY_WITH_DEFAULT" if after.has_default else "REQUIRED_PROPERTY"
        if original.is_open:
            # Older documents may have anything under that name.
            what = "PROPERTY_WITH_EMPTY_SCHEMA" if after.kind == "empty" else what
            self._add(f"{what}_ADDED_TO_OPEN_CONTENT_MODEL", *names)
            return
        unnamed = _unnamed_property(original, name)
        if unnamed is not None:
            self._partial("PROPERTY_ADDED", unnamed, after, names)
        self._add(f"{what}_ADDED_TO_UNOPEN_CONTENT_MODEL", *names)

    def _partial(self, change: str, before: Node, after: Node, names: tuple[str, ...]) -> None:
        """Compare what a schema names with what the other one says of all that it does not name."""
        found = self.between(before, after, (*self._path, *names))
        self._found += found
        covered = "NOT_COVERED" if incompatible(found) else "IS_COVERED"
        self._add(f"{change}_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", *names)

    def _dependencies(self, original: Node, update: Node) -> None:
        before, after = _dependent_names(original), _dependent_names(update)
        for name in self._in_both("DEPENDENCY_ARRAY", before, after):
            self._sets("DEPENDENCY_ARRAY", before[name], after[name], "dependencies", name)
        for name in self._in_both("DEPENDENCY_SCHEMA", original.dependent, update.dependent):
            self._compare(original.dependent[name], update.dependent[name], "dependencies", name)

    def _in_both(self, kind: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
        """Add the dependencies that were added or removed; yield the names of the others."""
        for name in sorted({*before, *after}):
            if name in before and name in after:
                yield name
            else:
                self._add(f"{kind}_{'ADDED' if name in after else 'REMOVED'}", "dependencies", name)

    def _arrays(self, original: Node, update: Node) -> None:
        self._compare(original.items, update.items, "items")
        before, after = original.tuple_items, update.tuple_items
        for index in range(max(len(before), len(after))):
            names = (f"items/{index}",)
            if index >= len(after):
                self._removed("ITEM", before[index], update, update.unnamed, names)
            elif index < len(before):
                self._compare(before[index], after[index], *names)
            elif original.is_open:
                what = "ITEM_WITH_EMPTY_SCHEMA" if after[index].kind == "empty" else "ITEM"
                self._add(f"{what}_ADDED_TO_OPEN_CONTENT_MODEL", *names)
            elif original.unnamed is not None:
                self._partial("ITEM_ADDED", original.unnamed, after[index], names)
            else:
                self._add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", *names)
        self._rest(original, update, "ITEMS", "additionalItems", "unevaluatedItems")
        self._limits(original, update)
        unique = [bool(each.keywords.get("uniqueItems")) for each in (original, update)]
        if unique[0] != unique[1]:
            self._add("UNIQUE_ITEMS_REMOVED" if unique[0] else "UNIQUE_ITEMS_ADDED", "uniqueItems")

    def _rest(self, original: Node, update: Node, what: str, additional: str, unevaluated: str) -> None:
        """Compare what objects or arrays may contain besides what their schemas name."""
        if original.permits_additional != update.permits_additional:
            self._add(f"ADDITIONAL_{what}_{'ADDED' if update.permits_additional else 'REMOVED'}", additional)
        elif (original.additional is None) != (update.additional is None):
            self._add(f"ADDITIONAL_{what}_{'NARROWED' if original.additional is None else 'EXTENDED'}", additional)
        else:
            self._compare(original.additional, update.additional, additional)
        before, after = original.unevaluated, update.unevaluated
        if before is None and after is None:
            return
        kinds = ["absent" if each is None else each.kind for each in (before, after)]
        if "nothing" in kinds and kinds[0] != kinds[1]:
            self._add(f"UNEVALUATED_{what}_{'ADDED' if kinds[0] == 'nothing' else 'REMOVED'}", unevaluated)
        elif before is None or (kinds[0] == "empty" and kinds[1] not in ("empty", "absent")):
            self._add(f"UNEVALUATED_{what}_NARROWED", unevaluated)
        elif after is None or (kinds[1] == "empty" and kinds[0] != "empty"):
            self._add(f"UNEVALUATED_{what}_EXTENDED", unevaluated)
        else:
            self._compare(before, after, unevaluated)


def _text(path: tuple[str, ...]) -> str:
    return "#/" + "/".join(path)


def _joined(path: tuple[str, ...], found: Found) -> Found:
    if not path:
        return found
    return [(kind, "/".join((_text(path), place[2:])) if place != "#/" else _text(path)) for kind, place in found]


def _distinct(parts: list[Node]) -> list[Node]:
    return list({(each.kind, compact_json(each.keywords, sort_keys=True)): each for each in parts}.values())


def _change(before: object, after: object) -> str:
    return "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"


def _unnamed_property(node: Node, name: str) -> Node | None:
    for pattern, schema in node.patterns.items():
        if re.search(pattern, name):
            return schema
    return node.unnamed


def _dependent_names(node: Node) -> dict[str, set[str]]:
    """Return the names that the presence of a property requires, by property."""
    listed = node.keywords.get("dependencies", {}) | node.keywords.get("dependentRequired", {})
    return {name: set(each) for name, each in listed.items() if isinstance(each, list)}
