"""Warnings of last stable offsets that do not move, with the transactions that block them, at a limited cost.

Identifying a transaction queries every broker, so for a query that goes on a thread with its own client does it, and
planning never waits for it. Partitions that one transaction blocks share one warning. However many partitions are
blocked, a search identifies only a few transactions, the next search begins later, and a transaction is not reported
again for minutes. A read that ends looks once, while it is planned: its process may end before a thread has found it.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker_core.types import TopicPartition, counted
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import Runtime
from spark_eos.transactions.judge import name_blocker, name_blockers
from spark_eos.transactions.standstills import Standstill

logger = logging.getLogger(__name__)

_MOST_NAMED: Final = 5
_PAUSE_SECONDS: Final = 60.0
_REPEAT_SECONDS: Final = 600.0
_MOST_PLACES_SHOWN: Final = 3


def run_beside(work: Callable[[], None]) -> None:
    """Run a function in a thread that does not keep the process from ending."""
    threading.Thread(target=work, name="eos-kafka-source-lag", daemon=True).start()


def warn_of_hidden(hidden: Sequence[TopicPartition], start: Mapping[TopicPartition, int], client: KafkaClient) -> None:
    """Warn that a read that ends soon finds nothing in partitions, and name what blocks the first of them."""
    first, others = hidden[0], len(hidden) - 1
    logger.warning(
        "%s%s: an open transaction hides all records from the start of the read, offset %d, so nothing is read "
        "there. %s",
        first, f" and {counted(others, 'more partition')}" if others else "", start[first],
        name_blocker(client, first),
    )  # fmt: skip


def warn_of_rest(
    waiting: Sequence[TopicPartition], end: Mapping[TopicPartition, int], client: KafkaClient, older_than_ms: int
) -> None:
    """Warn of transactions that hide what follows the end of a read, if they hang or have been open for long."""
    told = list(name_blockers(client, waiting, len(waiting), older_than_ms)) if waiting else []
    for places, words in told[:_MOST_NAMED]:
        logger.warning(
            "An open transaction hides all records from these offsets on, so the read ends there: %s. %s",
            _places([f"{place} at {end[place]}" for place in places]), words,
        )  # fmt: skip
    others = [place for places, _ in told[_MOST_NAMED:] for place in places]
    if others:
        logger.warning("So it is in %s, %s", counted(len(others), "more partition"), _places(others))


class LsoStallWarnings:
    """The warnings about what blocks partitions, one search at a time; used from one thread."""

    def __init__(
        self,
        options: ClientOptions,
        runtime: Runtime,
        run: Callable[[Callable[[], None]], None] = run_beside,
    ) -> None:
        self._options = options
        self._runtime = runtime
        self._run = run
        self._named: dict[TopicPartition, tuple[int, float]] = {}
        self._next_search_at = 0.0
        self._searching = False
        self._closed = False

    def report(self, stands: Sequence[Standstill]) -> None:
        """Begin to identify what blocks these partitions, if a search is due; never wait."""
        if self._searching:
            return
        now = self._runtime.clock.monotonic()
        standing = {each.topic_partition: each.last_stable_offset for each in stands}
        self._named = {tp: each for tp, each in self._named.items() if standing.get(tp) == each[0]}
        wanted = [
            each
            for each in stands
            if each.topic_partition not in self._named
            or now - self._named[each.topic_partition][1] >= max(_REPEAT_SECONDS, (now - each.since_ms / 1_000) / 2)
        ]
        if not wanted or now < self._next_search_at:
            return
        self._searching = True
        self._run(lambda: self._search(wanted))

    def close(self) -> None:
        """Stop warning; a running search ends at its own deadline."""
        self._closed = True

    def _search(self, wanted: list[Standstill]) -> None:
        try:
            with KafkaClient(self._options, self._runtime) as client:
                self._name(client, {each.topic_partition: each for each in wanted})
        except Exception:
            # No caller could handle this, and the query continues.
            logger.exception("The search for the transactions that block last stable offsets failed")
        finally:
            self._next_search_at = self._runtime.clock.monotonic() + _PAUSE_SECONDS
            self._searching = False

    def _name(self, client: KafkaClient, wanted: dict[TopicPartition, Standstill]) -> None:
        longest_first = sorted(wanted, key=lambda each: wanted[each].lag, reverse=True)
        for places, words in name_blockers(client, longest_first, _MOST_NAMED):
            if self._closed:
                return
            now = self._runtime.clock.monotonic()
            self._warn([wanted.pop(place) for place in places], words, now)
        if wanted and not self._closed:
            logger.warning(
                "Open transactions block the last stable offsets of %s, %s; they will be "
                "identified later",
                counted(len(wanted), "more partition"), _places([each for each in longest_first if each in wanted]),
            )  # fmt: skip

    def _warn(self, standstills: Sequence[Standstill], words: str, now: float) -> None:
        first, *others = standstills
        places = [each.topic_partition for each in others]
        beside = f" It also blocks {counted(len(others), 'more partition')}, {_places(places)}." if others else ""
        logger.warning(
            "%s: an open transaction has blocked the last stable offset at %d for %.0f s, %s below the high "
            "watermark. %s%s",
            first.topic_partition, first.last_stable_offset, now - first.since_ms / 1_000, counted(first.lag, "offset"),
            words, beside,
        )  # fmt: skip
        self._named |= {each.topic_partition: (each.last_stable_offset, now) for each in standstills}


def _places(places: Sequence[TopicPartition] | Sequence[str]) -> str:
    shown = ", ".join(map(str, places[:_MOST_PLACES_SHOWN]))
    return shown if len(places) <= _MOST_PLACES_SHOWN else f"{shown} and others"
