"""The readers that Spark calls: one for batch queries and one for micro-batch streams.

Spark creates several reader objects for one query, pickles some of them and calls each from one process only. A reader
therefore connects at first use and is pickled without a connection.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn, cast

import pyarrow as pa
from pyspark.sql.types import StructType

from broker_core.types import TopicPartition, counted
from spark_eos import failpoints
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.errors import EosKafkaError, OptionError
from spark_eos.message_first import message_first
from spark_eos.metrics import SOURCE_METRICS
from spark_eos.metrics_export.sender import check_exportable, publish
from spark_eos.metrics_export.store import offsets_digest
from spark_eos.options.source import SourceOptions, batch_options, filter_pushdown, stream_options
from spark_eos.runtime import now_ms, process_state
from spark_eos.sent_to_tasks import SentToTasks
from spark_eos.source.admission_control import AdmissionControl
from spark_eos.source.available_now import check_micro_batch
from spark_eos.source.data_loss import DataLossPolicy
from spark_eos.source.group_commits import GroupCommits
from spark_eos.source.lag import LagWatch, show_lag
from spark_eos.source.lso_stalls import LsoStallWarnings
from spark_eos.source.offsets import OffsetMap, SourceOffset, to_json_offsets
from spark_eos.source.outages import Outages
from spark_eos.source.planner import Planner
from spark_eos.source.pushdown import Narrowing, narrowing
from spark_eos.source.range_reader import read_range
from spark_eos.source.rewritten_logs import RewrittenLogs
from spark_eos.source.schema import refuse_other_schema
from spark_eos.source.splits import OffsetRange
from spark_eos.spark_api import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from spark_eos.transactions.judge import name_blocker
from spark_eos.worker_memory import spare_modules

logger = logging.getLogger(__name__)

# Spark may end this process when the query has stopped.
_STOP_WAIT_SECONDS: Final = 1.0
# The program in which Spark asks readers to handle a query's filters.
_FILTERING_PROGRAM: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class RangePartition(InputPartition):
    """One range, as passed to the task that reads it."""

    def __init__(self, piece: OffsetRange) -> None:
        super().__init__(piece)

    @property
    def piece(self) -> OffsetRange:
        return cast(OffsetRange, self.value)


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    failpoints.enter(options.client.client_id)
    spare_modules(process_state())
    # Spark creates an empty partition if none was planned.
    return read_range(partition.piece, options) if isinstance(partition, RangePartition) else iter(())


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
        with KafkaClient(self._options.client) as client:
            planner = Planner(OffsetLookup(client), self._options)
            start, end, hidden = planner.batch_bounds()
            if hidden:
                _warn_of_hidden(hidden, start, client)
            if self._narrowing is not None:
                start, end = planner.narrowed(start, end, self._narrowing)
            return [RangePartition(piece) for piece in planner.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


def _warn_of_hidden(hidden: Sequence[TopicPartition], start: OffsetMap, client: KafkaClient) -> None:
    first, others = hidden[0], len(hidden) - 1
    logger.warning(
        "%s%s: an open transaction hides all records from the start of the read, offset %d, so nothing is read "
        "there. %s",
        first, f" and {counted(others, 'more partition')}" if others else "", start[first],
        name_blocker(client, first),
    )  # fmt: skip


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
        self._driver_side: _DriverSide | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the driver's connections."""
        return self.__dict__ | {"_driver_side": None}

    @property
    def _driver(self) -> "_DriverSide":
        if self._driver_side is None:
            self._driver_side = _DriverSide(self._options)
        return self._driver_side

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name, as those below)
        """Return where a query without a checkpoint starts; nothing if that cannot be known now.

        Spark asks before it runs a first micro-batch of an earlier run again, whose start is in the checkpoint.
        """
        return dict(self._driver.first_start().to_json())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return AdmissionControl(self._options).default_limit()

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
        """Return the ends seen last, for the query's progress."""
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
        return _read(partition, self._options)

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
    """Return the micro-batch reader, or the one that refuses the options."""
    try:
        return StreamReader(options, schema)
    except EosKafkaError as error:
        return RefusedStream(error)


