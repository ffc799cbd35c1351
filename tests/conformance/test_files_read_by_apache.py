"""Files written by `broker_core`, read by Apache Kafka's DumpLogSegments and compared with what clients see.

Rules B.1, B.3, B.4, C.8 and C.9: segments, indexes, producer snapshots, `__transaction_state`, `__consumer_offsets`.
"""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker_core import EmbeddedBroker
from broker_core.config import TopicConfig
from broker_core.log.partition_log import PartitionLog
from broker_core.server.disk import DiskStorage
from broker_core.types import TopicPartition
from tests.support.clients import READ_COMMITTED, READ_UNCOMMITTED, read_to_end
from tests.support.dump_log_segments import (
    OFFSETS,
    SUFFIXES,
    TRANSACTION_LOG,
    Dump,
    DumpedBatch,
    DumpedRecord,
    dump_log_segments,
    log_files,
)
from tests.support.log_history import (
    CODECS,
    COMMITS,
    FRESH,
    GROUPS,
    KEYS,
    MEMBER,
    OPEN,
    PARTITIONS,
    PENDING,
    PENDING_AFTER,
    TRANSACTIONAL_IDS,
    History,
    write_history,
    write_repetitions,
)
from tests.support.log_witness import SeenProducer, Witness, see

SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.segment.bytes": "2048",
    "offsets.topic.segment.bytes": "512",
    # Clients may not create topics with such small segments.
    "log.segment.bytes": "16384",
    # On a slow machine the cleaner would start before the broker is closed, and these tests read every record.
    "log.cleaner.backoff.ms": "3600000",
}
COMPACTED_SETTINGS = {
    "cleanup.policy": "compact",
    "index.interval.bytes": "512",
    "min.cleanable.dirty.ratio": "0.01",
}
COMPACTED_SEGMENT_BYTES = 4096
TOPIC_SETTINGS = {"index.interval.bytes": "1024"}
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
LABELS = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
FOLLOWERS = {
    None: {EMPTY},
    EMPTY: {EMPTY, ONGOING, PREPARE_ABORT},
    ONGOING: {ONGOING, PREPARE_COMMIT, PREPARE_ABORT},
    PREPARE_COMMIT: {COMPLETE_COMMIT},
    PREPARE_ABORT: {COMPLETE_ABORT},
    COMPLETE_COMMIT: {EMPTY, ONGOING},
    COMPLETE_ABORT: {EMPTY, ONGOING},
}


class Written(NamedTuple):
    """What was written, what clients saw of it, and what the tool read by kind of topic."""

    root: Path
    history: History
    witness: Witness
    data: Dump
    transactions: Dump
    offsets: Dump

    @property
    def dumps(self) -> tuple[Dump, ...]:
        """Return the three runs of the tool."""
        return self.data, self.transactions, self.offsets


