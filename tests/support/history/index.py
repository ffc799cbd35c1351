"""An index of a history: the writer and offset of each value, and the operations that certainly took effect."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.history.format import INFO, INVOKE, OK, Key, Op, Value


@dataclass(slots=True)
class Operation:
    """An operation with its begin and end; one that never ended is `info` and ends after all others."""

    begin: Op
    end: Op | None = None

    @property
    def kind(self) -> str:
        """Return how the operation ended."""
        return INFO if self.end is None else self.end.kind

    @property
    def name(self) -> str:
        """Return the operation's name for messages."""
        return f"{self.begin.transaction or self.begin.function} of {self.begin.process} (line {self.begin.index})"

    def ended_before(self, other: "Operation") -> bool:
        """Return whether this operation ended before the other one began."""
        return self.end is not None and self.end.index < other.begin.index

    @property
    def last(self) -> Op:
        """Return the line with the most information."""
        return self.begin if self.end is None else self.end


@dataclass(slots=True)
class Read:
    """What one operation read of one key."""

    operation: Operation
    op: Op
    records: list[tuple[int, Value]]


@dataclass(slots=True)
class Index:
    """A whole history by value, key and process.

    `must_commit` has the operations that certainly took effect: those that ended with `ok`, and those of unknown
    outcome of which a committed reader saw a value.
    """

    operations: list[Operation] = field(default_factory=list)
    writer: dict[tuple[Key, Value], Operation] = field(default_factory=dict)
    offsets: dict[Key, dict[Value, set[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    values: dict[Key, dict[int, set[Value]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    reads: dict[Key, list[Read]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[Key, set[Value]] = field(default_factory=lambda: defaultdict(set))
    drained: dict[Key, list[tuple[int, Operation]]] = field(default_factory=lambda: defaultdict(list))
    must_commit: set[int] = field(default_factory=set)

    def took_effect(self, operation: Operation) -> bool:
        """Return whether an operation certainly took effect."""
        return id(operation) in self.must_commit

    def writes(self, operation: Operation) -> list[tuple[Key, Value]]:
        """Return what an operation wrote or tried to write."""
        return [(key, value) for key, _, value in operation.begin.sends()]


def index_history(history: Iterable[Op]) -> Index:
    """Index a history; raises `ValueError` if it is malformed."""
    found = Index(operations=_pairs(history))
    for operation in found.operations:
        for key, value in found.writes(operation):
            if (key, value) in found.writer:
                raise ValueError(f"line {operation.begin.index} sends {value!r} to {key} again: values name records")
            found.writer[key, value] = operation
    for operation in found.operations:
        _take_end(found, operation)
    for operation in found.operations:
        written = found.writes(operation)
        if written and (operation.kind == OK or (operation.kind == INFO and _was_seen(found, written))):
            found.must_commit.add(id(operation))
    return found


def _pairs(history: Iterable[Op]) -> list[Operation]:
    operations: list[Operation] = []
    running: dict[int | str, Operation] = {}
    for op in history:
        if op.function == "nemesis":
            continue
        if op.kind == INVOKE:
            if op.process in running:
                raise ValueError(f"line {op.index}: {op.process} begins an operation before its last one ended")
            running[op.process] = Operation(op)
            operations.append(running[op.process])
        elif op.process not in running:
            raise ValueError(f"line {op.index}: {op.process} ends what it has not begun")
        else:
            running.pop(op.process).end = op
    return operations


def _take_end(found: Index, operation: Operation) -> None:
    end = operation.end
    if end is None:
        return
    for key, offset, value in end.sends():
        if offset is not None:
            _place(found, key, offset, value)
    for key, records in end.polled():
        for offset, value in records:
            _place(found, key, offset, value)
        # Reads of a transaction that failed later still count.
        found.reads[key].append(Read(operation, end, records))
        if end.reads_committed:
            found.seen[key].update(value for _, value in records)
    if end.function == "drained" and end.kind == OK:
        for key, offset in end.value.items():
            found.drained[key].append((offset, operation))


def _place(found: Index, key: Key, offset: int, value: Value) -> None:
    found.offsets[key][value].add(offset)
    found.values[key][offset].add(value)


def _was_seen(found: Index, written: list[tuple[Key, Value]]) -> bool:
    return any(value in found.seen[key] for key, value in written)
