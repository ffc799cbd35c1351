"""Fuzz targets for the files of a partition: each alone, and one in a whole folder for recovery."""

import contextlib

from broker_core.errors import KafkaError
from broker_core.log.indexes import OffsetIndex, TimeIndex, unpack_entries
from broker_core.log.leader_epochs import LeaderEpochs
from broker_core.log.snapshots import decode_snapshot, encode_snapshot
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import IsolationLevel
from tests.support.partition_logs import FOLDER, NOW_MS, append, end, open_log, produce

_SMALL_SEGMENTS = {"segment.bytes": "600", "index.interval.bytes": "0"}


def feed_snapshot(data: bytes) -> None:
    """Read a producer snapshot, and check that it survives encoding and decoding."""
    assert decode_snapshot(encode_snapshot(decode_snapshot(data))) == decode_snapshot(data)


def feed_transaction_index(data: bytes) -> None:
    """Read a segment's aborted transactions."""
    unpack_entries(data)


def feed_sparse_index(data: bytes) -> None:
    """Load an offset or a time index; the first byte selects which one."""
    storage = _storage_with("folder", "index", data[1:])
    kind = TimeIndex if data[:1] > b"\x7f" else OffsetIndex
    index = kind(storage, "folder/index", 0)
    index.load()
    index.flush()
    assert len(index) * 8 <= len(data) * 2


def feed_checkpoint(data: bytes) -> None:
    """Read a checkpoint of leader epochs."""
    epochs = LeaderEpochs(_storage_with("folder", "leader-epoch-checkpoint", data), "folder")
    epochs.load()
    epochs.end_offset_for(3, 100)


def feed_recovery(data: bytes) -> None:
    """Replace one of a log's files; the log opens, its offsets are in order, and it accepts a batch."""
    storage = a_log_folder()
    names = sorted(storage.list_folder(FOLDER))
    name = names[(data[0] if data else 0) % len(names)]
    _replace(storage, f"{FOLDER}/{name}", data[1:])
    log = open_log(storage, _SMALL_SEGMENTS)
    marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    assert list(marks) == sorted(marks), f"marks out of order: {marks}"
    before = log.log_end_offset
    append(log, 1)
    assert log.log_end_offset == before + 1
    with contextlib.suppress(KafkaError):
        log.read(log.log_start_offset, 1 << 20, IsolationLevel.READ_UNCOMMITTED)


def a_log_folder() -> MemoryStorage:
    """Write a log with several segments, committed and aborted transactions and an open one."""
    storage = MemoryStorage()
    log = open_log(storage, _SMALL_SEGMENTS)
    for number in range(3):
        append(log, 5, value=b"x" * 40)
        produce(log, 1, number * 2, 2)
        end(log, 1, commit=number % 2 == 0)
    produce(log, 2, 0, 3)
    log.close(NOW_MS)
    return storage


def _storage_with(folder: str, name: str, data: bytes) -> MemoryStorage:
    storage = MemoryStorage()
    storage.make_folder(folder)
    _replace(storage, f"{folder}/{name}", data)
    return storage


def _replace(storage: MemoryStorage, path: str, data: bytes) -> None:
    file = storage.open(path)
    file.truncate(0)
    file.append(data)
    file.sync()
    file.close()
