"""Damage to a broker's folder that recovery need not notice, for tests of the inspection."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from crc32c import crc32c

from broker_core.log.snapshots import decode_snapshot, encode_snapshot
from tests.history.file_checks import batches_of
from tests.history.log_files import Batch, SegmentFiles, partitions_of

Damage = Callable[[Path], None]
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_CRC_AT: Final = 17
_CHECKED_FROM: Final = 21
_ABORTED_ROW_BYTES: Final = 34
_TIME_ROW_BYTES: Final = 12
# In a marker, behind the header: length, attributes, two deltas, key length, version.
_CONTROL_TYPE_AT: Final = 61 + 5 + 2


def _segments(data: Path, topic: str) -> list[SegmentFiles]:
    """Return the segments of the first partition of the topic that has batches."""
    return next(
        segments
        for name, segments in partitions_of(data).items()
        if name.rpartition("-")[0] == topic and any(batches_of(segments))
    )


def _rows(data: Path, topic: str, suffix: str, has_rows: Callable[[SegmentFiles], object]) -> Path:
    """Return the index file of the topic's first segment that has rows."""
    return data / f"{next(filter(has_rows, _segments(data, topic))).name}{suffix}"


def _cut(data: Path, topic: str, is_first_gone: Callable[[Batch], bool]) -> None:
    """Cut a partition of the topic before the last batch that matches."""
    segments = _segments(data, topic)
    offset = max(batch.base_offset for batch in batches_of(segments) if is_first_gone(batch))
    for segment in segments:
        gone = [batch.position for batch in segment.batches if batch.base_offset >= offset]
        path = data / f"{segment.name}.log"
        if gone and gone[0] == 0:
            for suffix in _SUFFIXES:
                path.with_suffix(suffix).unlink(missing_ok=True)
        elif gone:
            path.write_bytes(path.read_bytes()[: gone[0]])


def forget_an_aborted_transaction(data: Path) -> None:
    """Remove the last row of a transaction index."""
    path = _rows(data, "in", ".txnindex", lambda segment: segment.aborted_rows)
    path.write_bytes(path.read_bytes()[:-_ABORTED_ROW_BYTES])


def change_the_aborted_producer(data: Path) -> None:
    """Write the wrong producer into a transaction index."""
    path = _rows(data, "in", ".txnindex", lambda segment: segment.aborted_rows)
    rows = bytearray(path.read_bytes())
    struct.pack_into(">q", rows, 2, struct.unpack_from(">q", rows, 2)[0] + 1)
    path.write_bytes(rows)


def shift_an_offset_row(data: Path) -> None:
    """Decrement the offset in one row of an offset index."""
    path = _rows(data, "in", ".index", lambda segment: len(segment.offset_rows) > 2)
    rows = bytearray(path.read_bytes())
    struct.pack_into(">i", rows, 0, struct.unpack_from(">i", rows, 0)[0] - 1)
    path.write_bytes(rows)


def lose_an_index(data: Path) -> None:
    """Delete an offset index."""
    _rows(data, "in", ".index", lambda segment: segment.offset_rows).unlink()


def drop_a_time_row(data: Path) -> None:
    """Remove the first of many rows of a time index."""
    path = _rows(data, "in", ".timeindex", lambda segment: len(segment.time_rows) > 2)
    path.write_bytes(path.read_bytes()[_TIME_ROW_BYTES:])


def invert_a_marker(data: Path) -> None:
    """Replace the last marker of a partition by its opposite, with a valid checksum."""
    segment = _segments(data, "in")[-1]
    marker = segment.batches[-1]
    path = data / f"{segment.name}.log"
    log = bytearray(path.read_bytes())
    struct.pack_into(">h", log, marker.position + _CONTROL_TYPE_AT, 0 if marker.commits else 1)
    struct.pack_into(">I", log, marker.position + _CRC_AT, crc32c(log[marker.position + _CHECKED_FROM :]))
    path.write_bytes(log)


def lose_a_marker(data: Path) -> None:
    """Remove the last marker of a partition."""
    _cut(data, "in", lambda batch: batch.is_control)


