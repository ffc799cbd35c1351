"""The names of transactions, groups and decision keys, each of which can be parsed exactly.

A name is the user's prefix followed by parts that never contain a dot, so it is parsed from the right and the prefix
may contain anything. If one prefix begins with another ("orders", "orders.eu"), no query mistakes another's transaction
for its own.
"""

import re
from typing import Final, NamedTuple

from broker_core.types import coordinator_partition

DECISION_TOPIC_PARTITIONS: Final = 8
# The record with this key is at the beginning of a decision topic that the sink has created: it never had fewer
# partitions, so `decision_partition` has always had the same result. No decision has such a key: it has no slash.
LAYOUT_KEY: Final = b"#layout"

_SPECIAL: Final = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED: Final = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_DRIVER: Final = "driver"
# Alone, or followed by the name of a write in foreachBatch.
_UUID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_QUERY_ID: Final = re.compile(f"{_UUID}(/|$)")
# The name of a job's run; a query's run has a UUID.
_JOB_RUN: Final = re.compile(r"[0-9a-f]{16}")
_RUN: Final = re.compile(f"{_UUID}|{_JOB_RUN.pattern}")


class TaskId(NamedTuple):
    """The name of the n-th transaction that one worker process keeps for one run of a query.

    The name of a worker begins with its incarnation, if it has one, and a hyphen; see `incarnation`.
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
        incarnation, hyphen, _ = self.worker.partition("-")
        return incarnation if hyphen else None


def parse_task_id(text: str) -> TaskId | None:
    parts = text.rsplit(".", 4)
    if len(parts) != 5 or not parts[0] or not _NUMBER.fullmatch(parts[4]):
        return None
    names = [unescape(part) for part in parts[1:4]]
    if any(name is None for name in names):
        return None
    query, run, worker = (name for name in names if name is not None)
    return TaskId(parts[0], query, run, worker, int(parts[4]))


def sinks_task(transactional_id: str) -> TaskId | None:
    """Parse a task id whose run has a name that the sink gives.

    Ids of other applications have parts between dots too, such as `tx-group.v1.eu.orders.3` of Spring.
    """
    task = parse_task_id(transactional_id)
    return task if task is not None and _RUN.fullmatch(task.run) else None


def driver_id(prefix: str, query: str) -> str:
    """Return the transactional id under which the driver of a query writes its decisions.

    It contains no run: the InitProducerId of a new driver must use the id of the old one to fence it.
    """
    return f"{prefix}.{escape(query)}.{_DRIVER}"


def is_sinks_driver(transactional_id: str) -> bool:
    """Return whether an id is a driver's, of a query or of a job without a jobId: that can be any name."""
    prefix, _, escaped = transactional_id.removesuffix(f".{_DRIVER}").rpartition(".")
    query = unescape(escaped) if transactional_id.endswith(f".{_DRIVER}") and prefix else None
    return query is not None and _QUERY_ID.match(query.removeprefix("job-")) is not None


def group_id(prefix: str, query: str) -> str:
    return f"{prefix}.{escape(query)}"


def decision_key(prefix: str, query: str, part: int = 0) -> bytes:
    """Return the key of a decision in the compacted topic, or of a part after the first: no escaped name has a `#`."""
    suffix = f"#{part}" if part else ""
    return f"{prefix}/{escape(query)}{suffix}".encode()


def decision_name(key: bytes) -> tuple[str, str]:
    """Return the prefix and the query of a decision's key, or of a part's."""
    prefix, _, name = key.decode(errors="replace").rpartition("/")
    escaped = name.partition("#")[0]
    return prefix, unescape(escaped) or escaped


def is_query_id(query: str, run: str = "") -> bool:
    """Return whether a name belongs to a Spark query, or to a write in its foreachBatch, and not to a job.

    A jobId may be a UUID as well; then only the name of a run tells.
    """
    return _QUERY_ID.match(query) is not None and _JOB_RUN.fullmatch(run) is None


def run_again(query: str, run: str, how: str = "") -> str:
    """Return the words that advise to run a query, or a job, again; for a job without a jobId this gives it one."""
    return f"restart the query{how}" if is_query_id(query, run) else f"run the job again{how}, with jobId={query}"


def decision_partition(query: str, count: int) -> int:
    """Return the partition of a query's decisions, and of all its foreachBatch writes, under any prefix.

    Partitions that are added to the topic later are not used: the place must not change as the topic grows.
    """
    return coordinator_partition(_all_writes(query), min(count, DECISION_TOPIC_PARTITIONS))


def is_decision_of(key: bytes, query: str) -> bool:
    return key.rpartition(b"/")[2].partition(b"#")[0] == escape(query).encode()


def is_head_under(key: bytes, prefix: str) -> bool:
    return key.rpartition(b"/")[0] == prefix.encode() and is_head_key(key)


def is_write_of(key: bytes, query: str) -> bool:
    """Return whether a key belongs to any decision of a Spark query: as a stream, or of a write in foreachBatch."""
    return _QUERY_ID.match(query) is not None and is_same_query(decision_name(key)[1], query)


def audit_key(prefix: str, query: str, at_ms: int, token: str) -> bytes:
    """Return the key of the record of one intervention: unique, and never a decision's, as `!` is escaped."""
    return audit_key_prefix(prefix, query) + f"{at_ms}-{token}".encode()


def audit_key_prefix(prefix: str, query: str) -> bytes:
    return f"{prefix}/{escape(query)}!".encode()


def is_audit_key(key: bytes) -> bool:
    return b"!" in key.rpartition(b"/")[2]


def is_head_key(key: bytes) -> bool:
    return not {b"!", b"#"} & {bytes([byte]) for byte in key.rpartition(b"/")[2]}


def id_prefix(prefix: str, query: str) -> str:
    """Return the beginning of all task ids of a query; it narrows a listing, `parse_task_id` decides."""
    return f"{prefix}.{escape(query)}."


def id_pattern(beginning: str) -> str:
    return _literally(beginning) + ".*"


def query_pattern(query: str) -> str:
    """Return an RE2 expression that matches the task ids of all writes of a query, under any prefix.

    It narrows a listing; `parse_task_id` and `is_same_query` decide.
    """
    return f".*{_literally(f'.{escape(_all_writes(query))}')}.*"


def is_same_query(query: str, other: str) -> bool:
    """Return whether two names belong to one Spark query, as a stream or as writes in foreachBatch, or to one job."""
    return _all_writes(query) == _all_writes(other)


def _all_writes(query: str) -> str:
    return query.partition("/")[0] if _QUERY_ID.match(query) else query


def _literally(text: str) -> str:
    return "".join(f"\\{c}" if c.isascii() and not c.isalnum() else c for c in text)


def escape(name: str) -> str:
    """Return a name with everything escaped but letters, digits, `_`, `-` and `%XX`."""
    return _SPECIAL.sub(lambda found: b"%%%02X" % ord(found[0]), name.encode()).decode()


def unescape(text: str) -> str | None:
    """Reverse `escape`; return None for text that `escape` never writes, so each name has only one spelling."""
    if not _ESCAPED.fullmatch(text):
        return None
    raw = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return None
    return name if escape(name) == text else None
