"""Find the error codes in a response, wherever its schema puts them.

The one place that all answers go through is where errors are counted, and each API has its codes elsewhere: at the
top, for each partition, or both.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_ENDING: Final = "error_code"

# Worked out once for each response and version.
_paths: "dict[tuple[int, int], tuple[_Path, ...]]" = {}


class _Path(NamedTuple):
    """Name one field: an error code, or what holds some."""

    name: str
    inner: "tuple[_Path, ...]"
    is_array: bool


def error_codes(response: Any, version: int) -> Iterator[int]:
    """Yield every code in the response, 0 for what went well, of the fields that this version has."""
    key = (response.API_KEY, version)
    paths = _paths.get(key)
    if paths is None:
        paths = _paths[key] = _paths_of(response._struct, version)
    return _codes(response, paths)


def _codes(value: Any, paths: tuple[_Path, ...]) -> Iterator[int]:
    for path in paths:
        part = getattr(value, path.name)
        if not path.inner:
            yield int(part)
        elif part is not None:
            for item in part if path.is_array else (part,):
                yield from _codes(item, path.inner)


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
