"""The differences between two answers that are given as dicts, field by field."""

from collections.abc import Iterator
from typing import Any


def differing_fields(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, which has no indexes, and both values of each field that differs.

    A field that the other answer lacks, as an older version does, counts as None there.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one:
            yield from differing_fields(one[name], other.get(name), f"{path}.{name}" if path else name)
    elif isinstance(one, list) and isinstance(other, list) and _are_structs(one) and _are_structs(other):
        if len(one) == len(other):
            for item, its_twin in zip(one, other, strict=True):
                yield from differing_fields(item, its_twin, path)
        else:
            only_in_one = [each for each in one if each not in other]
            only_in_other = [each for each in other if each not in one]
            are_repeated = not only_in_one and not only_in_other
            yield path, one if are_repeated else only_in_one, other if are_repeated else only_in_other
    elif one != other or type(one) is not type(other):
        yield path, one, other


def _are_structs(items: list[Any]) -> bool:
    return all(isinstance(each, dict) for each in items)
