"""The row counts and checksums of one task by topic, which a decision records."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.codec.row_checksum import hash_rows, sum_of
from spark_eos.sink import columns
from spark_eos.sink.prepared import TopicRows
from spark_eos.sink.protocol.rerun_checks import CHECKSUMS, NO_TOPIC


class RowCounter:
    """The rows of one task by topic; `topic` is None if a column names it."""

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self._counts: Counter[str] = Counter()
        self._checksums: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch, timestamp_ms: Any) -> None:
        """Add rows; `timestamp_ms` is the array of times that the user gave, or None."""
        if not rows.num_rows:
            return
        hashes = hash_rows(
            value=rows.column(columns.VALUE),
            key=columns.column_of(rows, columns.KEY),
            headers=columns.column_of(rows, columns.HEADERS),
            partition=columns.column_of(rows, columns.PARTITION),
            timestamp_ms=timestamp_ms,
        )
        if self._topic is not None:
            self._counts[self._topic] += rows.num_rows
            self._checksums[self._topic] += sum_of(hashes)
            return
        encoded = rows.column(columns.TOPIC).dictionary_encode()
        numbers = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        # The last entry is for rows without a topic: they are refused where rows are written, so none was decided.
        sums = np.zeros(len(encoded.dictionary) + 1, np.uint64)
        np.add.at(sums, numbers, hashes)
        counts = np.bincount(numbers, minlength=len(sums))
        topics = [*encoded.dictionary.to_pylist(), NO_TOPIC]
        for topic, count, checksum in zip(topics, counts.tolist(), sums.tolist(), strict=True):
            if count:
                self._counts[topic] += count
                self._checksums[topic] += checksum

    def rows(self) -> tuple[TopicRows, ...]:
        """Return the counts so far, ordered by topic name."""
        return tuple(
            TopicRows(topic, count, self._checksums[topic] % CHECKSUMS) for topic, count in sorted(self._counts.items())
        )


def given_timestamps(rows: pa.RecordBatch) -> pa.Array | None:
    """Return the given timestamps in milliseconds, null where there is none; None without such a column."""
    if columns.TIMESTAMP not in rows.schema.names:
        return None
    in_us = rows.column(columns.TIMESTAMP).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    # Rounded down, as Spark does, also before 1970.
    return pa.array(pc.fill_null(in_us, 0).to_numpy(zero_copy_only=False) // 1000, mask=_is_null(in_us))


def _is_null(array: pa.Array) -> Any:
    return pc.is_null(array).to_numpy(zero_copy_only=False)
