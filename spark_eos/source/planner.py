"""The plan of what is read: the partitions, and the offset ranges in them.

Ends come from ListOffsets at the query's isolation level, which for read_committed is the last stable offset (LSO): no
plan ever crosses it, so a task never waits for a transaction to end. There are two kinds of "end before start": a start
between the LSO and the high watermark waits for an open transaction, and a start above the high watermark is in a log
that was truncated or created again.
"""

import logging
import math
from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from broker_core.types import NO_LEADER_EPOCH, IsolationLevel, TopicPartition, counted
from spark_eos.client.offset_lookup import LogPoint, OffsetLookup, PartitionPlace
from spark_eos.errors import AuthorizationError, BrokerError, EosKafkaError, OptionError, TopicError
from spark_eos.options.positions import (
    EARLIEST,
    LATEST,
    Assign,
    Edge,
    Offsets,
    Position,
    Subscribe,
    SubscribePattern,
    Timestamp,
    Timestamps,
    is_latest,
    refuse_mismatch,
)
from spark_eos.options.source import NoMatch, SourceOptions
from spark_eos.source.data_loss import DataLoss, DataLossPolicy
from spark_eos.source.doubted_partitions import DoubtedPartitions, JudgedPartitions, includes
from spark_eos.source.earlier_leaders import earlier_leader_error, earlier_leaders
from spark_eos.source.offsets import OffsetMap, OffsetRange, SourceOffset, split_ranges
from spark_eos.source.pushdown import Narrowing

logger = logging.getLogger(__name__)

# The pauses before a topic that no answer has named is looked up again; together as long as the sink's grace.
_LOOKS_SECONDS: Final = (0.1, 0.2, 0.4, 0.5, 0.8)


