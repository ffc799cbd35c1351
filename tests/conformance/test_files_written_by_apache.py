"""Directories of an Apache Kafka node, closed or killed, opened by `broker_core`.

First each log is compared with what clients saw of Apache Kafka; then a running broker must give clients the same
responses as Apache Kafka (rules B.1, B.3, B.4, C.8, C.9, C.11).
"""

import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from broker_core import EmbeddedBroker
from broker_core.config import TopicConfig
from broker_core.log.partition_log import PartitionLog
from broker_core.log.recovery_table import LogCondition
from broker_core.records.header import iter_headers
from broker_core.server.disk import DiskStorage
from broker_core.types import IsolationLevel, ProducerIdentity, TopicPartition, TransactionEnd
from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.clients import (
    DEADLINE_S,
    ISOLATIONS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    committed_offset,
    make_consumer,
    read_to_end,
    values_soon,
)
from tests.support.dump_log_segments import dump_log_segments, log_files
from tests.support.log_history import (
    AFTER_OPEN,
    KEYS,
    OPEN,
    OPEN_VALUES,
    PARTITIONS,
    PENDING,
    PENDING_AFTER,
    ROUNDS,
    History,
    write_history,
    write_repetitions,
)
from tests.support.log_witness import (
    SeenPartition,
    SeenProducer,
    SeenRecord,
    Witness,
    fetch_offsets,
    see,
    see_partition,
)
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession, record_batch
from tests.support.waiting import wait_until

SETTINGS = {"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5"}
# A live index has its maximum length; short ones are copied faster.
NODE_SETTINGS = SETTINGS | {"log.index.size.max.bytes": "65536", "log.cleaner.backoff.ms": "100"}
# Apache Kafka has no public setting for segments below 1 MiB anymore; its own tests use this name.
NODE_TOPIC = {"internal.segment.bytes": "16384", "index.interval.bytes": "1024"}
TOPIC = {"segment.bytes": "16384", "index.interval.bytes": "1024"}
INTERNAL = ("__transaction_state", "__consumer_offsets")
COMPACTED_TOPIC = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "4096",
    "index.interval.bytes": "512",
    "min.cleanable.dirty.ratio": "0.01",
}
MODERN, MODERN_OFFSET = "modern", 9
# Findings that recovery must not report of files whose records were acknowledged.
LOSSES = {
    LogCondition.TORN_TAIL,
    LogCondition.SEGMENT_AFTER_DAMAGE,
    LogCondition.LOG_START_AHEAD,
    LogCondition.MARKER_UNREADABLE,
}
NOT_FOUND = (-1, -1)
_ABORTED = struct.Struct(">hqqqq")


class Left(NamedTuple):
    """What Apache Kafka left behind and how it ended, with what clients had seen, of a compacted topic too."""

    ending: str
    root: Path
    history: History
    witness: Witness
    compacted: str
    seen_compacted: SeenPartition

    def copy(self, to: Path, *topics: str) -> None:
        """Copy the folders of these topics, so that a test that opens them does not change the originals."""
        for folder in self.root.iterdir():
            if folder.is_dir() and folder.name.rpartition("-")[0] in topics:
                shutil.copytree(folder, to / folder.name, dirs_exist_ok=True)


