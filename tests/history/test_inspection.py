"""The inspection of a broker's folder accepts valid files and finds damage."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history.damage import DAMAGES, Damage
from tests.history.file_checks import Verdict, compare_markers
from tests.history.inspection import LeftBehind, inspect_folder
from tests.history.reported_state import reported_state, under_way
from tests.support.broker_processes import BrokerCore
from tests.support.clients import LOG_NOTHING
from tests.support.history.format import FAIL, OK
from tests.support.history.recorder import Recorder
from tests.support.raw_client import RawClient
from tests.support.spark_eos.brokers import SETTINGS
from tests.support.waiting import wait_until

COMMIT, ABORT, LATER, DATA = Verdict(True, 0), Verdict(False, 0), Verdict(True, 1), None
TOPIC, GROUP = "in", "workers"
TOPICS = {TOPIC: 1, "__transaction_state": 1, "__consumer_offsets": 1}
ROUNDS = 8
_DEADLINE_S = 60
_ONE_PARTITION = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
_NOW_MS = 1_900_000_000_000
_SEGMENT_MS = 60_000


class Author:
    """A client that writes transactions through librdkafka and records them."""

    def __init__(self, name: str, address: str, recorder: Recorder) -> None:
        self.name = name
        self._recorder = recorder
        self._values: list[int] = []
        self._count = 0
        common = {"bootstrap.servers": address, "log_level": LOG_NOTHING}
        self._producer = Producer(common | {"transactional.id": name})
        self._consumer = Consumer(common | {"group.id": GROUP})
        self._producer.init_transactions(_DEADLINE_S)

    def begin(self, timestamp_ms: int) -> None:
        """Begin a transaction and write three batches of one record."""
        self._count += 1
        self._values = [self._recorder.next_value() for _ in range(3)]
        self._recorder.begin(self.name, "txn", self._steps(), transaction=f"{self.name}/{self._count}")
        self._producer.begin_transaction()
        for value in self._values:
            self._producer.produce(TOPIC, str(value), partition=0, timestamp=timestamp_ms + value)
            assert self._producer.flush(_DEADLINE_S) == 0

    def end(self, *, commit: bool) -> None:
        """End the transaction; a commit includes the group's offsets."""
        if commit:
            self._producer.send_offsets_to_transaction(
                [TopicPartition(TOPIC, 0, self._values[-1])], self._consumer.consumer_group_metadata(), _DEADLINE_S
            )
            self._producer.commit_transaction(_DEADLINE_S)
        else:
            self._producer.abort_transaction(_DEADLINE_S)
        self._recorder.note(
            self.name, OK if commit else FAIL, "txn", self._steps(), transaction=f"{self.name}/{self._count}"
        )

    def close(self) -> None:
        self._consumer.close()

    def _steps(self) -> list[list[object]]:
        return [["send", f"{TOPIC}-0", value] for value in self._values]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeftBehind]:
    """Return the folder of a broker process that was stopped after some overlapping transactions."""
    broker = BrokerCore(tmp_path_factory.mktemp("left") / "broker", SETTINGS | _ONE_PARTITION)
    recorder = Recorder()
    try:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": LOG_NOTHING})
        settings = {
            "index.interval.bytes": "128",
            "segment.ms": str(_SEGMENT_MS),
            "message.timestamp.after.max.ms": str(1 << 62),
        }
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(_DEADLINE_S)
        outer, inner = authors = [Author(name, broker.address, recorder) for name in ("outer", "inner")]
        for number in range(ROUNDS):
            # Half of the transactions are in a second segment.
            timestamp_ms = _NOW_MS + (0 if number < ROUNDS // 2 else 2 * _SEGMENT_MS)
            outer.begin(timestamp_ms)
            inner.begin(timestamp_ms)
            inner.end(commit=number % 2 == 1)
            outer.end(commit=number % 3 > 0)
        for author in authors:
            author.close()
        with RawClient(broker.address) as client:
            wait_until(lambda: not under_way(client.send), "every transaction is complete")
            answers = reported_state(client.send, TOPICS, (GROUP,))
        broker.stop()
    finally:
        broker.close()
    return LeftBehind(broker.data, SETTINGS | _ONE_PARTITION, TOPICS, (GROUP,), answers, recorder.ops, 0, cleanly=True)


def test_undamaged_directory_passes(left: LeftBehind, tmp_path: Path):
    assert inspect_folder(left, tmp_path) == []
    # The folder contains the data that the damages need.
    assert len(list((left.data / f"{TOPIC}-0").glob("*.log"))) == 2
    assert left.answers[f"offsets of {GROUP}"]


@pytest.mark.parametrize(("damage", "word"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_detected(left: LeftBehind, damage: Damage, word: str, tmp_path: Path):
    data = tmp_path / "data"
    shutil.copytree(left.data, data)
    damage(data)
    problems = inspect_folder(replace(left, data=data), tmp_path)
    assert any(word in each for each in problems), problems


@pytest.mark.parametrize("kind", [OK, FAIL])
def test_outcome_contradicting_the_files_is_detected(left: LeftBehind, kind: str, tmp_path: Path):
    claim = next(op for op in left.ops if op.kind == kind)
    false_claim = replace(claim, kind=FAIL if kind == OK else OK)
    (problem,) = inspect_folder(replace(left, ops=[false_claim if op is claim else op for op in left.ops]), tmp_path)
    assert problem.startswith(f"{false_claim.transaction} is ")


def test_record_without_a_sender_is_detected(left: LeftBehind, tmp_path: Path):
    (forgotten,) = {op.transaction for op in left.ops if op.index == 0}
    problems = inspect_folder(replace(left, ops=[op for op in left.ops if op.transaction != forgotten]), tmp_path)
    assert len(problems) == 3
    assert all("but no client sent it" in each for each in problems)


@pytest.mark.parametrize(
    ("expected", "found", "restarts"),
    [
        ([], [], 0),
        ([COMMIT, ABORT], [DATA, COMMIT, DATA, DATA, ABORT], 0),
        # The transaction added this partition without writing to it.
        ([COMMIT, COMMIT, LATER], [COMMIT, DATA, COMMIT, LATER], 0),
        ([COMMIT], [DATA, COMMIT, COMMIT], 1),
        ([COMMIT, COMMIT, ABORT], [DATA, COMMIT, COMMIT, COMMIT, COMMIT, ABORT], 2),
    ],
)
def test_markers_that_match_the_journal_pass(
    expected: Sequence[Verdict], found: Sequence[Verdict | None], restarts: int
):
    assert compare_markers(expected, found, restarts) is None


@pytest.mark.parametrize(
    ("expected", "found", "restarts"),
    [
        ([COMMIT], [DATA, ABORT], 0),
        ([COMMIT], [DATA, LATER], 0),
        ([COMMIT], [DATA], 0),
        ([COMMIT], [], 0),
        ([], [COMMIT], 1),
        ([COMMIT], [DATA, COMMIT, DATA], 0),
        ([COMMIT], [DATA, COMMIT, DATA, COMMIT], 1),
        ([COMMIT], [DATA, COMMIT, COMMIT], 0),
        ([COMMIT], [DATA, COMMIT, COMMIT, COMMIT], 1),
        ([COMMIT, ABORT], [DATA, COMMIT, DATA, ABORT, COMMIT], 1),
    ],
)
def test_markers_that_contradict_the_journal_are_detected(
    expected: Sequence[Verdict], found: Sequence[Verdict | None], restarts: int
):
    assert compare_markers(expected, found, restarts) is not None
