"""What a stream reader does on the driver: the plan of each micro-batch, lag, progress commits, outages."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar
from uuid import UUID

from broker_core.types import NO_LEADER_EPOCH, TopicPartition
from spark_eos import failpoints
from spark_eos.client.group_offsets import OffsetAndMetadata, commit_offsets
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import LogPoint, OffsetLookup
from spark_eos.errors import OUTAGES, EosKafkaError, OptionError
from spark_eos.metrics import SOURCE_METRICS
from spark_eos.metrics_export.sender import check_exportable, publish
from spark_eos.metrics_export.store import offsets_digest
from spark_eos.options.source import SourceOptions
from spark_eos.runtime import Clock, ProcessState, now_ms
from spark_eos.source.available_now import check_micro_batch
from spark_eos.source.data_loss import DataLossPolicy, RewrittenLogs
from spark_eos.source.lag import LagWatch, show_lag
from spark_eos.source.lso_stalls import LsoStallWarnings, warn_of_rest
from spark_eos.source.offsets import AdmissionControl, OffsetMap, OffsetRange, SourceOffset, to_json_offsets
from spark_eos.source.planner import Planner
from spark_eos.spark_api import ReadLimit

Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)
# The query waits during the commit.
_COMMIT_TIMEOUT_MS: Final = 5_000
# Brokers delete the offsets of an idle query (offsets.retention.minutes), so it repeats its commit from time to time.
_COMMIT_AGAIN_SECONDS: Final = 600.0
# Spark may end this process when the query has stopped.
_STOP_WAIT_SECONDS: Final = 1.0


class GroupCommits:
    """The commits of a query's progress to a consumer group, for tools that show lag.

    Only the checkpoint determines the position of a query. So the group is written and never read, and a failed commit
    is logged once and blocks nothing: the next micro-batch commits again.
    """

    def __init__(self, client: KafkaClient, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self._clock = client.runtime.clock
        self._committed: Mapping[TopicPartition, int] | None = None
        self._committed_at = 0.0
        self._failing: bool | None = None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit where reading continues, unless the group has it already; a missing response never raises."""
        if offsets == self._committed and self._clock.monotonic() - self._committed_at < _COMMIT_AGAIN_SECONDS:
            return
        try:
            if offsets:
                positions = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
                commit_offsets(self._client, self._group_id, positions, timeout_ms=_COMMIT_TIMEOUT_MS)
        except EosKafkaError as error:
            if not self._failing:
                logger.warning(
                    "The query's offsets could not be committed to group '%s', so lag tools show old ones; the "
                    "query is not affected: %s", self._group_id, error,
                )  # fmt: skip
            self._failing = True
            return
        self._committed, self._committed_at = dict(offsets), self._clock.monotonic()
        if self._failing is not False:
            logger.info("The query's offsets are committed to group '%s' for lag tools", self._group_id)
        self._failing = False


class Outages:
    """The repetition of look-ups that brokers do not answer; each of them has its own timeout, which paces this.

    Nothing is open in Kafka while a source plans, so an outage costs time only. Before the first response of a run
    nothing is waited for: the addresses may be wrong.
    """

    def __init__(self, timeout_ms: int, clock: Clock) -> None:
        self._timeout_seconds = timeout_ms / 1_000
        self._clock = clock
        self._has_answered = False

    def wait_out(self, work: Callable[[], Answer]) -> Answer:
        """Return the result of look-ups, which are repeated until brokers respond or `outageTimeout` is over."""
        began = self._clock.monotonic()
        while True:
            try:
                answer = work()
            except OUTAGES as error:
                waited = self._clock.monotonic() - began
                if not self._has_answered or waited >= self._timeout_seconds:
                    # The query stops; what it asks until then is not waited for again.
                    self._has_answered = False
                    raise
                logger.warning(
                    "The source has waited %.0f s for brokers, at most %.0f s (outageTimeout); no record is lost: %s",
                    waited, self._timeout_seconds, error,
                )  # fmt: skip
                continue
            self._has_answered = True
            return answer


