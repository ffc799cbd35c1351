"""Warnings of last stable offsets that stand still, with the transactions that hold them, at a bounded cost.

To name a transaction asks every broker, so it is done in a thread with a client of its own, and planning never waits
for it. Partitions that one transaction holds share one warning. A search names few transactions and begins the next
one a while later, and what was named is not named again for minutes, however many partitions stand still.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker_core.types import TopicPartition
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
    """Run something in a thread that does not keep the process from ending."""
    threading.Thread(target=work, name="eos-kafka-source-lag", daemon=True).start()


class LsoStallWarnings:
    """The warnings of what holds partitions, one search at a time; used from one thread."""

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
        """Begin to name what holds these partitions, where it is time to; never waits."""
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
        """Warn no more; a search under way ends by its own deadline."""
        self._closed = True

    def _search(self, wanted: list[LsoStall]) -> None:
        try:
            with KafkaClient(self._options) as client:
                self._name_all(wanted, LsoBlockerSearch(client))
        except Exception:
            # Nothing above this could take it, and the query reads on.
            logger.exception("The search for the transactions that hold last stable offsets failed")
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
                "Open transactions hold the last stable offsets of %d more partitions, %s; they are named in a while",
                len(left), _places(left),
            )  # fmt: skip


def _warn(first: LsoStall, others: Sequence[LsoStall], words: str) -> None:
    beside = f" It is also open in {len(others)} more that stand still, {_places(others)}." if others else ""
    logger.warning(
        "%s: an open transaction holds the last stable offset at %d for %.0f s now; %d offsets wait behind. %s%s",
        first.topic_partition, first.last_stable_offset, first.seconds, first.offsets_behind, words, beside,
    )  # fmt: skip


def _places(stands: Sequence[LsoStall]) -> str:
    shown = ", ".join(str(each.topic_partition) for each in stands[:_MOST_PLACES_SHOWN])
    return shown if len(stands) <= _MOST_PLACES_SHOWN else f"{shown} among them"
