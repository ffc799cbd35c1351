"""A partition's timeline that is followed: the first look reads the end of the log, later ones what is new."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.admin.timeline_log import LogReading, PlainStretch, Timeline, TransactionBar
from spark_eos.client.fetch import OffsetsGoneError, RangeFetch
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.errors import BrokerError, TopicError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.options.positions import EARLIEST, LATEST
from spark_eos.options.source import FetchLimits
from spark_eos.transactions.findings import NOT_JUDGED, HangingFinding, unknown_finding
from spark_eos.transactions.judge import open_transactions

DEFAULT_LAST_OFFSETS: Final = 10_000
MOST_LAST_OFFSETS: Final = 1_000_000
_LIMITS: Final = FetchLimits(
    max_bytes=16 << 20, partition_max_bytes=8 << 20, min_bytes=1, max_wait_ms=100, poll_timeout_ms=15_000
)
_MOST_READ_BYTES: Final = 64 << 20


class TimelineFollower:
    """The section of one partition's log that a page shows; used by one thread at a time."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        last: int,
        commands: OperatorCommands,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.topic_partition, self.last = topic_partition, last
        self._commands, self._clock = commands, clock
        self._reading = LogReading()
        self._start: int | None = None
        self._position = 0

    def take(
        self, client: KafkaClient, owner: Callable[[int], str | None], judged: Iterable[HangingFinding] = ()
    ) -> Timeline:
        """Read what is new, and return the section up to the high watermark, with what the console has judged."""
        tp, lookup = self.topic_partition, OffsetLookup(client)
        place = lookup.places([tp.topic]).get(tp)
        if place is None:
            raise TopicError(f"Partition {tp} does not exist")
        # The high watermark first: what is stable beyond it does not count as blocked.
        high_watermark = _known(lookup.offsets({tp: LATEST}, IsolationLevel.READ_UNCOMMITTED), tp)
        stable = min(_known(lookup.offsets({tp: LATEST}, IsolationLevel.READ_COMMITTED), tp), high_watermark)
        log_start = _known(lookup.offsets({tp: EARLIEST}, IsolationLevel.READ_UNCOMMITTED), tp)
        if self._start is None or high_watermark < self._position:
            self._reading = LogReading()
            self._start = self._position = max(log_start, high_watermark - self.last)
        fetch = RangeFetch(client, tp, place, IsolationLevel.READ_UNCOMMITTED, _LIMITS)
        try:
            self._read(fetch, high_watermark)
        except OffsetsGoneError as gone:
            self._start = None
            raise BrokerError(
                f"Cannot read {tp} from offset {gone.position}: {gone.reason.value}",
                remedy="The next look begins again",
            ) from gone
        opened = open_transactions(ProducerScan(client), [tp])
        ended = self._reading.add_open(tp, opened, self._start)
        known = {each.transaction.name: each for each in judged}
        findings = {
            each.producer.producer_id: known.get(each.name) or unknown_finding(each, NOT_JUDGED) for each in opened
        }
        self._trim(high_watermark)
        return Timeline(
            tp,
            int(self._clock() * 1000),
            self._commands,
            self._start,
            log_start,
            stable,
            high_watermark,
            self._reading.transactions,
            self._reading.plain,
            {bar.producer_id: name for bar in self._reading.transactions if (name := owner(bar.producer_id))},
            findings | ended,
        )

    def unread(self, timeline: Timeline) -> int:
        """Return how many offsets the next looks have to read."""
        return max(0, timeline.high_watermark - self._position)

    def _read(self, fetch: RangeFetch, end: int) -> None:
        """Read on, up to a limit: a page must not wait for gigabytes."""
        size_bytes = 0
        for chunk in fetch.chunks(self._position, end):
            self._reading.take([chunk])
            self._position = chunk.next_position
            size_bytes += len(chunk.data)
            if size_bytes > _MOST_READ_BYTES:
                return
        self._position = max(self._position, end)

    def _trim(self, high_watermark: int) -> None:
        """Drop what has ended before the section, which moves with the log."""
        start = max(self._start or 0, high_watermark - self.last)
        self._start = start

        def stays(each: TransactionBar) -> bool:
            return each.marker_offset is None or each.marker_offset >= start

        def is_in(each: PlainStretch) -> bool:
            return each.last_offset >= start

        self._reading.transactions[:] = [each for each in self._reading.transactions if stays(each)]
        self._reading.plain[:] = [each for each in self._reading.plain if is_in(each)]


def _known(answers: Mapping[TopicPartition, int | None], topic_partition: TopicPartition) -> int:
    offset = answers.get(topic_partition)
    if offset is None:
        raise TopicError(f"{topic_partition} was deleted while it was read", remedy="Try again")
    return offset
