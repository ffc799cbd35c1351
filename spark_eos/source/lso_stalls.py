"""Warnings of last stable offsets that do not move, with the transactions that block them, at a limited cost.

Identifying a transaction queries every broker, so a thread with its own client does it, and planning never waits for
it. Partitions that one transaction blocks share one warning. However many partitions are blocked, a search identifies
only a few transactions, the next search begins later, and a transaction is not reported again for minutes.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker_core.types import TopicPartition, counted
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.lso_blocker import LsoBlockerSearch
from spark_eos.options.client import ClientOptions

logger = logging.getLogger(__name__)

_MOST_NAMED: Final = 5
_LONGEST_SEARCH_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 60.0
_REPEAT_SECONDS: Final = 600.0
_MOST_PLACES_SHOWN: Final = 3


class LsoStall(NamedTuple):
    """A last stable offset that has not moved for some time while records wait behind it."""

    topic_partition: TopicPartition
    last_stable_offset: int
    seconds: float
    offsets_behind: int


def run_beside(work: Callable[[], None]) -> None:
    """Run a function in a thread that does not keep the process from ending."""
    threading.Thread(target=work, name="eos-kafka-source-lag", daemon=True).start()


class LsoStallWarnings:
    """The warnings about what blocks partitions, one search at a time; used from one thread."""

    def __init__(
        self,
        options: ClientOptions,
        run: Callable[[Callable[[], None]], None] = run_beside,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._run = run
        self._clock = clock
        self._named: dict[TopicPartition, tuple[int, float]] = {}
        self._next_search_at = 0.0
        self._searching = False
        self._closed = False

    def report(self, stands: Sequence[LsoStall]) -> None:
        """Begin to identify what blocks these partitions, if a search is due; never wait."""
        if self._searching:
            return
        now = self._clock()
        standing = {each.topic_partition: each.last_stable_offset for each in stands}
        self._named = {tp: each for tp, each in self._named.items() if standing.get(tp) == each[0]}
        wanted = [
            each
            for each in stands
            if each.topic_partition not in self._named
            or now - self._named[each.topic_partition][1] >= max(_REPEAT_SECONDS, each.seconds / 2)
        ]
        if not wanted or now < self._next_search_at:
            return
        self._searching = True
        self._run(lambda: self._search(wanted))

    def close(self) -> None:
        """Stop warning; a running search ends at its own deadline."""
        self._closed = True

    def _search(self, wanted: list[LsoStall]) -> None:
        try:
            with KafkaClient(self._options) as client:
                self._name_all(wanted, LsoBlockerSearch(client))
        except Exception:
            # No caller could handle this, and the query continues.
            logger.exception("The search for the transactions that block last stable offsets failed")
        finally:
            self._next_search_at = self._clock() + _PAUSE_SECONDS
            self._searching = False

    def _name_all(self, wanted: list[LsoStall], search: LsoBlockerSearch) -> None:
        until = self._clock() + _LONGEST_SEARCH_SECONDS
        left = sorted(wanted, key=lambda each: each.offsets_behind, reverse=True)
        for _ in range(_MOST_NAMED):
            if not left or self._closed or self._clock() >= until:
                break
            first = left[0]
            blocker = search.find(first.topic_partition)
            others = [each for each in left[1:] if each.topic_partition in blocker.partitions]
            left = [each for each in left[1:] if each.topic_partition not in blocker.partitions]
            if not self._closed:
                _warn(first, others, blocker.words)
            now = self._clock()
            self._named |= {each.topic_partition: (each.last_stable_offset, now) for each in (first, *others)}
        if left and not self._closed:
            logger.warning(
                "Open transactions block the last stable offsets of %s, %s; they will be "
                "identified later",
                counted(len(left), "more partition"), _places(left),
            )  # fmt: skip


def _warn(first: LsoStall, others: Sequence[LsoStall], words: str) -> None:
    beside = f" It also blocks {counted(len(others), 'more partition')}, {_places(others)}." if others else ""
    logger.warning(
        "%s: an open transaction has blocked the last stable offset at %d for %.0f s, %s below the high "
        "watermark. %s%s",
        first.topic_partition, first.last_stable_offset, first.seconds, counted(first.offsets_behind, "offset"),
        words, beside,
    )  # fmt: skip


def _places(stands: Sequence[LsoStall]) -> str:
    shown = ", ".join(str(each.topic_partition) for each in stands[:_MOST_PLACES_SHOWN])
    return shown if len(stands) <= _MOST_PLACES_SHOWN else f"{shown} and others"