class DriverSide:
    """What only the driver has: a client, the limits' clock, the target of AvailableNow, the ends seen last."""

    def __init__(self, options: SourceOptions, process: ProcessState) -> None:
        failpoints.enter(options.client.client_id)
        self._clock = process.runtime.clock
        check_exportable(options.metrics)
        self._metrics = options.metrics
        self._labels = {"query": options.metrics_query, "source": options.subscription_name}
        publish(self._metrics)
        self.client = KafkaClient(options.client, process.runtime)
        lookup = OffsetLookup(self.client)
        self.planner = Planner(lookup, options)
        self.outages = Outages(options.outage_timeout_ms, self._clock)
        self.latest: OffsetMap = {}
        self._there: OffsetMap = {}
        self._admission = AdmissionControl(options, self._clock)
        if options.log_lag:
            show_lag()
        self._warnings = LsoStallWarnings(options.client, process.runtime)
        self._warn_after_ms = options.lag_warning_after_ms
        self._lag = LagWatch(options.lag_warning_after_ms, self._warnings.report, self._clock)
        self._rewritten = RewrittenLogs(lookup, DataLossPolicy(options.fail_on_data_loss))
        # Of Trigger.AvailableNow: the ends when the query began, and the ends that the next micro-batch may have.
        self._target: OffsetMap | None = None
        self._available: OffsetMap = {}
        self._admitted: SourceOffset | None = None
        self._first_start: SourceOffset | None = None
        self._start_error: EosKafkaError | None = None
        # The end of the micro-batch planned last: a later one can begin where the start would be resolved now. For a
        # source that a query uses twice Spark plans each micro-batch twice.
        self._planned: SourceOffset | None = None
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
                self._first_start = self.outages.wait_out(
                    lambda: SourceOffset(self.planner.starting_offsets(), self.planner.topic_ids())
                )
            except EosKafkaError as error:
                self._first_start, self._start_error = SourceOffset({}), error
        return self._first_start

    def plan(self, start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        begins = self._begins(start, end)
        # A micro-batch that was in the checkpoint when the query began was planned against other ends.
        if self._target is not None and end == self._admitted:
            check_micro_batch(end.offsets, self._available, self._there)
        with self._measured():
            planned = self.planner.plan(begins, end.offsets, end.topic_ids, end.leader_epochs)
            size = sum(piece.size for piece in planned)
            if end != self._planned:
                SOURCE_METRICS.add("micro_batches_planned")
                SOURCE_METRICS.add("offsets_planned", size)
            SOURCE_METRICS.report(
                end=offsets_digest(to_json_offsets(end.offsets)), offsets_planned=size, **self._lag.totals
            )
        self.position = self._planned = end
        return planned

    def _begins(self, start: SourceOffset, end: SourceOffset) -> OffsetMap:
        """Return where a micro-batch begins; Spark stores its end, but not the start of a source's first one."""
        if end.begins is not None:
            return end.begins
        if start == self._first_start and self._planned in (None, end):
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
        with SOURCE_METRICS.subject(**self._labels):
            try:
                yield
            finally:
                SOURCE_METRICS.set("updated_timestamp_seconds", now_ms(self._clock) // 1000)
                publish(self._metrics)

    def remember_target(self) -> None:
        self._target = self.latest = self.planner.latest(SourceOffset({}))

    def next_end_from_position(self) -> SourceOffset:
        """Return the next end for a Spark that calls `latestOffset` without a start and a limit.

        A query that is restarted has planned its checkpoint's last micro-batch before, and a new one calls
        `initialOffset` afterwards.
        """
        start = self.first_start() if self.position is None else self.position
        return self.next_end(start, self._admission.default_limit)

    def next_end(self, start: SourceOffset, limit: ReadLimit) -> SourceOffset:
        failpoints.reach("source.before_plan")
        is_first = start == self._first_start and self._planned is None
        if is_first and self._start_error is not None:
            raise self._start_error
        self._there = self.planner.latest(start, self._target)
        known = self.planner.still_there(start)
        if self._group_commits is not None:
            # Spark requests the next end when everything up to `start` is in its commit log. A commit for a topic that
            # is missing would be repeated until its timeout.
            self._group_commits.commit({tp: offset for tp, offset in known.items() if tp in self.planner.places})
        available = self._there if self._target is None else self._within_target(known)
        with SOURCE_METRICS.subject(**self._labels):
            self.planner.doubts.report(start, self.planner.verdict, self._target or ())
            found = self._rewritten.check(known, self.planner.places, self.planner.ends, start)
        cut = {tp: offset for tp, offset in found.items() if tp in available}
        # The end of a cut log may have been raised to what was read. One before the cut waits for a transaction whose
        # marker is lost; what that hides was read.
        parted = {tp: max(offset, min(available[tp], self.planner.ends[tp].offset)) for tp, offset in cut.items()}
        available |= parted
        if self._target is not None:
            self._target |= parted
        self.latest = self._available = available
        begins = known | cut
        added = available.keys() - known.keys()
        begins |= self.planner.earliest(added) if added else {}
        end = self._admission.admit(begins, available, limit, may_wait=self._target is None)
        if self._lag.is_due(has_read=end != begins):
            try:
                self._measure_lag(known)
            except EosKafkaError as error:
                logger.info("The lag is not known now, but what to read is: %s", error)
        ids = {**start.topic_ids, **self.planner.topic_ids()}
        # Added partitions without records need no micro-batch; one that is made for another reason has them.
        needed = known if end == begins and known == start.offsets else end
        is_news = is_first or cut or (needed, _ids_of(needed, ids)) != (start.offsets, start.topic_ids)
        read = known | cut
        admitted = SourceOffset(
            end, _ids_of(end, ids), read if is_first or cut else None, self._leader_epochs(end, read, start)
        )
        self._admitted = admitted if is_news else start
        return self._admitted

    def _measure_lag(self, known: OffsetMap) -> None:
        with self._measured():
            marks = self.planner.high_watermarks(self._there.keys() & self.planner.places)
            self._lag.observe(known, self._there, marks)
        # A query of Trigger.AvailableNow ends before a standstill would be reported.
        if self._target is not None and self._admitted is None:
            # What was written after the target is read by the next run.
            ends = {tp: offset for tp, offset in self._available.items() if self._there.get(tp) == offset}
            warn_of_rest(self.planner.waiting(ends, marks), ends, self.client, self._warn_after_ms)

    def _leader_epochs(self, end: OffsetMap, read: OffsetMap, start: SourceOffset) -> OffsetMap:
        """Return the epochs of leaders that have had all records before the ends of a micro-batch."""
        found = {}
        for tp, offset in end.items():
            epoch, reached = self.planner.ends.get(tp, LogPoint())
            if (offset > reached or epoch == NO_LEADER_EPOCH) and read.get(tp) == offset:
                epoch = start.leader_epochs.get(tp, NO_LEADER_EPOCH)
            if epoch > NO_LEADER_EPOCH:
                found[tp] = epoch
        return found

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


def _ids_of(offsets: OffsetMap, ids: Mapping[str, UUID]) -> dict[str, UUID]:
    topics = {tp.topic for tp in offsets}
    return {topic: ids[topic] for topic in topics & ids.keys()}
