"""Topics as an independent reader sees them: confluent-kafka with read_committed, and no code of this project.

What was written, decided and read also becomes a history, for the checker of `tests/history`.
"""

import itertools
import re
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from broker_core.types import counted
from tests.crash.decided import Verdicts, Written, name, story, transactions, verdicts
from tests.crash.feed import Feed
from tests.support.clients import LOG_NOTHING, metadata_of
from tests.support.history.checker import check
from tests.support.history.format import INVOKE, OK, Op
from tests.support.spark_eos.sink_topic import open_transactions
from tests.support.waiting import wait_until

READ_DEADLINE_S = 60
SETTLE_DEADLINE_S = 15
Records = Mapping[int, list[tuple[int, str]]]
_LINE = re.compile(r"(\S+)\.(\d+)\.(\d+) ")


class Query(NamedTuple):
    """What a query must have written to its topic, where its decisions are, and what it read, if not files."""

    expected: Counter[str]
    decision_topic: str
    feed: Feed | None = None
    # The last input of each micro-batch, if not each has one.
    last_inputs: Sequence[int] = ()


def judge(address: str, queries: Mapping[str, Query], partition_count: int) -> list[str]:
    """Return the problems of each topic, none if all is well."""
    wrong = _unstable(address, list(queries), partition_count)
    found = read_placed(address, [topic for topic in queries if topic not in wrong], partition_count)
    written = transactions(address, found, partition_count)
    ends = verdicts(read_decisions(address, {query.decision_topic for query in queries.values()}))
    for topic, by_partition in found.items():
        query = queries[topic]
        seen = Counter(line for records in by_partition.values() for _, line in records)
        lost, more = query.expected - seen, seen - query.expected
        if lost or more:
            wrong[topic] = (
                f"{counted(lost.total(), 'row')} lost {_some(lost)}, {more.total()} too many {_some(more)}, "
                f"of {query.expected.total()}"
            )
        elif any(not in_order([line for _, line in each], query.last_inputs) for each in by_partition.values()):
            wrong[topic] = "a partition shows an earlier micro-batch after a later one"
        elif anomalies := check(history(topic, written[topic], ends, by_partition, query.feed)):
            count = counted(len(anomalies), "anomaly", "anomalies")
            wrong[topic] = f"{count}, the first: {anomalies[0].kind}: {anomalies[0].story}"
    return [f"{topic}: {problem}" for topic, problem in wrong.items()]


def read_committed(address: str, topics: Collection[str], partition_count: int) -> dict[str, dict[int, list[str]]]:
    """Read all committed values of topics, partition by partition."""
    return {
        topic: {number: [line for _, line in records] for number, records in by_partition.items()}
        for topic, by_partition in read_placed(address, topics, partition_count).items()
    }


def history(topic: str, written: Written, ends: Verdicts, read: Records, feed: Feed | None = None) -> list[Op]:
    """Return a history: the transactions that wrote a topic, how each had to end, and what one reader has seen.

    With a feed, the history also has what the query read, in one transaction for each micro-batch, according to its
    rows.
    """
    poll = [
        [
            "poll",
            {
                f"{topic}-{number}": [[offset, name(line, offset)] for offset, line in records]
                for number, records in read.items()
            },
        ]
    ]
    last: dict[str, int] = {}
    for key, offset, _ in itertools.chain.from_iterable(written.values()):
        last[key] = max(last.get(key, 0), offset + 1)
    steps = [*story(written, ends)]
    if feed is not None:
        steps += feed.story()
        steps += feed.consumed([line for records in read.values() for _, line in records])
    steps += [
        ("reader", INVOKE, "poll", None, None),
        ("reader", OK, "poll", poll, None),
        ("reader", INVOKE, "drained", None, None),
        ("reader", OK, "drained", last, None),
    ]
    return [
        Op(number, number, process, kind, function, value, transaction)
        for number, (process, kind, function, value, transaction) in enumerate(steps)
    ]


def read_decisions(address: str, topics: Collection[str]) -> list[str]:
    """Read all decisions of decision topics, closed ones included."""
    known = metadata_of(address).topics
    found = []
    for topic in topics & known.keys():
        for records in read_placed(address, [topic], len(known[topic].partitions))[topic].values():
            # A record without a value closes a decision: the transactions were decided all the same.
            found += [value for _, value in records if value]
    return found


def read_placed(
    address: str, topics: Collection[str], partition_count: int
) -> dict[str, dict[int, list[tuple[int, str]]]]:
    """Read all committed values of topics with their offsets, partition by partition."""
    settings = {
        "bootstrap.servers": address,
        "group.id": f"judge-{uuid.uuid4().hex}",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    places = {(topic, number) for topic in topics for number in range(partition_count)}
    found: dict[str, dict[int, list[tuple[int, str]]]] = {topic: {} for topic in topics}
    if not places:
        return found
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(*place, 0) for place in places])

        def finished() -> bool:
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                place = message.topic() or "", message.partition() or 0
                if error is None:
                    row = message.offset() or 0, (message.value() or b"").decode()
                    found[place[0]].setdefault(place[1], []).append(row)
                    places.add(place)
                elif error.code() == KafkaError._PARTITION_EOF:
                    places.discard(place)
            return not places

        wait_until(finished, f"the ends of {len(topics)} topics are read", deadline_s=READ_DEADLINE_S, pause_s=0)
    return found


def _unstable(address: str, topics: list[str], partition_count: int) -> dict[str, str]:
    """Return the topics whose last stable offset is not at the end, or that have open transactions.

    Markers are written a moment after the response to EndTxn, so this waits, but for less than a transaction timeout.
    """
    admin = AdminClient({"bootstrap.servers": address, "log_level": LOG_NOTHING})
    wrong: dict[str, str] = {}

    def settled() -> bool:
        wrong.clear()
        ends = [_ends(admin, topics, partition_count, level) for level in IsolationLevel]
        for topic, number in ends[0]:
            if ends[0][topic, number] != ends[1][topic, number]:
                wrong[topic] = f"the last stable offset of partition {number} is below the log end offset"
        for transactional_id in open_transactions(address, ""):
            for topic in topics:
                if transactional_id.startswith(f"{topic}."):
                    wrong[topic] = f"transaction {transactional_id} stays open"
        return not wrong

    try:
        wait_until(settled, "all is stable", deadline_s=SETTLE_DEADLINE_S, pause_s=0.2)
    except AssertionError:
        return dict(wrong)
    return {}


def _ends(
    admin: AdminClient, topics: list[str], partition_count: int, level: IsolationLevel
) -> dict[tuple[str, int], int]:
    asked = {TopicPartition(topic, n): OffsetSpec.latest() for topic in topics for n in range(partition_count)}
    answers = admin.list_offsets(asked, isolation_level=level, request_timeout=30)
    return {(place.topic, place.partition): answer.result().offset for place, answer in answers.items()}


def in_order(lines: Sequence[str], last_inputs: Sequence[int]) -> bool:
    """Return whether rows are in the order of their micro-batches; inputs of one may alternate."""
    inputs = [int(found[2]) for line in lines if (found := _LINE.match(line))]
    numbers = [bisect_left(last_inputs, each) for each in inputs] if last_inputs else inputs
    return len(numbers) == len(lines) and numbers == sorted(numbers)


def _some(lines: Counter[str]) -> list[str]:
    return [line.split(" ")[0] for line in list(lines)[:3]]