@pytest.fixture(scope="module", params=["stopped", "killed"])
def left(request: pytest.FixtureRequest, apache_asked_for: None, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Run Apache Kafka, write the history, and stop it."""
    with apache_kafka(NODE_SETTINGS, tmp_path_factory.mktemp(f"apache-{request.param}")) as kafka:
        history = write_history(kafka, NODE_TOPIC)
        _consume_as_a_modern_group(kafka, history.topic)
        compacted = _write_compacted(kafka)
        witness = see(kafka, history)
        with RawClient(kafka.bootstrap_servers) as client:
            seen_compacted = see_partition(kafka, client, compacted, 0, 1)
        if request.param == "stopped":
            kafka.stop()
        else:
            kafka.kill()
        return Left(request.param, kafka.data_folder, history, witness, compacted, seen_compacted)


def _write_compacted(kafka: ApacheKafka) -> str:
    """Write a topic for the cleaner and wait until it has been cleaned."""
    topic = write_repetitions(kafka, COMPACTED_TOPIC)
    wait_until(
        lambda: len(read_to_end(kafka, topic, isolation=READ_UNCOMMITTED)) < ROUNDS * KEYS,
        "the cleaner has been through",
        deadline_s=DEADLINE_S,
    )
    return topic


def _consume_as_a_modern_group(kafka: ApacheKafka, topic: str) -> None:
    """Consume as a group of KIP-848, which has its own record types in `__consumer_offsets`."""
    consumer = make_consumer(kafka, group=MODERN, group_protocol="consumer", enable_partition_eof=False)
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.2), "a record for the modern group")
    consumer.commit(offsets=[ClientPartition(topic, 0, MODERN_OFFSET)], asynchronous=False)
    consumer.close()


class Recovered(NamedTuple):
    """One partition as `broker_core` opened it, its folder before that, and what clients had seen of it."""

    log: PartitionLog
    ending: str
    root: Path
    original: Path
    seen: SeenPartition
    reopen: Callable[[], PartitionLog]


@pytest.fixture(params=range(PARTITIONS))
def recovered(request: pytest.FixtureRequest, left: Left, tmp_path: Path) -> Iterator[Recovered]:
    """Open a copy of one partition's folder."""
    where = TopicPartition(left.history.topic, request.param)
    left.copy(tmp_path, left.history.topic)
    storage = DiskStorage(tmp_path)

    def open_log() -> PartitionLog:
        return PartitionLog.open(storage, str(where), where, TopicConfig().override(TOPIC), _now_ms())

    yield Recovered(
        open_log(), left.ending, tmp_path, left.root / str(where), left.witness.partitions[request.param], open_log
    )
    storage.close()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _records(log: PartitionLog) -> list[SeenRecord]:
    return [
        SeenRecord(offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))
        for offset, header, record in log.read_journal()
        if not header.is_control
    ]


def _committed(log: PartitionLog) -> list[SeenRecord]:
    """Read as a consumer does: small fetches, each with its list of aborted transactions."""
    by_offset = {record.offset: record for record in _records(log)}
    visible: list[int] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        result = log.read(offset, 4096, IsolationLevel.READ_COMMITTED)
        hidden: set[int] = set()
        waiting = sorted(result.aborted or (), key=lambda one: one.first_offset)
        for _, header in iter_headers(result.records):
            while waiting and waiting[0].first_offset <= header.last_offset:
                hidden.add(waiting.pop(0).producer_id)
            if header.is_control:
                hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                visible += range(header.base_offset, header.next_offset)
        offset = result.next_offset
    return [by_offset[number] for number in visible if number in by_offset]


def _producers(log: PartitionLog) -> set[SeenProducer]:
    return {
        SeenProducer(
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp_ms,
            one.coordinator_epoch,
            -1 if one.current_txn_first_offset is None else one.current_txn_first_offset,
        )
        for one in log.producer_state.entries
    }


def test_all_records_are_recovered(recovered: Recovered):
    assert _records(recovered.log) == recovered.seen.records[READ_UNCOMMITTED]


def test_recovery_discards_nothing(recovered: Recovered):
    found = {finding.condition for finding in recovered.log.findings}
    assert not found & LOSSES
    if recovered.ending == "stopped":
        assert recovered.log.findings == []
    else:
        # A killed node wrote no snapshot at the log end; zeros at the end of its live indexes are ignored.
        assert found == {LogCondition.SNAPSHOT_BEHIND}


def test_recovered_offsets_match_those_seen_by_clients(recovered: Recovered):
    log, ends = recovered.log, recovered.seen.ends
    assert log.log_start_offset == 0
    assert log.log_end_offset == log.high_watermark == ends[READ_UNCOMMITTED]
    assert log.last_stable_offset == ends[READ_COMMITTED]
    assert log.leader_epochs.latest == 0