class _DriverSide:
    """What only the driver has: a client, the limits' clock, the target of AvailableNow, the ends seen last."""

    def __init__(self, options: SourceOptions) -> None:
        failpoints.enter(options.client.client_id)
        check_exportable(options.metrics)
        self._metrics = options.metrics
        self._labels = {"query": options.metrics_query, "source": options.subscription_name}
        publish(self._metrics)
        self.client = KafkaClient(options.client)
        lookup = OffsetLookup(self.client)
        self.planner = Planner(lookup, options)
        self.outages = Outages(options.outage_timeout_ms)
        self.latest: OffsetMap = {}
        self._there: OffsetMap = {}
        self._admission = AdmissionControl(options)
        if options.log_lag:
            show_lag()
        self._warnings = LsoStallWarnings(options.client)
        self._lag = LagWatch(options.lag_warning_after_ms, self._warnings.report)
        self._rewritten = RewrittenLogs(lookup, DataLossPolicy(options.fail_on_data_loss))
        # Of Trigger.AvailableNow: the ends when the query began, and the ends that the next micro-batch may have.
        self._target: OffsetMap | None = None
        self._available: OffsetMap = {}
        self._admitted: SourceOffset | None = None
        self._first_start: SourceOffset | None = None
        self._start_error: EosKafkaError | None = None
        # Whether a micro-batch was planned: a later one can begin where the start would be resolved now.
        self._is_begun = False
        # For a Spark that does not pass a start to `latestOffset`: where the last planned micro-batch ends.
        self.position: SourceOffset | None = None
        group_id = options.commit_group_id
        self._group_commits = None if group_id is None else GroupCommits(self.client, group_id)

    def close(self) -> None:
        with SOURCE_METRICS.subject(**self._labels):
            SOURCE_METRICS.clear_gauges()
        publish(self._metrics, _STOP_WAIT_SECONDS)
        self._warnings.close()
        self.client.close()

    def first_start(self) -> SourceOffset:
        """Resolve the start once; Spark asks twice for it, and plans with the second answer."""
        if self._first_start is None:
            try:
                self._first_start = SourceOffset(self.planner.starting_offsets(), self.planner.topic_ids())
            except EosKafkaError as error:
                self._first_start, self._start_error = SourceOffset({}), error
        return self._first_start

    def plan(self, start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        begins = self._begins(start, end)
        # A micro-batch that was in the checkpoint when the query began was planned against other ends.
        if self._target is not None and end == self._admitted:
            check_micro_batch(end.offsets, self._available, self._there)
        with self._measured():
            planned = self.planner.plan(begins, end.offsets, end.topic_ids)
            size = sum(piece.size for piece in planned)
            SOURCE_METRICS.add("micro_batches_planned")
            SOURCE_METRICS.add("offsets_planned", size)
            SOURCE_METRICS.report(
                end=offsets_digest(to_json_offsets(end.offsets)), offsets_planned=size, **self._lag.totals
            )
        self.position, self._is_begun = end, True
        return planned

    def _begins(self, start: SourceOffset, end: SourceOffset) -> OffsetMap:
        """Return where a micro-batch begins; Spark stores its end, but not the start of a source's first one."""
        if end.first_start is not None:
            return end.first_start
        if start == self._first_start and not self._is_begun:
            return self._first_begins(start, end)
        # Topics that were created again are read from their first record, as added ones.
        return {
            tp: offset
            for tp, offset in start.offsets.items()
            if not start.is_other_topic(tp.topic, end.topic_ids.get(tp.topic))
        }

    def _first_begins(self, start: SourceOffset, end: SourceOffset) -> OffsetMap:
        """Return where a first micro-batch begins that Spark's own source or an earlier version has planned.

        Partitions added since are in the start and not in the end. They are not deleted: the next micro-batch reads
        them from their first record.
        """
        if self._start_error is not None:
            raise self._start_error
        if self.planner.start_moves:
            raise OptionError(
                "The first micro-batch has to run again, and the checkpoint does not contain where it starts",
                checked="It was planned by Spark's own source or by an earlier version, and ends at "
                f"{json.dumps(to_json_offsets(end.offsets))}. The options start at 'latest', which is later by now",
                remedy="Set the options for the start to what they were then. If that was 'latest' too, set "
                "startingOffsets to the offsets in the checkpoint's file sources/0/0 if Spark's own source wrote it, "
                "and to the end above otherwise: an earlier version began with an empty micro-batch there",
            )
        return {tp: offset for tp, offset in start.offsets.items() if tp in end.offsets}

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Count for this source, and send the metrics."""
        with SOURCE_METRICS.subject(**self._labels):
            try:
                yield
            finally:
                SOURCE_METRICS.set("updated_timestamp_seconds", now_ms(process_state().runtime.clock) // 1000)
                publish(self._metrics)

    def remember_target(self) -> None:
        self._target = self.latest = self.planner.latest(SourceOffset({}))

    def next_end_from_position(self) -> SourceOffset:
        """Return the next end for a Spark that calls `latestOffset` without a start and a limit.

        A query that is restarted has planned its checkpoint's last micro-batch before, and a new one calls
        `initialOffset` afterwards.
        """
        start = self.first_start() if self.position is None else self.position
        return self.next_end(start, self._admission.default_limit())

    def next_end(self, start: SourceOffset, limit: ReadLimit) -> SourceOffset:
        failpoints.reach("source.before_plan")
        is_first = start == self._first_start and not self._is_begun
        if is_first and self._start_error is not None:
            raise self._start_error
        if self._group_commits is not None:
            # Spark requests the next end when everything up to `start` is in its commit log.
            self._group_commits.commit(start.offsets)
        self._there = self.planner.latest(start, self._target)
        known = self.planner.still_there(start)
        available = self._there if self._target is None else self._within_target(known)
        self.latest = self._available = available
        with SOURCE_METRICS.subject(**self._labels):
            self.planner.report_doubts(start, self._target or ())
            self._rewritten.check(known, self.planner.places, self.planner.ends)
        added = available.keys() - known.keys()
        begins = known | self.planner.earliest(added) if added else known
        end = self._admission.admit(begins, available, limit, may_wait=self._target is None)
        if self._lag.is_due(has_read=end != begins):
            with self._measured():
                self._lag.observe(
                    known, self._there, self.planner.high_watermarks(self._there.keys() & self.planner.places)
                )
        if end == begins and known == start.offsets:
            # Added partitions without records need no micro-batch.
            end = known
        ids = {**start.topic_ids, **self.planner.topic_ids()}
        topics = {tp.topic for tp in end}
        admitted = SourceOffset(end, {topic: ids[topic] for topic in topics & ids.keys()}, known if is_first else None)
        is_news = is_first or (admitted.offsets, admitted.topic_ids) != (start.offsets, start.topic_ids)
        self._admitted = admitted if is_news else start
        return self._admitted

    def _within_target(self, known: OffsetMap) -> OffsetMap:
        """Return what Trigger.AvailableNow may read: the ends when the query began."""
        assert self._target is not None
        verdict = self.planner.verdict
        in_doubt = verdict.kept - verdict.gone
        # The first answer may have lacked partitions of the checkpoint. The ends of a topic that was created again may
        # belong to the old one. They are in the checkpoint when they are checked, so a restart would wait for records
        # that do not exist.
        again = verdict.recreated
        now = {tp: end for tp, end in self._there.items() if tp in again or (tp in known and tp not in verdict.kept)}
        self._target = now | {tp: end for tp, end in self._target.items() if tp not in again}
        # What was there when the query began and is gone now is an error; see `check_micro_batch`.
        self._there = {tp: offset for tp, offset in self._there.items() if tp not in verdict.gone & self._target.keys()}
        ends = self.planner.not_behind(self._target, known)
        return ends | {
            tp: offset for tp, offset in known.items() if tp in in_doubt or (tp in verdict.kept and tp not in ends)
        }
