"""Name what a history can show that no log may do."""

from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """Name an anomaly; the names are Adya's and Jepsen's where they have one."""

    INCONSISTENT_OFFSETS = "inconsistent-offsets"  # one offset holds two values
    DUPLICATE = "duplicate"  # one value lies at two offsets
    ABORTED_READ = "G1a"  # a committed reader saw what failed
    OPEN_READ = "open-read"  # a committed reader saw what had not been committed yet
    LOST_WRITE = "lost-write"  # readers passed a committed record without seeing it
    TORN = "torn-transaction"  # readers saw one part of a transaction, and passed the other
    UNSEEN = "unseen"  # a committed record that no reader had seen when nothing more could be read
    POLL_SKIP = "poll-skip"  # a reader passed a record that others saw
    NONMONOTONIC_POLL = "nonmonotonic-poll"  # a reader went back
    NONMONOTONIC_SEND = "nonmonotonic-send"  # a client's later record lies before its earlier one
    PRECOMMITTED_READ = "precommitted-read"  # a transaction read its own record
    WRITE_CYCLE = "G0"  # transactions whose records lie before each other's
    CYCLE = "G1c"  # transactions that read from each other in a circle
    MIXED_CYCLE = "G1c-mixed"  # a circle in which some read from the one before, and others follow it in a log
    CONSUMED_TWICE = "consumed-twice"  # two committed transactions of a group consumed one record
    ABORTED_OFFSET = "aborted-offset"  # a group's offset that only transactions that failed have committed
    LOST_OFFSET = "lost-offset"  # a group's offset is older than one that was committed before
    IMPOSSIBLE_OFFSET = "impossible-offset"  # a group's offset that nobody committed


# Kafka isolates no writes: records of transactions interleave in each log as they come (KIP-98), so that two
# transactions can each lie before the other. For the same reason one that is still open may have written to a log
# before another did, and then read, in a second log, what that one has committed meanwhile: it lies before the one it
# has read from. What readers see of each other must still be free of circles.
ALLOWED_BY_KAFKA: Final = frozenset({Kind.WRITE_CYCLE, Kind.MIXED_CYCLE})


class Anomaly(NamedTuple):
    """Hold one finding: what kind, and in which words."""

    kind: Kind
    story: str