def test_aborted_transactions_match_the_kafka_index(recovered: Recovered):
    listed = [
        numbers
        for path in sorted(recovered.original.glob("*.txnindex"))
        for _, *numbers in _ABORTED.iter_unpack(path.read_bytes())
    ]
    aborted = recovered.log.aborted_transactions()
    assert [list(entry) for entry in aborted] == listed
    assert {(entry.producer_id, entry.first_offset) for entry in aborted} == recovered.seen.aborted


def test_read_committed_returns_the_records_clients_read(recovered: Recovered):
    assert _committed(recovered.log) == recovered.seen.records[READ_COMMITTED]


def test_producers_match_those_kafka_described(recovered: Recovered):
    assert _producers(recovered.log) == recovered.seen.producers
    described = {(one.producer_id, one.current_txn_first_offset) for one in recovered.seen.producers}
    assert {(one.producer_id, one.first_offset) for one in recovered.log.producer_state.open_transactions} == {
        one for one in described if one[1] >= 0
    }


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_timestamp_lookup_matches_kafka(recovered: Recovered, isolation: str):
    level = IsolationLevel(ISOLATIONS.index(isolation))
    for timestamp_ms, expected in recovered.seen.found_by_time[isolation].items():
        found = recovered.log.offset_for_timestamp(timestamp_ms, level)
        assert (NOT_FOUND if found is None else (found.offset, found.timestamp_ms)) == expected


def test_writing_continues_after_recovery(recovered: Recovered):
    log, end = recovered.log, recovered.seen.ends[READ_UNCOMMITTED]
    for producer in recovered.seen.producers:
        if producer.current_txn_first_offset >= 0:
            identity = Identity(producer.producer_id, producer.producer_epoch)
            again = log.append_as_leader(record_batch(OPEN_VALUES, identity, 0), now_ms=_now_ms(), leader_epoch=1)
            assert again.duplicate
            assert again.base_offset == producer.current_txn_first_offset
            identity = ProducerIdentity(producer.producer_id, producer.producer_epoch)
            log.append_end_txn_marker(TransactionEnd(identity, False, 0, 0), now_ms=_now_ms(), leader_epoch=1)
            end += 1
    batch = record_batch([b"from the next broker"], Identity(-1, -1), -1, transactional=False)
    assert log.append_as_leader(batch, now_ms=_now_ms(), leader_epoch=1).base_offset == end
    assert log.last_stable_offset == log.log_end_offset == end + 1
    assert log.end_offset_for_epoch(0) == (0, recovered.seen.ends[READ_UNCOMMITTED])
    before = _records(log), log.aborted_transactions(), _producers(log)
    log.close(_now_ms())
    log = recovered.reopen()
    # The snapshot that the log was opened with belongs to no segment and is no longer the newest.
    assert {finding.condition for finding in log.findings} <= {LogCondition.SNAPSHOT_STRAY}
    assert (_records(log), log.aborted_transactions(), _producers(log)) == before


def test_dump_log_reads_the_recovered_files(recovered: Recovered):
    recovered.log.close(_now_ms())
    folder = str(recovered.log.topic_partition)
    dump = dump_log_segments(recovered.root, log_files(recovered.root, folder))
    assert dump.complaints == []
    assert sum(len(file.records) for file in dump.files) == recovered.seen.ends[READ_UNCOMMITTED]


@pytest.fixture
def compacted(left: Left, tmp_path: Path) -> Iterator[Callable[[], PartitionLog]]:
    """Return a function that opens the copy of the compacted topic's log, the one folder in `tmp_path`."""
    left.copy(tmp_path, left.compacted)
    where = TopicPartition(left.compacted, 0)
    storage = DiskStorage(tmp_path)
    yield lambda: PartitionLog.open(storage, str(where), where, TopicConfig(cleanup_policy="compact"), _now_ms())
    storage.close()


