"""The readers that Spark calls: one for batch queries and one for micro-batch streams.

Spark creates several reader objects for one query, pickles some of them and calls each from one process only. A reader
therefore connects at first use and is pickled without a connection.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn, cast

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_eos import failpoints
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.errors import EosKafkaError
from spark_eos.message_first import message_first
from spark_eos.options.source import SourceOptions, batch_options, filter_pushdown, stream_options
from spark_eos.runtime import process_state
from spark_eos.sent_to_tasks import SentToTasks
from spark_eos.source.driver_side import DriverSide
from spark_eos.source.lso_stalls import warn_of_hidden, warn_of_rest
from spark_eos.source.offsets import OffsetRange, SourceOffset, default_limit, to_json_offsets
from spark_eos.source.planner import Planner
from spark_eos.source.pushdown import Narrowing, narrowing
from spark_eos.source.range_reader import read_range
from spark_eos.source.schema import refuse_other_schema
from spark_eos.spark_api import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from spark_eos.worker_memory import spare_modules

logger = logging.getLogger(__name__)

# The program in which Spark asks readers to handle a query's filters.
_FILTERING_PROGRAM: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class RangePartition(InputPartition):
    """One range, as passed to the task that reads it."""

    def __init__(self, piece: OffsetRange) -> None:
        super().__init__(piece)

    @property
    def piece(self) -> OffsetRange:
        return cast("OffsetRange", self.value)


def _read(partition: InputPartition, options: SourceOptions, *, is_last: bool) -> Iterator[pa.RecordBatch]:
    failpoints.enter(options.client.client_id)
    process = process_state()
    spare_modules(process)
    if not isinstance(partition, RangePartition):
        # Spark creates an empty partition if none was planned.
        return iter(())
    return read_range(partition.piece, options, process, is_last=is_last)


@message_first
class BatchReader(SentToTasks, DataSourceReader):
    """The reader of a bounded part of topics; ends are looked up when the query runs, not when it is defined."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = batch_options(options)
        self._narrowing: Narrowing | None = None
        refuse_other_schema(schema, self._options.include_headers)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the filters: the ranges are narrowed by then."""
        return self.__dict__ | {"_narrowing": None}

    def partitions(self) -> list[InputPartition]:
        with KafkaClient(self._options.client, process_state().runtime) as client:
            planner = Planner(OffsetLookup(client), self._options)
            start, end, hidden = planner.batch_bounds()
            if hidden:
                warn_of_hidden(hidden, start, client)
            ends = planner.to_latest({tp: offset for tp, offset in end.items() if tp not in hidden})
            if self._narrowing is not None:
                start, end = planner.narrowed(start, end, self._narrowing)
                ends = {tp: offset for tp, offset in ends.items() if end.get(tp) == offset}
            warn_of_rest(planner.waiting(ends), ends, client, self._options.lag_warning_after_ms)
            return [RangePartition(piece) for piece in planner.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, is_last=True)


class FilteringBatchReader(BatchReader):
    """The reader of the part of topics that can pass the query's filters."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Remember where rows can be, and leave the evaluation of every filter to Spark."""
        self._narrowing = narrowing(filters)
        return filters


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the kind of reader that user and Spark allow.

    Spark refuses every reader with `pushFilters` while spark.sql.python.filterPushdown.enabled is off, as it is by
    default; the program that asks shows which of the two it is.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    offered = _FILTERING_PROGRAM in sys.modules or (main is not None and main.name == _FILTERING_PROGRAM)
    return (FilteringBatchReader if offered and filter_pushdown(options) else BatchReader)(options, schema)


@message_first
class StreamReader(SentToTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The micro-batch reader; the checkpoint stores the offsets, in the format of Spark's own source."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = stream_options(options)
        refuse_other_schema(schema, self._options.include_headers)
        self._driver_side: DriverSide | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the driver's connections."""
        return self.__dict__ | {"_driver_side": None}

    @property
    def _driver(self) -> DriverSide:
        if self._driver_side is None:
            self._driver_side = DriverSide(self._options, process_state())
        return self._driver_side

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name, as those below)
        """Return where a query without a checkpoint starts; nothing if that cannot be known now.

        Spark asks before it runs a first micro-batch of an earlier run again, whose start is in the checkpoint.
        """
        return dict(self._driver.first_start().to_json())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the current ends; the query stops there."""
        self._driver.outages.wait_out(self._driver.remember_target)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return where the next micro-batch ends: within the limit and never past the last stable offset.

        PySpark 4.0 and 4.1 pass neither a start nor a limit.
        """
        driver = self._driver
        if start is None or limit is None:
            return dict(driver.outages.wait_out(driver.next_end_from_position).to_json())
        known = SourceOffset.from_json(start)
        return dict(driver.outages.wait_out(partial(driver.next_end, known, limit)).to_json())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        latest = self._driver.latest
        return dict(to_json_offsets(latest)) if latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        driver, begin, until = self._driver, SourceOffset.from_json(start), SourceOffset.from_json(end)
        if begin == until:
            # At a restart, PySpark 4.0 and 4.1 show where the checkpoint ends in this way, and read nothing.
            driver.position = until
            return []
        pieces = driver.outages.wait_out(partial(driver.plan, begin, until))
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, is_last=False)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint has the offsets, and Spark does not report a query's last micro-batch here."""

    def stop(self) -> None:
        driver, self._driver_side = self._driver_side, None
        if driver is not None:
            driver.close()


@message_first
class RefusedStream(SentToTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a query whose options are refused, which it says when Spark calls it first.

    Of an error while a reader is made, PySpark makes another: it stops the reader that it does not have.
    """

    def __init__(self, error: EosKafkaError) -> None:
        self._error = error

    def refuse(self, *_: object) -> NoReturn:
        raise self._error

    initialOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = refuse  # noqa: N815 (Spark's names)
    latestOffset = partitions = read = refuse  # type: ignore[assignment] # noqa: N815


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the micro-batch reader, or a reader that refuses the options."""
    try:
        return StreamReader(options, schema)
    except EosKafkaError as error:
        return RefusedStream(error)
