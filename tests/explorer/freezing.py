"""The images of live objects: equal images mean that the code which holds the objects cannot tell them apart.

The search compares suspended coroutines by them. So an image has every local variable, and what lies on the stack of
each frame, such as the iterator of a loop.
"""

import gc
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from itertools import count
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final, TypeAlias

# What the state refers to and does not consist of: the way to Kafka, the clock, what is only counted.
_LEFT_OUT: Final = frozenset({"cluster", "_cluster", "clock", "_clock", "runtime"})
_PLAIN: Final = (str, bytes, int, float, bool, type(None), Enum, type, CodeType, ModuleType, BuiltinFunctionType)
_ITERATORS: Final = (*(type(iter(each)) for each in ([], (), {}, range(0))), count, enumerate)
_Freeze: TypeAlias = Callable[["Freezer", Any], Hashable]


class Freezer:
    """The freezing of one graph of objects; an object that is met again is named by its number."""

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        # Objects made on the way must live, or another one may get their address.
        self._kept: list[Any] = []

    def freeze(self, value: Any) -> Hashable:
        """Return the image of a value."""
        kind = type(value)
        freeze = _KINDS.get(kind) or _kind(kind)
        if freeze is _as_it_is:
            return value  # type: ignore[no-any-return]
        if freeze is _tuple:
            return _tuple(self, value)
        number = self._met.get(id(value))
        if number is not None:
            return number
        self._met[id(value)] = -1 - len(self._met)
        self._kept.append(value)
        return freeze(self, value)

    def _suspended(self, value: Any) -> Hashable:
        frame = value.cr_frame if isinstance(value, CoroutineType) else value.gi_frame
        if frame is None:
            return ("ended",)
        awaited = value.cr_await if isinstance(value, CoroutineType) else value.gi_yieldfrom
        # The local variables, and what lies on the stack.
        held = [each for each in gc.get_referents(value) if each is not awaited and not isinstance(each, FunctionType)]
        return (
            value.__qualname__,
            frame.f_lasti,
            *(self.freeze(each) for each in held if type(each).__name__ not in _WRAPPERS),
            self.freeze(awaited),
        )


def _as_it_is(_: Freezer, value: Any) -> Hashable:
    return value  # type: ignore[no-any-return]


def _tuple(freezer: Freezer, value: Any) -> Hashable:
    freeze = freezer.freeze
    return tuple([freeze(each) for each in value])


def _set(freezer: Freezer, value: Any) -> Hashable:
    return tuple(sorted(map(freezer.freeze, value), key=repr))


def _mapping(freezer: Freezer, value: Any) -> Hashable:
    freeze = freezer.freeze
    return tuple([(freeze(key), freeze(each)) for key, each in value.items()])


def _function(freezer: Freezer, value: Any) -> Hashable:
    cells = [cell for cell in value.__closure__ or () if _is_filled(cell)]
    return value.__qualname__, tuple(freezer.freeze(cell.cell_contents) for cell in cells)


def _method(freezer: Freezer, value: Any) -> Hashable:
    return value.__func__.__qualname__, freezer.freeze(value.__self__)


def _partial(freezer: Freezer, value: Any) -> Hashable:
    return freezer.freeze(value.func), freezer.freeze(value.args), freezer.freeze(value.keywords)


def _cell(freezer: Freezer, value: Any) -> Hashable:
    return freezer.freeze(value.cell_contents) if _is_filled(value) else ()


def _error(freezer: Freezer, value: Any) -> Hashable:
    return type(value).__name__, freezer.freeze(value.args), freezer.freeze(value.__dict__)


def _iterator(freezer: Freezer, value: Any) -> Hashable:
    return type(value).__name__, freezer.freeze(value.__reduce__()[1:])


def _graph(freezer: Freezer, value: Any) -> Hashable:
    kind = type(value)
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = _names(value)
    freeze = freezer.freeze
    return kind.__name__, tuple([freeze(getattr(value, name, None)) for name in names])


_NAMES: Final[dict[type, list[str]]] = {}
_KINDS: Final[dict[type, _Freeze]] = {}


def _kind(kind: type) -> _Freeze:
    """Return how objects of a class are frozen."""
    for bases, freeze in (
        (_PLAIN, _as_it_is),
        ((list, tuple), _tuple),
        ((set, frozenset), _set),
        (Mapping, _mapping),
        (FunctionType, _function),
        (MethodType, _method),
        (partial, _partial),
        (CellType, _cell),
        (BaseException, _error),
        (_ITERATORS, _iterator),
        ((CoroutineType, GeneratorType), Freezer._suspended),
    ):
        if issubclass(kind, bases):
            _KINDS[kind] = freeze
            return freeze
    is_value = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    _KINDS[kind] = _as_it_is if is_value and kind.__name__ in _VALUES else _graph
    return _KINDS[kind]


# Immutable all the way down.
_VALUES: Final = frozenset(
    {"Decision", "PreparedTransaction", "DriverState", "Prepared", "Empty", "AlreadyCommitted", "Pointer"}
)
_WRAPPERS: Final = frozenset({"coroutine_wrapper", "builtin_function_or_method"})


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _names(value: Any) -> list[str]:
    if is_dataclass(value):
        names = [each.name for each in fields(value)]
    else:
        slots = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
        names = [*slots, *getattr(value, "__dict__", {})]
    return [name for name in dict.fromkeys(names) if name not in _LEFT_OUT and not name.startswith("__")]
