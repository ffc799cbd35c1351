"""The anomalies that a history can show."""

from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """A kind of anomaly, named as by Adya or Jepsen where they have a name."""

    INCONSISTENT_OFFSETS = "inconsistent-offsets"  # one offset has two values
    DUPLICATE = "duplicate"  # one value has two offsets
    ABORTED_READ = "G1a"  # a committed reader saw a record of a failed operation
    OPEN_READ = "open-read"  # a committed reader saw a record before its commit
    LOST_WRITE = "lost-write"  # readers passed a committed record without seeing it
    TORN = "torn-transaction"  # readers saw one part of a transaction and passed the other
    UNSEEN = "unseen"  # no reader saw a committed record before the end of the log
    POLL_SKIP = "poll-skip"  # a reader passed a record that others saw
    NONMONOTONIC_POLL = "nonmonotonic-poll"  # a reader went back
    NONMONOTONIC_SEND = "nonmonotonic-send"  # a client's later record precedes its earlier one
    PRECOMMITTED_READ = "precommitted-read"  # a transaction read its own record
    WRITE_CYCLE = "G0"  # each of two transactions has a record before the other's
    CYCLE = "G1c"  # transactions that read from each other in a cycle
    MIXED_CYCLE = "G1c-mixed"  # a cycle of reads and of the order in a log
    CONSUMED_TWICE = "consumed-twice"  # two committed transactions of a group consumed one record
    ABORTED_OFFSET = "aborted-offset"  # a group's offset that only failed transactions committed
    LOST_OFFSET = "lost-offset"  # a group's offset is older than one that was committed before
    IMPOSSIBLE_OFFSET = "impossible-offset"  # a group's offset that no transaction committed


# Kafka does not isolate writes: records of transactions interleave in each log in the order of arrival (KIP-98), so
# each of two transactions can have a record before the other's. For the same reason, an open transaction may write to
# a log before another one does, and then read from a second log what that one has committed meanwhile: it precedes the
# transaction it has read from. Reads alone must still be free of cycles.
ALLOWED_BY_KAFKA: Final = frozenset({Kind.WRITE_CYCLE, Kind.MIXED_CYCLE})


class Anomaly(NamedTuple):
    """One finding: its kind and its description."""

    kind: Kind
    story: str
