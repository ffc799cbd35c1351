"""The history of a world's clients, in the format of `tests.history`."""

from typing import Any, Final

from tests.support.history.format import Op

ASSIGN, TXN, POLL, DRAINED = "assign", "txn", "poll", "drained"
COMMITTED, NEMESIS = "committed", "nemesis"
READ_UNCOMMITTED: Final = "read_uncommitted"


class History:
    """The lines of one world's history."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def note(self, time_ns: int, process: str, kind: str, function: str, value: Any = None, **details: Any) -> Op:
        """Append one line."""
        op = Op(len(self.ops), time_ns, process, kind, function, value, **details)
        self.ops.append(op)
        return op


def key_of(topic: str, partition: int) -> str:
    """Name a partition as histories do."""
    return f"{topic}-{partition}"
