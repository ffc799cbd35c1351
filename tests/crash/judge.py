"""Look at topics as an independent reader does: confluent-kafka with read_committed, and nothing of ours.

What was written and what was read is also told as a history, for the checker of `tests/history`.
"""

import re
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import closing

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.history.checker import check
from tests.history.format import INVOKE, OK, Op
from tests.spark_eos.sink_topic import open_transactions
from tests.support.waiting import wait_until

READ_DEADLINE_S = 60
SETTLE_DEADLINE_S = 15
Records = Mapping[int, list[tuple[int, str]]]
_LINE = re.compile(r"(\S+)\.(\d+)\.(\d+) ")


def judge(address: str, expected: Mapping[str, Counter[str]], partition_count: int) -> list[str]:
    """Say what is wrong with each topic; nothing is what must come back."""
    wrong = _unstable(address, list(expected), partition_count)
    found = _read(address, [topic for topic in expected if topic not in wrong], partition_count)
    for topic, by_partition in found.items():
        seen = Counter(line for records in by_partition.values() for _, line in records)
        lost, more = expected[topic] - seen, seen - expected[topic]
        if lost or more:
            wrong[topic] = (f"{lost.total()} rows lost {_some(lost)}, {more.total()} too many {_some(more)}, "
                            f"of {expected[topic].total()}")
        elif any(not _in_order([line for _, line in records]) for records in by_partition.values()):
            wrong[topic] = "a partition shows an earlier micro-batch after a later one"
        elif anomalies := check(history(topic, expected[topic], by_partition)):
            wrong[topic] = f"{len(anomalies)} anomalies, the first: {anomalies[0].story}"
    return [f"{topic}: {problem}" for topic, problem in wrong.items()]


def read_committed(
    address: str, topics: Collection[str], partition_count: int
) -> dict[str, dict[int, list[str]]]:
    """Read all committed values of topics, partition by partition."""
    return {
        topic: {number: [line for _, line in records] for number, records in by_partition.items()}
        for topic, by_partition in _read(address, topics, partition_count).items()
    }


def history(topic: str, written: Collection[str], read: Records) -> list[Op]:
    """Tell how one writer wrote all rows, and one reader has read all there is.

    Where a row was to go nobody knows but the sink; one that was not found is told as sent to nowhere.
    """
    places = {line: f"{topic}-{number}" for number, records in read.items() for _, line in records}
    nowhere = f"{topic}-nowhere"
    rows = [(places.get(line, nowhere), line) for line in written]
    poll = [["poll", {f"{topic}-{number}": [list(each) for each in records] for number, records in read.items()}]]
    ends = {f"{topic}-{number}": records[-1][0] + 1 for number, records in read.items() if records} | {nowhere: 1}
    steps = (
        ("query", "send", [["send", key, line] for key, line in rows],
         [["send", key, [None, line]] for key, line in rows]),
        ("reader", "poll", None, poll), ("reader", "drained", None, ends),
    )
    return [
        Op(2 * number + is_end, 2 * number + is_end, process, OK if is_end else INVOKE, function, value)
        for number, (process, function, *values) in enumerate(steps) for is_end, value in enumerate(values)
    ]


def _read(
    address: str, topics: Collection[str], partition_count: int
) -> dict[str, dict[int, list[tuple[int, str]]]]:
    settings = {"bootstrap.servers": address, "group.id": f"judge-{uuid.uuid4().hex}", "enable.partition.eof": True,
                "isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
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
    """Name the topics whose last stable offset does not come to the end, or that have transactions left open.

    Markers are written a moment after EndTxn is answered, so this is waited for, but not as long as a timeout takes.
    """
    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    wrong: dict[str, str] = {}

    def settled() -> bool:
        wrong.clear()
        ends = [_ends(admin, topics, partition_count, level) for level in IsolationLevel]
        for topic, number in ends[0]:
            if ends[0][topic, number] != ends[1][topic, number]:
                wrong[topic] = f"the last stable offset of partition {number} stays behind its end"
        for transactional_id in open_transactions(address, ""):
            for topic in topics:
                if transactional_id.startswith(f"{topic}."):
                    wrong[topic] = f"transaction {transactional_id} is left open"
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


def _in_order(lines: list[str]) -> bool:
    numbers = [int(found[2]) for line in lines if (found := _LINE.match(line))]
    return len(numbers) == len(lines) and numbers == sorted(numbers)


def _some(lines: Counter[str]) -> list[str]:
    return [line.split(" ")[0] for line in list(lines)[:3]]
