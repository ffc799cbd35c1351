"""The partitions that a source reads and its start and end positions, as in the options.

`source.planner` resolves them to offsets later.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker_core.types import INT_MAX, LONG_MAX, TopicPartition
from spark_eos.errors import OptionError
from spark_eos.options.catalog import DECLARED

# The values of Kafka's ListOffsets for the two ends of a log; Spark's JSON uses the same numbers.
LATEST: Final = -1
EARLIEST: Final = -2

_DECISIONS: Final = DECLARED["decisionTopic"].default
_OFFSETS: Final = {
    "startingOffsets": """{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}""",
    "endingOffsets": """{"topicA":{"0":23,"1":-1},"topicB":{"0":7}}""",
}
_TIMES: Final = """{"topicA":{"0":1700000000000,"1":1700000000000}}"""
_PARTITION: Final = re.compile("[0-9]{1,15}")
# Of options with offsets: the class of Spark's error, and the numbers that stand for an end of the log.
_MISMATCHES: Final = {
    "startingOffsets": (
        "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
        ". Use -2 for earliest and, in a stream, -1 for latest",
    ),
    "endingOffsets": ("KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED", ". Use -1 for latest"),
}
_EXPECTED_PARTITIONS: Final = """Expected e.g. {"topicA":[0,1],"topicB":[0,1]}"""

# A set of characters in a regular expression, and its parts. Python warns of some of the special ones, once for each
# process, and of a set inside of another only at its start. A set without an end is found too: if each of many brackets
# were tried up to the end, the time would be quadratic.
_SET: Final = re.compile(r"\\.|\[\^?\]?(?P<content>(?:\\.?|[^\]\\])*+)(?:(?P<end>\])|\Z)", re.DOTALL)
_SET_PART: Final = re.compile(r"\\.|(?P<special>\[|&&|\|\||--|~~)", re.DOTALL)
_SPECIAL: Final = {
    "[": "nested set",
    "&&": "set intersection",
    "||": "set union",
    "--": "set difference",
    "~~": "set symmetric difference",
}


@dataclass(frozen=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics, including those added later."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All partitions of all topics in whose names the pattern is found, including topics created later.

    Decisions of the sink follow each micro-batch: a query that read them would never run out of records.
    """

    pattern: str

    def matches(self, topic: str) -> bool:
        return topic != _DECISIONS and re.search(self.pattern, topic) is not None


Subscription = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True)
class Edge:
    """One end of every partition: `LATEST` or `EARLIEST`."""

    offset: int


@dataclass(frozen=True)
class Offsets:
    """An offset for each partition; `LATEST` and `EARLIEST` are allowed as offsets."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Timestamp:
    """The first record of each partition that is not older than one time."""

    timestamp_ms: int


@dataclass(frozen=True)
class Timestamps:
    """The first record that is not older than a time given for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]


Position = Edge | Offsets | Timestamp | Timestamps


def is_latest(position: Position, topic_partition: TopicPartition) -> bool:
    if isinstance(position, Edge):
        return position.offset == LATEST
    return isinstance(position, Offsets) and position.offsets[topic_partition] == LATEST


def refuse_mismatch(given: Collection[TopicPartition], assigned: Collection[TopicPartition], option: str) -> None:
    """Raise unless an option has exactly the partitions that are read."""
    given, assigned = set(given), set(assigned)
    if given == assigned:
        return
    lacking = ", ".join(map(str, sorted(assigned - given))) or "none"
    extra = ", ".join(map(str, sorted(given - assigned))) or "none"
    error_class, numbers = _MISMATCHES.get(option, ("KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED", ""))
    raise OptionError(
        f"[{error_class}] If {option} contains single partitions, you must specify all TopicPartitions{numbers}",
        checked=f"Read but not given: {lacking}; given but not read: {extra}",
        remedy=f"Correct option '{option}'",
    )


