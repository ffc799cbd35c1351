"""The names of transactions, groups and decision keys, each of which can be taken apart again exactly.

A name is the user's prefix followed by parts that never hold a dot, so it is read from its right end and the prefix
may hold anything. That a prefix begins another prefix ("orders", "orders.eu") can therefore never make one query
take another's transaction for its own, which is how Flink's prefix match goes wrong.
"""

import re
from typing import Final, NamedTuple

from broker_core.types import coordinator_partition

DECISION_TOPIC_PARTITIONS: Final = 8
# The record that this key names stands at the beginning of a decision topic which was created by a version of this
# package that places decisions by `decision_partition`. No decision has such a key: it has no slash.
LAYOUT_KEY: Final = b"#layout"

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_ESCAPED: Final = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_DRIVER: Final = "driver"
# Alone, or followed by the name of a write in foreachBatch.
_QUERY_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(/|$)")


class TaskId(NamedTuple):
    """The name of the n-th transaction that one worker process keeps for one run of a query.

    The name of a worker begins with its incarnation and a hyphen, where it has one; see `incarnation`.
    """

    prefix: str
    query: str
    run: str
    worker: str
    number: int

    def __str__(self) -> str:
        parts = (escape(self.query), escape(self.run), escape(self.worker), str(self.number))
        return ".".join((self.prefix, *parts))

    @property
    def incarnation(self) -> str | None:
        """Name the incarnation that the worker belongs to."""
        incarnation, hyphen, _ = self.worker.partition("-")
        return incarnation if hyphen else None


def parse_task_id(text: str) -> TaskId | None:
    """Take a transactional id apart, or return None when it is not one that `TaskId` writes."""
    parts = text.rsplit(".", 4)
    if len(parts) != 5 or not parts[0] or not _NUMBER.fullmatch(parts[4]):
        return None
    names = [unescape(part) for part in parts[1:4]]
    if any(name is None for name in names):
        return None
    query, run, worker = (name for name in names if name is not None)
    return TaskId(parts[0], query, run, worker, int(parts[4]))


def driver_id(prefix: str, query: str) -> str:
    """Name the transactional id under which the driver of a query writes its decisions.

    It holds no run: the InitProducerId of a new driver must reach the id of the old one to fence it.
    """
    return f"{prefix}.{escape(query)}.{_DRIVER}"


def group_id(prefix: str, query: str) -> str:
    """Name the consumer group whose offset points to the newest decision of a query."""
    return f"{prefix}.{escape(query)}"


def decision_key(prefix: str, query: str, part: int = 0) -> bytes:
    """Name a decision in the compacted topic; each part after the first has a key of its own.

    Under one key they would be compacted into one another. No escaped name holds the `#`, so no part is taken for
    another query's decision.
    """
    suffix = f"#{part}" if part else ""
    return f"{prefix}/{escape(query)}{suffix}".encode()


def is_query_id(query: str) -> bool:
    """Tell the name of a Spark query, or of a write in its foreachBatch, from that of a job."""
    return _QUERY_ID.match(query) is not None


def decision_partition(query: str, count: int) -> int:
    """Choose the partition of a query's decisions.

    It depends on the query alone, so that a changed prefix changes nothing, and all writes in foreachBatch of one query
    are together. Partitions that the topic was given later are not used: a place must not change as the topic grows.
    """
    name = query.partition("/")[0] if is_query_id(query) else query
    return coordinator_partition(name, min(count, DECISION_TOPIC_PARTITIONS))


def former_partition(prefix: str, query: str, count: int) -> int:
    """Give the partition in which earlier versions of this package have put a query's decisions."""
    return coordinator_partition(f"{prefix}/{query}", count)


def is_decision_of(key: bytes, prefix: str, query: str) -> bool:
    """Tell whether a key is that of the first part of a query's decision.

    Spark's query ids are unique, so a query is known by its id under any prefix. The name of a job is its user's, and
    another user's job with another prefix may have the same.
    """
    found_prefix, _, name = key.rpartition(b"/")
    return name == escape(query).encode() and (found_prefix == prefix.encode() or _QUERY_ID.match(query) is not None)


def is_job_of(key: bytes, prefix: str) -> bool:
    """Tell whether a key is that of the first part of a job's decision under a prefix."""
    found_prefix, _, name = key.rpartition(b"/")
    is_job = not is_query_id(name.decode(errors="replace"))
    return found_prefix == prefix.encode() and is_job and is_head_key(key)


def is_write_of(key: bytes, query: str) -> bool:
    """Tell whether a key is that of any decision of a Spark query: as a stream, or of a write in foreachBatch."""
    if _QUERY_ID.match(query) is None:
        return False
    name = unescape(key.rpartition(b"/")[2].partition(b"#")[0].decode())
    return name is not None and name.partition("/")[0] == query.partition("/")[0]


def audit_key(prefix: str, query: str, at_ms: int, token: str) -> bytes:
    """Name the record of one intervention; no two share a key, and none is taken for a decision: `!` is escaped."""
    return audit_key_prefix(prefix, query) + f"{at_ms}-{token}".encode()


def audit_key_prefix(prefix: str, query: str) -> bytes:
    """Give what the keys of all interventions in one query begin with."""
    return f"{prefix}/{escape(query)}!".encode()


def is_audit_key(key: bytes) -> bool:
    """Tell the key of an intervention from that of a decision."""
    return b"!" in key.rpartition(b"/")[2]


def is_head_key(key: bytes) -> bool:
    """Tell the key of a decision's first part from all others."""
    return not {b"!", b"#"} & {bytes([byte]) for byte in key.rpartition(b"/")[2]}


def id_prefix(prefix: str, query: str) -> str:
    """Give what all task ids of a query begin with; it narrows a listing, `parse_task_id` decides."""
    return f"{prefix}.{escape(query)}."


def id_pattern(beginning: str) -> str:
    """Write an RE2 expression for ids with a beginning; punctuation is escaped, all else stands for itself."""
    return "".join(f"\\{c}" if c.isascii() and not c.isalnum() else c for c in beginning) + ".*"


def escape(name: str) -> str:
    """Write a name without dots, slashes or anything else but letters, digits, `_`, `-` and `%XX`."""
    return "".join(c if _PLAIN.fullmatch(c) else "".join(f"%{byte:02X}" for byte in c.encode()) for c in name)


def unescape(text: str) -> str | None:
    """Undo `escape`; None for text that `escape` never writes, so that each name has one spelling only."""
    if not _ESCAPED.fullmatch(text):
        return None
    raw = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return None
    return name if escape(name) == text else None
