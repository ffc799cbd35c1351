"""The file format of histories: JSON lines, one for the begin and one for the end of each client operation.

    {"i": 17, "t_ns": 5, "p": 3, "type": "ok", "f": "txn", "txn": "t3", "value": [
        ["send", "in-0", [272, 140]], ["poll", {"in-0": [[270, 138]]}], ["offsets", "group", {"in-0": 271}]]}

`p` is the client, which runs one operation after another. `type` is `invoke`, followed by one of `ok`, `fail` (the
operation certainly had no effect) and `info` (the outcome is unknown). Each sent value is unique, so that a value
identifies its record; a key is a topic-partition. `f` is one of

- `txn`: a list of steps that take effect together or not at all: `["send", key, value]` at the begin and
  `["send", key, [offset, value]]` at the end (the offset is null if unknown), `["poll", {key: [[offset, value], ...]}]`
  and `["offsets", group, {key: next offset}]`;
- `send`: the same steps outside of a transaction;
- `poll`: one `poll` step; `isolation` is `read_committed` by default, `rebalanced` is true if the client's position
  may have changed since its previous poll;
- `drained`: `{key: offset}`, the client's position when there is nothing more to read;
- `committed`: `["offsets", group, {key: offset or null}]`, the offsets of a group as read;
- `assign`, `subscribe`, `seek`, `crash`: the client's position may change;
- `nemesis`: a fault, described for human readers.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

INVOKE, OK, FAIL, INFO = "invoke", "ok", "fail", "info"
READ_COMMITTED: Final = "read_committed"
Key = str
Value = int | str


@dataclass(frozen=True, slots=True)
class Op:
    """One line; `kind` is its type, `function` its f."""

    index: int
    time_ns: int
    process: int | str
    kind: str
    function: str
    value: Any = None
    transaction: str | None = None
    isolation: str = READ_COMMITTED
    rebalanced: bool = False
    error: str | None = None

    @property
    def reads_committed(self) -> bool:
        """Return whether aborted and open transactions must be invisible."""
        return self.isolation == READ_COMMITTED

    def steps(self, name: str) -> Iterator[list[Any]]:
        """Return the arguments of each step of this name."""
        if isinstance(self.value, list):
            for step in self.value:
                if isinstance(step, list) and step and step[0] == name:
                    yield step[1:]

    def sends(self) -> Iterator[tuple[Key, int | None, Value]]:
        """Return key, offset (if known) and value of every sent record."""
        for key, sent in self.steps("send"):
            offset, value = sent if isinstance(sent, list) else (None, sent)
            yield key, offset, value

    def polled(self) -> Iterator[tuple[Key, list[tuple[int, Value]]]]:
        """Return what was read of each key, in the order of reading."""
        for (by_key,) in self.steps("poll"):
            for key, records in by_key.items():
                yield key, [(offset, value) for offset, value in records]

    def offsets(self) -> Iterator[tuple[str, Key, int | None]]:
        """Return group, key and offset of each group offset."""
        for group, by_key in self.steps("offsets"):
            for key, offset in by_key.items():
                yield group, key, offset


def to_line(op: Op) -> str:
    """Return the operation as a line."""
    line: dict[str, Any] = {
        "i": op.index,
        "t_ns": op.time_ns,
        "p": op.process,
        "type": op.kind,
        "f": op.function,
        "value": op.value,
    }
    if op.transaction is not None:
        line["txn"] = op.transaction
    if not op.reads_committed:
        line["isolation"] = op.isolation
    if op.rebalanced:
        line["rebalanced"] = True
    if op.error is not None:
        line["err"] = op.error
    return json.dumps(line, separators=(",", ":"))


def from_line(text: str) -> Op:
    """Parse one line; raises `ValueError` if it is malformed."""
    line = json.loads(text)
    try:
        return Op(
            line["i"],
            line["t_ns"],
            line["p"],
            line["type"],
            line["f"],
            line.get("value"),
            line.get("txn"),
            line.get("isolation", READ_COMMITTED),
            line.get("rebalanced", False),
            line.get("err"),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a line of a history: {text[:200]!r}") from error


def write_history(path: Path, ops: Iterable[Op]) -> None:
    """Write a history to a file."""
    path.write_text("".join(f"{to_line(op)}\n" for op in ops), encoding="utf-8")


def read_history(path: Path) -> list[Op]:
    """Read a history from a file."""
    with path.open(encoding="utf-8") as lines:
        return [from_line(line) for line in lines if line.strip()]
