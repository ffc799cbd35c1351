"""Write and read histories: JSON lines, one for each beginning and each end of an operation of a client.

    {"i": 17, "t_ns": 5, "p": 3, "type": "ok", "f": "txn", "txn": "t3", "value": [
        ["send", "in-0", [272, 140]], ["poll", {"in-0": [[270, 138]]}], ["offsets", "group", {"in-0": 271}]]}

`p` is the client, and does one operation after another. `type` is `invoke`, then one of `ok`, `fail` (it certainly did
not happen) and `info` (nobody knows). What is sent are values that no other record has, so that a value names its
record; a key is a topic-partition. `f` is one of

- `txn`: a list of steps, together or not at all: `["send", key, value]` when it begins and
  `["send", key, [offset, value]]` when it ends (the offset is null where it is not known),
  `["poll", {key: [[offset, value], ...]}]` and `["offsets", group, {key: next offset}]`;
- `send`: the same steps outside of any transaction;
- `poll`: one `poll` step; `isolation` is `read_committed` unless it says otherwise, `rebalanced` is true when the
  client's place in a log may have changed since its poll before;
- `drained`: `{key: offset}`, how far the client has come when no reader can come further;
- `committed`: `["offsets", group, {key: offset or null}]`, what a group's offsets were read to be;
- `assign`, `subscribe`, `seek`, `crash`: the client may read from elsewhere now;
- `nemesis`: what was broken; a story for people.
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
    """Hold one line: `kind` is its type, `function` its f."""

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
        """Say whether aborted and open transactions must not show."""
        return self.isolation == READ_COMMITTED

    def steps(self, name: str) -> Iterator[list[Any]]:
        """Give what follows the name in each of the steps that have it."""
        if isinstance(self.value, list):
            for step in self.value:
                if isinstance(step, list) and step and step[0] == name:
                    yield step[1:]

    def sends(self) -> Iterator[tuple[Key, int | None, Value]]:
        """Give key, offset if known, and value of everything that was sent."""
        for key, sent in self.steps("send"):
            offset, value = sent if isinstance(sent, list) else (None, sent)
            yield key, offset, value

    def polled(self) -> Iterator[tuple[Key, list[tuple[int, Value]]]]:
        """Give what was read of each key, in the order in which it came."""
        for (by_key,) in self.steps("poll"):
            for key, records in by_key.items():
                yield key, [(offset, value) for offset, value in records]

    def offsets(self) -> Iterator[tuple[str, Key, int | None]]:
        """Give group, key and offset of each of a group's offsets."""
        for group, by_key in self.steps("offsets"):
            for key, offset in by_key.items():
                yield group, key, offset


def to_line(op: Op) -> str:
    """Write one line."""
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
    """Read one line; raises `ValueError` for what is none."""
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
