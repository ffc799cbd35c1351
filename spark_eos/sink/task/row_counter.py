"""The row counts and checksums of one task by topic, which a decision records."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from spark_eos.codec.arrow_numbers import arrow_numbers, numbers_of, valid_of
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
        numbers = numbers_of(encoded.indices, null=len(encoded.dictionary))
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
        return tuple(
            TopicRows(topic, count, self._checksums[topic] % CHECKSUMS) for topic, count in sorted(self._counts.items())
        )


def given_timestamps(rows: pa.RecordBatch) -> pa.Array | None:
    """Return the given timestamps in milliseconds, null where there is none; None without such a column."""
    if columns.TIMESTAMP not in rows.schema.names:
        return None
    in_us = rows.column(columns.TIMESTAMP).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    # Rounded down, as Spark does, also before 1970.
    return arrow_numbers(numbers_of(in_us) // 1000, valid_of(in_us))