@pytest.fixture(scope="module")
def written(apache_asked_for: None, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Write the history, close the broker and read its files with the tool."""
    root = tmp_path_factory.mktemp("broker_core")
    with EmbeddedBroker(data_dir=root, config=SETTINGS) as kafka:
        history = write_history(kafka, TOPIC_SETTINGS)
        witness = see(kafka, history)
    folders = sorted(path.name for path in root.iterdir() if path.is_dir())

    def dump(prefix: str, *options: str) -> Dump:
        names = [name for folder in folders if folder.startswith(prefix) for name in log_files(root, folder)]
        return dump_log_segments(root, names, *options)

    return Written(
        root,
        history,
        witness,
        dump(history.topic),
        dump("__transaction_state", TRANSACTION_LOG),
        dump("__consumer_offsets", OFFSETS),
    )


def batches_of(dump: Dump, folder: str) -> list[DumpedBatch]:
    """Return the batches of a partition's segments, in order."""
    return [
        batch
        for file in sorted(dump.files, key=lambda file: file.name)
        if file.folder == folder and file.suffix == ".log"
        for batch in file.batches
    ]


def entries_of(dump: Dump, folder: str, suffix: str) -> dict[int, list[dict[str, int]]]:
    """Return the entries in a partition's files of one kind, by the offset in their names."""
    return {
        int(Path(file.name).stem): file.entries
        for file in sorted(dump.files, key=lambda file: file.name)
        if file.folder == folder and file.suffix == suffix
    }


class Aborted(NamedTuple):
    """One aborted transaction as the index must have it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Replay:
    """The outcomes of transactions, from the batches alone, by brute force."""

    def __init__(self, batches: list[DumpedBatch]) -> None:
        self.decided: list[DumpedRecord] = []
        self.aborted: list[Aborted] = []
        self.open: dict[int, list[DumpedRecord]] = {}
        for batch in batches:
            producer_id = batch.number("producerId")
            if not batch.flag("isTransactional"):
                self.decided += batch.records
            elif not batch.flag("isControl"):
                self.open.setdefault(producer_id, []).extend(batch.records)
            else:
                self._end(producer_id, batch.records)
        self.decided.sort()

    def _end(self, producer_id: int, records: list[DumpedRecord]) -> None:
        (marker,) = records
        ended = self.open.pop(producer_id, [])
        if marker.marker == "COMMIT":
            self.decided += ended
        elif ended:
            still_open = min((one[0].offset for one in self.open.values()), default=marker.offset + 1)
            self.aborted.append(Aborted(producer_id, ended[0].offset, marker.offset, still_open))

    @property
    def last_stable_offset(self) -> int | None:
        """Return the offset at which the first open transaction begins."""
        return min((one[0].offset for one in self.open.values()), default=None)


def test_dump_log_reads_every_file_without_mismatch(written: Written):
    assert [dump.complaints for dump in written.dumps] == [[], [], []]
    read = {file.name for dump in written.dumps for file in dump.files}
    there = {f"{path.parent.name}/{path.name}" for path in written.root.glob("*/*") if path.suffix in SUFFIXES}
    assert read == {name for name in there if not name.startswith("__cluster_metadata")}
    kinds = Counter(Path(name).suffix for name in read if name.startswith(written.history.topic))
    assert set(kinds) == set(SUFFIXES)
    assert kinds[".log"] >= 2 * PARTITIONS
    assert kinds[".txnindex"] >= 2
    for internal in ("__transaction_state", "__consumer_offsets"):
        assert any(
            Path(name).suffix == ".log" and int(Path(name).stem) > 0 for name in read if name.startswith(internal)
        ), f"no segment of {internal} was rolled"


def test_dump_log_detects_mismatches(written: Written, tmp_path: Path):
    folder = f"{written.history.topic}-0"
    shutil.copytree(written.root / folder, tmp_path / folder)
    index, log = (
        next(path for path in sorted((tmp_path / folder).glob(f"*{suffix}")) if path.stat().st_size)
        for suffix in (".index", ".log")
    )
    index.write_bytes(bytes(3) + b"\x01" + index.read_bytes()[4:])
    dump = dump_log_segments(tmp_path, [f"{folder}/{index.name}"])
    assert any("Mismatches" in line for line in dump.complaints)
    log.write_bytes(log.read_bytes()[:-1])
    dump = dump_log_segments(tmp_path, [f"{folder}/{log.name}"])
    assert any("invalid bytes" in line for line in dump.complaints)


def test_every_batch_is_valid_and_every_codec_occurs(written: Written):
    batches = [batch for dump in written.dumps for file in dump.files for batch in file.batches]
    assert {batch.fields["isvalid"] for batch in batches} == {"true"}
    assert {batch.fields["magic"] for batch in batches} == {"2"}
    assert {batch.fields["compresscodec"] for batch in batches} == set(CODECS)
    assert all(batch.number("count") == len(batch.records) for batch in batches)
    assert all(batch.number("lastOffset") == batch.records[-1].offset for batch in batches)


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_dumped_records_match_the_records_read_by_clients(written: Written, partition: int):
    batches = batches_of(written.data, f"{written.history.topic}-{partition}")
    seen = written.witness.partitions[partition]

    def as_seen(records: list[DumpedRecord]) -> list[tuple[Any, ...]]:
        return [(one.offset, one.timestamp_ms, one.key, one.payload, one.header_keys) for one in records]

    def as_dumped(isolation: str) -> list[tuple[Any, ...]]:
        return [
            (
                one.offset,
                one.timestamp_ms,
                None if one.key is None else one.key.decode(),
                one.value.decode(),
                tuple(name for name, _ in one.headers),
            )
            for one in seen.records[isolation]
        ]

    replay = Replay(batches)
    data = [record for batch in batches if not batch.flag("isControl") for record in batch.records]
    end = replay.last_stable_offset or batches[-1].number("lastOffset") + 1
    assert as_seen(data) == as_dumped(READ_UNCOMMITTED)
    assert as_seen([one for one in replay.decided if one.offset < end]) == as_dumped(READ_COMMITTED)
    assert end == seen.ends[READ_COMMITTED]
    assert sorted(one.payload.encode() for one in data) == written.history.all_values(partition)


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_dumped_markers_distinguish_commit_and_abort(written: Written, partition: int):
    batches = batches_of(written.data, f"{written.history.topic}-{partition}")
    control = [batch for batch in batches if batch.flag("isControl")]
    assert all(batch.flag("isTransactional") and batch.number("size") == 78 for batch in control)
    verdicts = Counter(record.marker for batch in control for record in batch.records)
    # Five codecs and three turns each way; the first partition also has the interleaved and the long transaction.
    assert verdicts == {"COMMIT": 8 + (partition == 0), "ABORT": 8 + 2 * (partition == 0)}
    assert {record.coordinator_epoch for batch in control for record in batch.records} == {0}


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_dumped_aborted_transactions_match_the_batches(written: Written, partition: int):
    folder = f"{written.history.topic}-{partition}"
    replay = Replay(batches_of(written.data, folder))
    indexes = entries_of(written.data, folder, ".txnindex")
    listed = [entry for entries in indexes.values() for entry in entries]
    assert [
        Aborted(one["producerId"], one["firstOffset"], one["lastOffset"], one["lastStableOffset"]) for one in listed
    ] == replay.aborted
    assert {(one.producer_id, one.first_offset) for one in replay.aborted} == written.witness.partitions[
        partition
    ].aborted
    bases = sorted(entries_of(written.data, folder, ".log"))
    for base, entries in indexes.items():
        ends = [other for other in bases if other > base]
        assert all(base <= entry["lastOffset"] < (ends[0] if ends else 1 << 62) for entry in entries)


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_dumped_indexes_cover_every_segment(written: Written, partition: int):
    folder = f"{written.history.topic}-{partition}"
    segments = entries_of(written.data, folder, ".log")
    assert set(entries_of(written.data, folder, ".index")) == set(segments)
    times = entries_of(written.data, folder, ".timeindex")
    assert set(times) == set(segments)
    newest = [entries[-1]["timestamp"] for entries in times.values() if entries]
    assert newest[-1] == max(one.timestamp_ms for batch in batches_of(written.data, folder) for one in batch.records)
    assert sum(map(len, entries_of(written.data, folder, ".index").values())) > len(segments)


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_dumped_producers_match_describe_producers(written: Written, partition: int):
    folder = f"{written.history.topic}-{partition}"
    seen = written.witness.partitions[partition]
    snapshots = entries_of(written.data, folder, ".snapshot")
    bases = sorted(entries_of(written.data, folder, ".log"))
    assert sorted(snapshots) == [*bases[1:], seen.ends[READ_UNCOMMITTED]]
    newest = snapshots[seen.ends[READ_UNCOMMITTED]]
    assert {
        SeenProducer(
            one["producerId"],
            one["producerEpoch"],
            one["lastSequence"],
            one["lastTimestamp"],
            one["coordinatorEpoch"],
            one["currentTxnFirstOffset"],
        )
        for one in newest
    } == seen.producers
    assert len(newest) == len(seen.producers)


def journal(dump: Dump) -> list[tuple[DumpedBatch, DumpedRecord, Any, Any]]:
    """Return the records of all partitions of an internal topic with decoded keys and values; a marker has neither."""
    folders = sorted({file.folder for file in dump.files})
    return [
        (
            batch,
            record,
            record.key and json.loads(record.key),
            record.payload and record.payload != "<DELETE>" and json.loads(record.payload),
        )
        for folder in folders
        for batch in batches_of(dump, folder)
        for record in batch.records
    ]


def test_dumped_transaction_states_match_describe_transactions(written: Written):
    last: dict[str, dict[str, Any]] = {}
    for batch, _, key, value in journal(written.transactions):
        assert not batch.flag("isTransactional")
        assert key["type"] == "0"
        assert value["version"] == "1"
        name, image = key["data"]["transactionalId"], value["data"]
        before = last[name]["transactionStatus"] if name in last else None
        assert image["transactionStatus"] in FOLLOWERS[before]
        last[name] = image
    assert set(last) == set(TRANSACTIONAL_IDS)
    for name, seen in written.witness.transactions.items():
        image = last[name]
        partitions = {
            (topic["topic"], number)
            for topic in image["transactionPartitions"] or ()
            for number in topic["partitionIds"]
        }
        assert (
            LABELS[image["transactionStatus"]],
            image["transactionTimeoutMs"],
            image["transactionStartTimestampMs"],
            image["producerId"],
            image["producerEpoch"],
            frozenset(partitions),
        ) == seen
    assert last[FRESH]["transactionPartitions"] is None
    assert last[COMMITS]["transactionPartitions"] == []
    assert last[OPEN]["transactionStatus"] == ONGOING


def test_dumped_group_offsets_match_offset_fetch(written: Written):
    offsets: dict[str, dict[tuple[str, int], Any]] = {group: {} for group in GROUPS}
    pending: dict[int, list[tuple[str, tuple[str, int], Any]]] = {}
    for batch, record, key, value in journal(written.offsets):
        producer_id = batch.number("producerId")
        if batch.flag("isControl"):
            for group, where, data in pending.pop(producer_id, []):
                if record.marker == "COMMIT":
                    offsets[group][where] = data
        elif key["type"] in ("0", "1"):
            where = (key["data"]["topic"], key["data"]["partition"])
            found = (value["data"]["offset"], value["data"]["leaderEpoch"], value["data"]["metadata"])
            if batch.flag("isTransactional"):
                pending.setdefault(producer_id, []).append((key["data"]["group"], where, found))
            else:
                offsets[key["data"]["group"]][where] = found
    assert offsets == {name: group.offsets for name, group in written.witness.groups.items()}
    ((group, where, found),) = [one for left in pending.values() for one in left]
    assert (group, where, found[0]) == (PENDING, (written.history.topic, 0), PENDING_AFTER)
    assert written.witness.groups[PENDING].pending == {where}


def test_dumped_group_members_match_describe_groups(written: Written):
    last = {
        key["data"]["group"]: value["data"]
        for _, _, key, value in journal(written.offsets)
        if key and key["type"] == "2"
    }
    seen = written.witness.groups
    assert {name for name, group in last.items() if group["members"]} == {MEMBER}
    assert {name: group["protocolType"] for name, group in last.items()} == {
        name: seen[name].protocol_type for name in last
    }
    (member,) = last[MEMBER]["members"]
    assert {(member["memberId"], member["groupInstanceId"], member["clientId"], member["clientHost"])} == {
        one[:4] for one in seen[MEMBER].members
    }
    assert last[MEMBER]["protocol"] == seen[MEMBER].protocol


def test_compacted_files_are_read(apache_asked_for: None, tmp_path: Path):
    settings = COMPACTED_SETTINGS | {"segment.bytes": str(COMPACTED_SEGMENT_BYTES)}
    with EmbeddedBroker(data_dir=tmp_path, config={"log.segment.bytes": settings["segment.bytes"]}) as kafka:
        topic = write_repetitions(kafka, COMPACTED_SETTINGS)
        newest = {message.key(): message for message in read_to_end(kafka, topic)}
    folder, now_ms = f"{topic}-0", max(message.timestamp()[1] for message in newest.values())
    storage = DiskStorage(tmp_path)
    log = PartitionLog.open(storage, folder, TopicPartition(topic, 0), TopicConfig().override(settings), now_ms)
    log.compact(now_ms)
    log.close(now_ms)
    storage.close()
    dump = dump_log_segments(tmp_path, log_files(tmp_path, folder))
    # A cleaner leaves gaps; any other difference would be a mismatch.
    assert [line for line in dump.complaints if not re.search("Non-consecutive|is followed by", line)] == []
    batches = batches_of(dump, folder)
    assert {batch.fields["isvalid"] for batch in batches} == {"true"}
    decided = Replay(batches).decided
    assert len(decided) == KEYS
    assert {(one.key.encode(), one.offset, one.payload.encode()) for one in decided} == {
        (key, message.offset(), message.value()) for key, message in newest.items()
    }
    cleaned = [batch for batch in batches if batch.fields["deleteHorizonMs"] != "OptionalLong.empty"]
    assert cleaned
    assert all(batch.flag("isControl") for batch in cleaned)
