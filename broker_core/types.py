"""The types and constants that all packages share, and the arithmetic of sequences and coordinator hashing.

Also `counted`, for the messages of both packages, and checks of arguments whose mistakes would show up far from the
call.
"""

import inspect
import math
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from numbers import Integral, Real
from typing import Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
# The leader of a partition that has none, as Metadata names it.
NO_LEADER: Final = -1
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
LAST_PORT: Final = 65_535
MAX_SEQUENCE: Final = INT_MAX
# 32767 is kept for fencing and markers; an epoch from here on is exhausted (rule A.1/3).
LAST_CLIENT_EPOCH: Final = 32766
FENCING_EPOCH: Final = 32767
NEVER_TIMES_OUT_MS: Final = 2**31 - 1
# The maximum length of a string, on the wire and in records; Kafka refuses longer ones in every encoding.
LONGEST_STRING_BYTES: Final = 32_767

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC})

Buffer: TypeAlias = bytes | bytearray | memoryview
# One frame for a client, in parts, so that records are not copied into it.
Frame: TypeAlias = Sequence[Buffer]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdentity(NamedTuple):
    """One incarnation of a producer: the pair by which Kafka fences (KIP-98)."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id} (epoch {self.producer_epoch})"


class TransactionEnd(NamedTuple):
    """What an end marker says: whose transaction ends, how, and by which coordinator and version of transactions."""

    producer: ProducerIdentity
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class IsolationLevel(IntEnum):
    """The isolation level of a reader (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class TransactionState(IntEnum):
    """The states of a transactional id, numbered as `__transaction_state` does (KIP-98, KIP-890)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Return the name that clients see, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")


class TimestampType(IntEnum):
    """The clock of a record's timestamp: the producer's or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class AbortedTransaction(NamedTuple):
    """An aborted transaction in a Fetch answer: `producer_id`'s records from `first_offset` on."""

    producer_id: int
    first_offset: int


def next_sequence(sequence: int, increment: int = 1) -> int:
    """Add to a batch sequence, wrapping from 2**31 - 1 to 0 as Kafka does."""
    return (sequence + increment) % (MAX_SEQUENCE + 1)


def previous_sequence(sequence: int, decrement: int) -> int:
    """Subtract from a batch sequence, wrapping from 0 to 2**31 - 1."""
    return (sequence - decrement) % (MAX_SEQUENCE + 1)


def java_string_hash(text: str) -> int:
    """Hash as Java's `String.hashCode`: over UTF-16 code units, 32-bit signed wrap."""
    hashed = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(data), 2):
        hashed = (31 * hashed + (data[i] << 8) + data[i + 1]) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed


# A transaction asks eight times, and the hash is a loop in Python.
@lru_cache(maxsize=16_384)
def coordinator_partition(key: str, partition_count: int) -> int:
    """Find the state partition of a transactional id or group id (rules B.2)."""
    hashed = java_string_hash(key)
    return (0 if hashed == -(2**31) else abs(hashed)) % partition_count


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as `1 offset` or `2 offsets`."""
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def check_text(name: str, value: object) -> None:
    """Raise TypeError for an argument that is not text."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r}; expected text as str")


def check_whole(name: str, value: object) -> int:
    """Return an argument as an int; raise TypeError if it is not a whole number; NumPy's are.

    >>> check_whole("partition", 3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}; expected a whole number as int")
    return int(value)


def check_number(name: str, value: object) -> None:
    """Raise TypeError for an argument that is not a number, and ValueError for an infinite one or NaN."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r}; expected a number as int or float")
    if not isinstance(value, Integral) and not math.isfinite(value):
        raise ValueError(f"{name}={value!r}; expected a finite number")


def at_once(result: T, message: str) -> T:
    """Return a result that is there; raise TypeError with the message for one that has to be awaited."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(message)
    return result


def address_text(host: str, port: int) -> str:
    """Return host and port as one text, with an IPv6 address in brackets.

    >>> address_text("::1", 9092)
    '[::1]:9092'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