def parse_assign(text: str) -> Assign:
    """Parse `{"topic":[0,1]}`."""
    if not text.strip().startswith("{"):
        raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{text}'")
    expected = OptionError(f"{_EXPECTED_PARTITIONS}, got {text}", remedy="Correct option 'assign'")
    partitions: set[TopicPartition] = set()
    for topic, numbers in _json_object("assign", text, expected).items():
        if not isinstance(numbers, list) or not all(_is_partition(number) for number in numbers):
            raise expected
        partitions.update(TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{text}'")
    return Assign(tuple(sorted(partitions)))


def parse_subscribe(text: str) -> Subscribe:
    topics = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not topics:
        raise OptionError(f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'")
    return Subscribe(topics)


def parse_pattern(text: str) -> SubscribePattern:
    """Parse a regular expression that is searched in topic names, as Spark's own source does."""
    # As Spark does: no topic has a space in its name.
    text = text.strip()
    if not text:
        raise OptionError(f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'")
    nested = _nested_set(text)
    if nested:
        raise OptionError(
            f"Option 'subscribePattern' would match other topics than in Java's syntax: {nested}",
            checked=f"The pattern is '{text}'; the option uses Python's syntax, without sets inside of sets",
            remedy="Write it without a nested set, such as [ac-z] for [a-z&&[^b]], or escape the characters",
        )
    try:
        re.compile(text)
    # Python raises the other two for a repetition beyond 2^32 and for very many brackets.
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionError(
            f"Option 'subscribePattern' is not a regular expression: {error}",
            checked=f"The pattern is '{text}'",
            remedy="The option uses Python's syntax, which differs from Java's only in rare constructs",
        ) from error
    return SubscribePattern(text)


def _nested_set(pattern: str) -> str | None:
    """Return where a set of characters contains another one or an operation, which Python takes literally."""
    for each in _SET.finditer(pattern):
        if each["content"] is not None and not each["end"]:
            # `re.compile` says where the set begins.
            return None
        for part in _SET_PART.finditer(each["content"] or ""):
            if part["special"]:
                return f"Possible {_SPECIAL[part['special']]} at position {each.start('content') + part.start()}"
    return None


def parse_offsets(option: str, text: str) -> Offsets:
    """Parse Spark's offset JSON; offsets are >= 0, or -1 for latest, -2 for earliest."""
    offsets = _partition_numbers(option, text)
    for topic_partition, offset in offsets.items():
        if offset < EARLIEST:
            raise OptionError(
                f"Expected e.g. {_OFFSETS[option]}, got {text}",
                checked=f"In option '{option}', {topic_partition} has {offset}",
            )
    return Offsets(offsets)


def parse_timestamps(option: str, text: str) -> Timestamps:
    """Parse the same JSON with times in milliseconds since 1970 instead of offsets."""
    timestamps = _partition_numbers(option, text)
    for topic_partition, timestamp_ms in timestamps.items():
        if timestamp_ms < 0:
            raise OptionError(f"Option '{option}' has the negative time {timestamp_ms} for {topic_partition}")
    return Timestamps(timestamps)


def parse_timestamp(option: str, text: str) -> Timestamp:
    try:
        timestamp_ms = int(text.strip())
    except ValueError:
        timestamp_ms = -1
    if not 0 <= timestamp_ms <= LONG_MAX:
        raise OptionError(
            f"Expected a single long value, got {text}",
            remedy=f"Set option '{option}' to a time in milliseconds since 1970-01-01 UTC",
        )
    return Timestamp(timestamp_ms)


def _partition_numbers(option: str, text: str) -> dict[TopicPartition, int]:
    example = _OFFSETS.get(option, _TIMES)
    expected = OptionError(f"Expected e.g. {example}, got {text}", remedy=f"Correct option '{option}'")
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(option, text, expected).items():
        if not isinstance(partitions, dict):
            raise expected
        for partition, number in partitions.items():
            place = int(partition) if _PARTITION.fullmatch(partition) else -1
            if not _is_partition(place) or not isinstance(number, int) or isinstance(number, bool):
                raise expected
            if number > LONG_MAX:
                raise OptionError(
                    f"Option '{option}' has {number} for {topic}-{partition}", remedy=f"Give a number up to {LONG_MAX}"
                )
            if numbers.setdefault(TopicPartition(topic, place), number) != number:
                raise _twice(option, f"{topic}-{place}", text)
    return numbers


def _json_object(option: str, text: str, expected: OptionError) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=lambda pairs: _named_once(option, pairs, text))
    except OptionError:
        raise
    except (ValueError, RecursionError):
        raise expected from None
    if not isinstance(parsed, dict):
        raise expected
    return parsed


def _named_once(option: str, pairs: Sequence[tuple[str, Any]], text: str) -> dict[str, Any]:
    """Return the pairs of a JSON object; refuse a second value for a name, which would take the place of the first."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _twice(option, name, text)
        found[name] = value
    return found


def _twice(option: str, name: str, text: str) -> OptionError:
    return OptionError(
        f"Option '{option}' has '{name}' twice: {text}",
        remedy="Name each topic and each partition once: only the last would count",
    )


def _is_partition(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= INT_MAX