def repeat_a_marker(data: Path) -> None:
    """Append the last marker of a partition again, at the next offset."""
    segment = _segments(data, "in")[-1]
    marker = segment.batches[-1]
    path = data / f"{segment.name}.log"
    log = path.read_bytes()
    path.write_bytes(log + struct.pack(">q", marker.last_offset + 1) + log[marker.position + 8 :])


def lose_a_record(data: Path) -> None:
    """Remove the last data batch of a partition and its marker."""
    _cut(data, "in", lambda batch: not batch.is_control)


def lose_the_last_image(data: Path) -> None:
    """Remove the last record of the transaction journal, which completes a transaction."""
    _cut(data, "__transaction_state", lambda batch: True)


def lose_an_offset(data: Path) -> None:
    """Remove the last transaction's offsets and their marker from the groups' journal."""
    _cut(data, "__consumer_offsets", lambda batch: batch.is_transactional and not batch.is_control)


def lose_a_batch(data: Path) -> None:
    """Remove a batch from the middle of a partition."""
    segment = _segments(data, "in")[-1]
    gone, following = segment.batches[-3:-1]
    path = data / f"{segment.name}.log"
    log = path.read_bytes()
    path.write_bytes(log[: gone.position] + log[following.position :])


def write_a_batch_twice(data: Path) -> None:
    """Append the newest data of a partition and its marker again."""
    segment = _segments(data, "in")[-1]
    marker = segment.batches[-1]
    newest = next(batch for batch in reversed(segment.batches) if not batch.is_control)
    path = data / f"{segment.name}.log"
    log = path.read_bytes()
    for end, batch in enumerate((newest, marker), marker.last_offset + 1):
        size = 12 + struct.unpack_from(">i", log, batch.position + 8)[0]
        log += struct.pack(">q", end) + log[batch.position + 8 : batch.position + size]
    path.write_bytes(log)


def append_half_a_batch(data: Path) -> None:
    """Append half a batch."""
    segment = _segments(data, "in")[-1]
    path = data / f"{segment.name}.log"
    log = path.read_bytes()
    path.write_bytes(log + log[segment.batches[-1].position :][:40])


def flip_a_bit(data: Path) -> None:
    """Flip one bit of a record in a batch that recovery does not read."""
    segment = _segments(data, "in")[0]
    path = data / f"{segment.name}.log"
    log = bytearray(path.read_bytes())
    log[segment.batches[1].position - 2] ^= 1
    path.write_bytes(log)


def corrupt_producer_snapshot(data: Path) -> None:
    """Write a wrong last sequence into the newest producer snapshot of a partition, with a valid checksum."""
    folder = data / _segments(data, "in")[-1].name.partition("/")[0]
    path = max(folder.glob("*.snapshot"))
    first, *others = decode_snapshot(path.read_bytes())
    wrong = first.batches[-1]._replace(last_sequence=first.batches[-1].last_sequence + 1)
    path.write_bytes(encode_snapshot([first._replace(batches=(wrong,)), *others]))


# Each damage with a part of the problem that the inspection reports.
DAMAGES: Final[dict[str, tuple[Damage, str]]] = {
    "a missing aborted transaction": (forget_an_aborted_transaction, "the transaction index has"),
    "an aborted transaction with the wrong producer": (change_the_aborted_producer, "the transaction index has"),
    "a wrong offset row": (shift_an_offset_row, "the offset index has"),
    "a missing offset index": (lose_an_index, "recovery found"),
    "a missing time row": (drop_a_time_row, "the time index lacks"),
    "an inverted marker": (invert_a_marker, "the journal's outcomes are"),
    "a lost marker": (lose_a_marker, "is not stable at rest"),
    "a repeated marker": (repeat_a_marker, "1 markers are repeated"),
    "a lost record": (lose_a_record, "and its records are"),
    "a lost batch": (lose_a_batch, "in-0: offset "),
    "a batch written twice": (write_a_batch_twice, "in-0: sequence "),
    "half a batch": (append_half_a_batch, "half a batch"),
    "a flipped bit": (flip_a_bit, "a wrong checksum"),
    "an incomplete transaction": (lose_the_last_image, "the journal leaves transaction"),
    "lost offsets of a group": (lose_an_offset, "offsets of workers changed from"),
    "a wrong snapshot": (corrupt_producer_snapshot, "from the batches alone: log in-"),
}