class Planner:
    """The conversion of positions to offsets and of offsets to ranges."""

    def __init__(self, lookup: OffsetLookup, options: SourceOptions) -> None:
        self._lookup = lookup
        self._options = options
        self._clock = lookup.clock
        self._losses = DataLossPolicy(options.fail_on_data_loss)
        self._max_age_seconds = options.metadata_max_age_ms / 1_000
        self._good_until = self._listed_until = -math.inf
        self._matching: list[str] = []
        self.doubts = DoubtedPartitions(lookup, options)
        self._refusal: EosKafkaError | None = None
        self.verdict = JudgedPartitions()
        self.places: dict[TopicPartition, PartitionPlace] = {}
        self.ends: dict[TopicPartition, LogPoint] = {}

    def partitions(self) -> dict[TopicPartition, PartitionPlace]:
        """Return the partitions the query subscribes to, as of at most `kafka.metadata.max.age.ms` ago."""
        if self._clock.monotonic() >= self._good_until:
            try:
                self.places, self._refusal = self._find_partitions(), None
            except (AuthorizationError, BrokerError, TopicError) as error:
                # One answer: callers look again, and this is raised if nothing better comes.
                self.places, self._refusal = {}, error
            self.ends = {tp: end for tp, end in self.ends.items() if tp in self.places}
            self._good_until = self._clock.monotonic() + self._max_age_seconds
        return self.places

    def _find_partitions(self) -> dict[TopicPartition, PartitionPlace]:
        subscription = self._options.subscription
        if isinstance(subscription, Assign):
            places = self._lookup.places({tp.topic for tp in subscription.partitions}, compare=True)
            return {tp: places[tp] for tp in subscription.partitions if tp in places}
        if isinstance(subscription, Subscribe):
            return self._lookup.places(subscription.topics, compare=True)
        # Listing topics makes a broker describe all partitions of its cluster.
        if self._clock.monotonic() < self._listed_until:
            return self._lookup.places(self._matching)
        places = self._lookup.places_matching(subscription.matches)
        self._matching = sorted({tp.topic for tp in places})
        self._listed_until = self._clock.monotonic() + self._max_age_seconds
        return places

    def known_partitions(self) -> dict[TopicPartition, PartitionPlace]:
        """Return the partitions a query starts with; a topic named by the user must exist."""
        for seconds in _LOOKS_SECONDS:
            if not self._missing(self.partitions()):
                break
            self._clock.sleep(seconds)
            self._good_until = -math.inf
        places = self.partitions()
        if missing := self._missing(places):
            self._good_until = -math.inf
            if self._refusal is not None:
                raise self._refusal
            raise OptionError(
                f"Unknown topic or partition: {', '.join(missing)}",
                checked=f"Asked the brokers at {', '.join(self._options.client.bootstrap_servers)}",
                remedy="Create it, or correct the option subscribe or assign",
            )
        return places

    def _missing(self, places: Collection[TopicPartition]) -> list[str]:
        """Return what the user named and no broker did; of a pattern, that brokers refused to answer."""
        subscription = self._options.subscription
        if isinstance(subscription, Assign):
            return [str(tp) for tp in subscription.partitions if tp not in places]
        if isinstance(subscription, Subscribe):
            found = {tp.topic for tp in places}
            return [topic for topic in subscription.topics if topic not in found]
        return [] if self._refusal is None else [subscription.pattern]

    def topic_ids(self) -> dict[str, UUID]:
        return {tp.topic: place.topic_id for tp, place in self.places.items() if place.topic_id is not None}

    def starting_offsets(self) -> OffsetMap:
        """Resolve where the query starts; a given offset must be in the log."""
        partitions = self.known_partitions()
        position = self._options.starting
        if isinstance(position, Timestamp | Timestamps):
            offsets = self._at_timestamps(position, partitions, "starting", self._options.starting_no_match)
            return self._within_log(offsets) if self.start_moves else offsets
        offsets = self._at_offsets(position, partitions, "starting")
        offsets |= self._within_log({tp: offset for tp, offset in offsets.items() if is_latest(position, tp)})
        return self._checked_start(offsets) if isinstance(position, Offsets) else offsets

    @property
    def start_moves(self) -> bool:
        """Return whether resolving the start again later gives another result as soon as records are written."""
        starting = self._options.starting
        if isinstance(starting, Edge):
            return starting.offset == LATEST
        if isinstance(starting, Offsets):
            return LATEST in starting.offsets.values()
        return self._options.starting_no_match is NoMatch.LATEST

    def ending_offsets(self) -> OffsetMap:
        """Resolve where a batch query ends; never past the last stable offset."""
        # The partitions of the start, so that one answer cannot make partitions look deleted in between.
        partitions = self.places or self.known_partitions()
        position = self._options.ending
        if isinstance(position, Timestamp | Timestamps):
            return self._at_timestamps(position, partitions, "ending", NoMatch.LATEST)
        offsets = self._at_offsets(position, partitions, "ending")
        return self._checked_end(offsets) if isinstance(position, Offsets) else offsets

    def batch_bounds(self) -> tuple[OffsetMap, OffsetMap, list[TopicPartition]]:
        """Resolve where a batch query starts and ends, and the partitions of which a transaction hides all it reads.

        Their last stable offset lies before the start; before the log start, too, if records of the open transaction
        were deleted.
        """
        start, end = self.starting_offsets(), self.ending_offsets()
        behind = _behind(end, start)
        if not behind:
            return start, end, []
        stable, log_starts = self._edges(behind, LATEST), self.earliest(behind)
        hidden = {tp: end[tp] for tp in behind if is_latest(self._options.ending, tp) or end[tp] == stable.get(tp)}
        deleted = sorted(set(behind) - hidden.keys())
        for tp in deleted:
            if start[tp] != log_starts.get(tp):
                raise OptionError(
                    f"The read of {tp} starts at offset {start[tp]} and ends before that, at {end[tp]}",
                    checked="The options for the start and the end, as offsets of the current log",
                    remedy="Choose a start that is not after the end",
                )
            self._losses.report(
                DataLoss.COULD_NOT_READ_OFFSET_RANGE,
                f"the read of {tp} ends at offset {end[tp]}, and the log begins at {start[tp]}",
            )
        raised = self.not_behind(hidden, start)
        end |= raised | {tp: start[tp] for tp in deleted}
        return start, end, [tp for tp in sorted(raised) if raised[tp] == start[tp]]

    def waiting(self, ends: Mapping[TopicPartition, int], marks: OffsetMap | None = None) -> list[TopicPartition]:
        """Return the partitions with more records than are read up to these last stable offsets.

        `marks` are the high watermarks, which are looked up without it. None is found if brokers do not answer: what to
        read is known.
        """
        if self._options.isolation is IsolationLevel.READ_UNCOMMITTED or not ends:
            return []
        try:
            found = self.high_watermarks(ends) if marks is None else marks
        except EosKafkaError as error:
            logger.info("It is not known whether an open transaction ends the read: %s", error)
            return []
        return [tp for tp, offset in sorted(ends.items()) if offset < found.get(tp, offset)]

    def to_latest(self, ends: Mapping[TopicPartition, int]) -> OffsetMap:
        """Return the ends of those partitions that a batch query reads to their last stable offset."""
        return {tp: offset for tp, offset in ends.items() if is_latest(self._options.ending, tp)}

    def earliest(self, partitions: Collection[TopicPartition]) -> OffsetMap:
        return self._edges(partitions, EARLIEST)

    def latest(self, known: SourceOffset, at_least: Mapping[TopicPartition, int] | None = None) -> OffsetMap:
        """Return the ends of all current partitions, never before a `known` offset that is still in the log.

        A known partition that is in doubt ends where it is known to end, and one that is gone is left out; `verdict`
        says which they are. An end below `at_least` is older than an earlier answer, and is requested again.

        Without known offsets, the partitions are read now. An idle query, which triggers many times a second, uses
        partitions that are up to `kafka.metadata.max.age.ms` old: it reads a new one that much later.
        """
        may_be_old = self._clock.monotonic() < self._good_until
        latest = self._latest(known, at_least or {})
        if latest != known.offsets:
            if may_be_old:
                self._good_until = -math.inf
                latest = self._latest(known, at_least or {})
            # A query that has data to read will probably have data at the next trigger too.
            self._good_until = -math.inf
        return latest

    def _latest(self, known: SourceOffset, at_least: Mapping[TopicPartition, int]) -> OffsetMap:
        """Request the ends; a broker can return older offsets than last time (KAFKA-7703)."""
        places = self.partitions()
        self.verdict = verdict = self.doubts.judge(known, places)
        self.places = {tp: place for tp, place in places.items() if tp not in verdict.kept} | verdict.found
        still = self.still_there(known)
        seen = still | {tp: max(offset, still.get(tp, offset)) for tp, offset in at_least.items()}
        before = dict(self.ends)
        latest = self._edges(self.places, LATEST)
        for _ in range(self._options.offset_retries):
            behind = _behind(latest, seen)
            if not behind:
                break
            self._clock.sleep(self._options.offset_retry_interval_ms / 1_000)
            latest |= self._edges(behind, LATEST)
        looks = iter(_LOOKS_SECONDS)
        while earlier := earlier_leaders(latest, self.ends, before, known, self.places):
            if (seconds := next(looks, None)) is None:
                self.ends = before
                raise earlier_leader_error(earlier)
            self._clock.sleep(seconds)
            self.places |= self._lookup.newest_places(earlier)
            latest |= self._edges(earlier, LATEST)
        # A new partition starts at its first record, which can lie above the last stable offset.
        added = latest.keys() - seen.keys()
        latest = self.not_behind(latest, seen | self.earliest(added) if added else seen)
        return {tp: offset for tp, offset in still.items() if tp not in verdict.dropped} | latest

    def still_there(self, known: SourceOffset) -> OffsetMap:
        """Return the known offsets, without topics that were deleted and created again."""
        return {tp: offset for tp, offset in known.offsets.items() if tp not in self.verdict.recreated}

    def not_behind(self, latest: OffsetMap, known: Mapping[TopicPartition, int]) -> OffsetMap:
        """Raise ends to the known offset if it lies between LSO and high watermark: a transaction is open there."""
        behind = _behind(latest, known)
        marks = self.high_watermarks(behind) if behind else {}
        return latest | {tp: known[tp] for tp in behind if known[tp] <= marks.get(tp, -1)}

    def _within_log(self, offsets: OffsetMap) -> OffsetMap:
        """Raise ends that lie below the log start: records of an open transaction were deleted."""
        return self.not_behind(offsets, self.earliest(offsets))

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> OffsetMap:
        answers = self._lookup.offsets(dict.fromkeys(partitions, LATEST), IsolationLevel.READ_UNCOMMITTED)
        return {tp: offset for tp, offset in answers.items() if offset is not None}

    def plan(
        self,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, UUID] | None = None,
        end_epochs: Mapping[TopicPartition, int] | None = None,
    ) -> list[OffsetRange]:
        """Return the ranges between two offset maps, split for Spark's tasks; report data that is lost between them.

        `end_epochs` are the epochs of leaders that had the ends, if they are known from before.
        """
        deleted = start.keys() - end.keys()
        left_out = {tp for tp in deleted if not includes(self._options.subscription, tp)}
        if left_out:
            self.doubts.report_not_subscribed(start, left_out)
        if deleted - left_out:
            self._losses.report(DataLoss.PARTITIONS_DELETED, ", ".join(map(str, sorted(deleted - left_out))))
        begins = {tp: offset for tp, offset in start.items() if tp in end} | self._added(end.keys() - start.keys())
        # The ids of the topics whose ends these are: a task has to detect a topic that was created again since.
        topic_ids = topic_ids or {}
        places = self.places
        if not begins.keys() <= places.keys():
            places = self._lookup.places(sorted({tp.topic for tp in begins}))
        ranges = []
        for tp, begin in sorted(begins.items()):
            if end[tp] < begin:
                self._losses.report(
                    DataLoss.PARTITION_OFFSET_CHANGED, f"Partition {tp}'s offset was changed from {begin} to {end[tp]}"
                )
            place = places.get(tp, PartitionPlace())
            place = place._replace(topic_id=topic_ids.get(tp.topic, place.topic_id))
            named = self.ends.get(tp, LogPoint())
            named_epoch = named.leader_epoch if end[tp] <= named.offset else NO_LEADER_EPOCH
            end_epoch = (end_epochs or {}).get(tp, named_epoch)
            ranges.append(OffsetRange(tp.topic, tp.partition, begin, end[tp], *place, end_epoch))
        return split_ranges(
            ranges, min_partitions=self._options.min_partitions, max_records=self._options.max_records_per_partition
        )

    def narrowed(self, start: OffsetMap, end: OffsetMap, narrowing: Narrowing) -> tuple[OffsetMap, OffsetMap]:
        """Leave out partitions, and shorten ranges, of which no row can pass the query's filters."""
        wanted = {tp: offset for tp, offset in start.items() if narrowing.keeps(tp)}
        # One without an end is gone, which the plan reports.
        gone = {tp: offset for tp, offset in wanted.items() if tp not in end}
        kept = {tp: narrowing.narrowed(offset, end[tp]) for tp, offset in wanted.items() if tp in end}
        kept = {tp: (begin, until) for tp, (begin, until) in kept.items() if begin < until}
        if narrowing.since_ms is not None and kept:
            young = self._lookup.offsets(dict.fromkeys(kept, narrowing.since_ms), self._options.isolation)
            # A partition that no longer exists keeps its range, so that its task reports the loss.
            kept = {
                tp: (first, until)
                for tp, (begin, until) in kept.items()
                if (found := young.get(tp, begin)) is not None and (first := max(begin, found)) < until
            }
        logger.info("The query's filters select %d of %s", len(kept), counted(len(start), "partition"))
        return gone | {tp: begin for tp, (begin, _) in kept.items()}, {tp: until for tp, (_, until) in kept.items()}

    def _added(self, partitions: Collection[TopicPartition]) -> OffsetMap:
        """Start added partitions at their first record, whatever startingOffsets is: they are new data."""
        if not partitions:
            return {}
        first = self.earliest(partitions)
        unknown = sorted(set(partitions) - first.keys())
        if unknown:
            self._losses.report(DataLoss.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS, ", ".join(map(str, unknown)))
        late = {tp: offset for tp, offset in first.items() if offset != 0}
        for tp, offset in sorted(late.items()):
            self._losses.report(DataLoss.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO, f"{tp} starts at {offset}")
        return first

    def _edges(self, partitions: Collection[TopicPartition], edge: int) -> OffsetMap:
        answers = self._lookup.offsets(dict.fromkeys(partitions, edge), self._options.isolation)
        found = {tp: offset for tp, offset in answers.items() if offset is not None}
        if edge == LATEST:
            self.ends |= {tp: LogPoint(self._lookup.answered_epoch(tp), offset) for tp, offset in found.items()}
        return found

    def _at_offsets(self, position: Edge | Offsets, partitions: Collection[TopicPartition], side: str) -> OffsetMap:
        if isinstance(position, Edge):
            offsets = self._edges(partitions, position.offset)
        else:
            refuse_mismatch(position.offsets, partitions, f"{side}Offsets")
            offsets = {tp: offset for tp, offset in position.offsets.items() if offset not in (EARLIEST, LATEST)}
            for edge in (EARLIEST, LATEST):
                offsets |= self._edges([tp for tp, offset in position.offsets.items() if offset == edge], edge)
        self._report_deleted(set(partitions) - offsets.keys())
        return offsets

    def _at_timestamps(
        self, position: Position, partitions: Collection[TopicPartition], side: str, no_match: NoMatch
    ) -> OffsetMap:
        if isinstance(position, Timestamps):
            refuse_mismatch(position.timestamps_ms.keys(), partitions, f"{side}OffsetsByTimestamp")
            timestamps_ms = dict(position.timestamps_ms)
        else:
            assert isinstance(position, Timestamp)
            timestamps_ms = dict.fromkeys(partitions, position.timestamp_ms)
        # Before the times: what becomes visible between the two answers is then compared with the time.
        ends = self._edges(timestamps_ms, LATEST) if no_match is NoMatch.LATEST else {}
        found = self._lookup.offsets(timestamps_ms, self._options.isolation)
        self._report_deleted(timestamps_ms.keys() - found.keys())
        unmatched = sorted(tp for tp, offset in found.items() if offset is None)
        if unmatched and no_match is NoMatch.ERROR:
            raise OptionError(
                f"No offset matched from request of topic-partition {unmatched[0]} and timestamp "
                f"{timestamps_ms[unmatched[0]]}.",
                checked=f"No committed record with that timestamp or a later one in {len(unmatched)} of "
                f"{counted(len(timestamps_ms), 'partition')}",
                remedy="Choose an earlier time, or set startingOffsetsByTimestampStrategy to latest",
            )
        return ends | {tp: offset for tp, offset in found.items() if offset is not None}

    def _report_deleted(self, deleted: Collection[TopicPartition]) -> None:
        """Report what is gone since the read began, except topics of a pattern: they come and go."""
        if deleted and not isinstance(self._options.subscription, SubscribePattern):
            self._losses.report(DataLoss.PARTITIONS_DELETED, ", ".join(map(str, sorted(deleted))))

    def _checked_start(self, offsets: OffsetMap) -> OffsetMap:
        earliest, high_watermarks = self.earliest(offsets), self.high_watermarks(offsets)
        there = earliest.keys() & high_watermarks.keys()
        self._report_deleted(offsets.keys() - there)
        offsets = {tp: offset for tp, offset in offsets.items() if tp in there}
        beyond = self._at_newest([tp for tp, offset in offsets.items() if offset > high_watermarks[tp]])
        high_watermarks |= self.high_watermarks(beyond)
        for tp, offset in sorted(offsets.items()):
            if offset > high_watermarks[tp] and self._options.fail_on_data_loss:
                raise OptionError(
                    f"startingOffsets for {tp} is {offset}, beyond the end of the log, {high_watermarks[tp]}",
                    checked=f"The log holds [{earliest[tp]}, {high_watermarks[tp]})",
                    remedy="Correct the offset. If it was right once, the topic was deleted and created again, or its "
                    "log was truncated, and records may have been lost: choose where to start in the new log",
                )
            if not earliest[tp] <= offset <= high_watermarks[tp]:
                self._losses.report(
                    DataLoss.START_OFFSET_RESET,
                    f"startingOffsets for {tp} was {offset}, but the log holds [{earliest[tp]}, {high_watermarks[tp]})",
                )
                offsets[tp] = earliest[tp]
        return offsets

    def _at_newest(self, beyond: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Look for newer leaders of partitions: the log of a broker that is cut off may end before theirs."""
        if beyond:
            self.places |= self._lookup.newest_places(beyond)
        return beyond

    def _checked_end(self, offsets: OffsetMap) -> OffsetMap:
        stable = self._edges(offsets, LATEST)
        self._report_deleted(offsets.keys() - stable.keys())
        offsets = {tp: offset for tp, offset in offsets.items() if tp in stable}
        stable |= self._edges(self._at_newest([tp for tp, offset in offsets.items() if offset > stable[tp]]), LATEST)
        beyond = {tp: offset for tp, offset in sorted(offsets.items()) if offset > stable[tp]}
        # An end at the log start asks for nothing, even if the last stable offset lies below.
        stable |= self._within_log({tp: stable[tp] for tp in beyond})
        beyond = {tp: offset for tp, offset in beyond.items() if offset > stable[tp]}
        if not beyond:
            return offsets
        marks = self.high_watermarks(beyond)
        self._report_deleted(beyond.keys() - marks.keys())
        account = ", ".join(
            f"{tp}: requested {beyond[tp]}, readable {stable[tp]}, log end {marks.get(tp, 'unknown')}" for tp in beyond
        )
        if self._options.fail_on_data_loss:
            raise EosKafkaError(
                f"endingOffsets are beyond what can be read now: {account}",
                checked="A transaction in between is still open, or the offsets do not exist yet",
                remedy="Wait for the transaction, use endingOffsets=latest, or set failOnDataLoss=false to read less",
            )
        logger.warning("endingOffsets are beyond what can be read now; reading up to the readable offsets: %s", account)
        return offsets | {tp: stable[tp] for tp in beyond}


def _behind(latest: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return [tp for tp, offset in latest.items() if offset < known.get(tp, 0)]