def test_compacted_log_is_recovered(left: Left, compacted: Callable[[], PartitionLog]):
    log, seen = compacted(), left.seen_compacted
    # The cleaner may have run again before the end, but it keeps the last committed value of each key.
    assert set(_records(log)) <= set(seen.records[READ_UNCOMMITTED])
    newest = {record.key: record for record in seen.records[READ_COMMITTED]}
    assert len(newest) == KEYS
    assert {record.key: record for record in _committed(log)} == newest
    assert set(_committed(log)) <= set(seen.records[READ_COMMITTED])
    assert log.log_end_offset == seen.ends[READ_UNCOMMITTED]
    assert log.last_stable_offset == seen.ends[READ_COMMITTED]
    assert _producers(log) == seen.producers
    assert not {finding.condition for finding in log.findings} & LOSSES


@pytest.mark.parametrize("unfinished", [("log", "index", "timeindex", "txnindex"), ("index", "timeindex", "txnindex")])
def test_interrupted_cleaner_swap_of_kafka_is_completed(
    left: Left, compacted: Callable[[], PartitionLog], tmp_path: Path, unfinished: tuple[str, ...]
):
    folder = tmp_path / f"{left.compacted}-0"
    for path in folder.glob("*.deleted"):
        path.unlink()
    *cleaned, _ = sorted(folder.glob("*.log"))
    assert cleaned
    before = tmp_path / "before"
    shutil.copytree(folder, before)
    # The segments that these replace have been renamed already: no other file has their records.
    for suffix in unfinished:
        for path in (log.with_suffix(f".{suffix}") for log in cleaned[:2]):
            if path.exists():
                path.rename(path.with_name(path.name + ".swap"))
    log = compacted()
    found = _records(log), _committed(log), _producers(log), log.log_end_offset
    log.close(_now_ms())
    shutil.rmtree(folder)
    before.rename(folder)
    log = compacted()
    assert found == (_records(log), _committed(log), _producers(log), log.log_end_offset)


@pytest.fixture
def successor(left: Left, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Run `broker_core` on a copy of what Apache Kafka left; only the list of topics is its own."""
    topics = (left.history.topic, *INTERNAL)
    with EmbeddedBroker(data_dir=tmp_path, config=SETTINGS) as kafka:
        kafka.create_topic(left.history.topic, PARTITIONS, TOPIC)
        for name in INTERNAL:
            kafka.create_topic(name, 5, {"cleanup.policy": "compact"})
    for name in topics:
        for folder in tmp_path.glob(f"{name}-*"):
            shutil.rmtree(folder)
    left.copy(tmp_path, *topics)
    with EmbeddedBroker(data_dir=tmp_path, config=SETTINGS) as kafka:
        yield kafka


def test_broker_on_kafka_files_gives_the_same_responses(left: Left, successor: EmbeddedBroker):
    witness = see(successor, left.history)
    assert witness.transactions == left.witness.transactions
    assert witness.groups == left.witness.groups
    assert witness.partitions == left.witness.partitions


def test_offsets_of_a_consumer_protocol_group_are_kept(left: Left, successor: EmbeddedBroker):
    with RawClient(successor.bootstrap_servers) as client:
        offsets = fetch_offsets(client, MODERN)
    assert {where: part.committed_offset for where, part in offsets.items()} == {(left.history.topic, 0): MODERN_OFFSET}


@pytest.mark.parametrize("commit", [True, False])
def test_open_transaction_can_be_ended_after_recovery(left: Left, successor: EmbeddedBroker, commit: bool):
    seen = left.witness.transactions[OPEN]
    before = [record.value for record in left.witness.partitions[0].records[READ_COMMITTED]]
    with RawClient(successor.bootstrap_servers) as client:
        session = RawSession(client, OPEN)
        error, _ = session.end_until_done(Identity(seen.producer_id, seen.producer_epoch), commit=commit, version=5)
        assert error == 0
        state = "CompleteCommit" if commit else "CompleteAbort"
        wait_until(
            lambda: session.describe().transaction_state == state,
            f"the transaction is in {state}",
            deadline_s=DEADLINE_S,
        )
    values_soon(successor, left.history.topic, before + (OPEN_VALUES if commit else []) + AFTER_OPEN)
    expected = PENDING_AFTER if commit else left.witness.groups[PENDING].offsets[left.history.topic, 0][0]
    assert committed_offset(successor, PENDING, left.history.topic) == expected
